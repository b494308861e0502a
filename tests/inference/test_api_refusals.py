"""What the Python interface is given by mistake: one error that says what was expected, never one from inside."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.inference.api import generate, logits, score
from canaryjax.inference.request import check_ids, read_request
from canaryjax.inference.sampling import EXCLUDED, SamplingSettings, sample_tokens, sampling_logits
from canaryjax.models.lora import Adapter
from canaryjax.weights.checkpoint import LoadedModel
from canaryjax.weights.merged import save_merged
from canaryjax.weights.peft import load_adapter, save_adapter


@pytest.fixture
def loaded(tiny_model, tmp_path):
    """A model of 53 rows without a tokenizer: refusals come before anything is compiled."""
    params = tiny_model(real_vocab_size=47)
    return LoadedModel(params, params.config, None, (0,), None, "tiny", tmp_path)


NO_LISTS = [None, 5, 1.5, "ab", b"ab", {1: 2}, {1, 2}, np.array(3), True]


@pytest.mark.parametrize(
    "given", [*NO_LISTS, [1, 2, 3], np.array([1, 2]), [[1], 2], [None], [{1}], [1.5], [np.int64(3)]]
)
def test_logits_and_prompts_take_rows_of_ids(loaded, given):
    with pytest.raises(UserError, match=r"ids|row 0|row 1"):
        logits(loaded, given)
    if not isinstance(given, str):  # one text is a list of one
        for call in (generate, lambda model, prompts: score(model, prompts, [[1]] * (1 if prompts is None else 2))):
            with pytest.raises(UserError, match="prompt"):
                call(loaded, given)


@pytest.mark.parametrize(
    "own",
    [
        *NO_LISTS,
        [None],
        [5],
        [[1.5]],
        [[True]],
        [[[1], 2]],
        [[2, [1]]],
        [{1: 2}],
        [{1, 2}],
        [[[1.5]]],
        [[None]],
        [b"a"],
        [[[[1]]]],
    ],
)
def test_continuations_are_lists_of_ids_or_lists_of_those(loaded, own):
    with pytest.raises(UserError, match="continuation") as caught:
        score(loaded, [[1, 2]], own)
    assert "found" in str(caught.value)


def test_any_ordered_collection_is_a_list():
    # A generator has no length, and is empty the second time it is read.
    asked = read_request(([i, i + 1] for i in (3, 5)), iter([(7,), ([1], np.array([2, 4]))]))
    assert asked.prompts == [[3, 4], [5, 6]]
    assert asked.single == [True, False]
    assert [[check_ids(ids, 9, "x").tolist() for ids in own] for own in asked.continuations] == [[[7]], [[1], [2, 4]]]
    for row in ((1, 2), range(1, 3), np.array([1, 2], np.uint8), iter([1, np.int8(2)]), jnp.array([1, 2])):
        assert check_ids(row, 3, "x").tolist() == [1, 2]
    assert read_request("a", "b") == read_request(["a"], ["b"]) != read_request("a", ["b"])


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        *[("temperature", v) for v in ("hot", None, [1], True, 1j, -1, float("nan"), float("inf"), 1e300, 10**400)],
        *[("top_p", v) for v in ("x", None, True, 0, 1.5, float("nan"))],
        *[(name, v) for name in ("num_samples", "max_new_tokens") for v in (2.5, "2", None, True, 0, -1, 3.0)],
        *[("seed", v) for v in (float("nan"), 1.5, "x", None, [1], True, 2.0)],
    ],
)
def test_settings_of_generate_are_numbers_of_their_kind(loaded, setting, wrong):
    with pytest.raises(UserError, match=f"expected (a )?{setting}"):
        generate(loaded, [[1, 2]], **{"max_new_tokens": 3, setting: wrong})


def test_an_adapter_of_another_base_is_named(loaded, tiny_adapter):
    own = tiny_adapter(loaded.config, 0)
    calls = (lambda a: score(loaded, [[1]], [[2]], adapter=a), lambda a: generate(loaded, [[1]], adapter=a))
    deeper = tiny_adapter(dataclasses.replace(loaded.config, num_layers=5, windows=(None,) * 5), 0)
    wider = tiny_adapter(dataclasses.replace(loaded.config, ff_dim=41), 0)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), own)
    strange = Adapter(layers={"head": own.layers["q"]})
    for call in calls:
        # A scan's own error, or a plausible number where shapes agree by accident.
        for wrong, message in (
            ("/x", r"from load_adapter, or None, found '/x'"),
            (deeper, r"q\.a of the adapter of shape \(3, 26, 3\), found \(5, 26, 3\); use the base"),
            (wider, r"gate\.b of the adapter of shape \(3, 3, 37\), found \(3, 3, 41\)"),
            (stacked, r"down\.a of the adapter of shape \(3, 37, 3\), found \(2, 3, 37, 3\).*one policy at a time"),
            (strange, "found 'head'"),
        ):
            with pytest.raises(UserError, match=message):
                call(wrong)


def test_a_name_in_a_models_place_says_to_load_it(loaded):
    # An AttributeError on str, once.
    for call in (lambda m: logits(m, [[1]]), lambda m: score(m, [[1]], [[2]]), lambda m: generate(m, [[1]])):
        with pytest.raises(UserError, match=r"from load_model, found 'embedded'; call load_model\('embedded'\) first"):
            call("embedded")
        with pytest.raises(UserError, match=r"from load_model, found Transformer; load the base first"):
            call(loaded.params)


def test_arguments_in_the_wrong_order_are_named_in_one_short_line(loaded, tiny_adapter, tmp_path):
    adapter = tiny_adapter(loaded.config, 0)
    # The second and fourth printed every array of the model or the adapter.
    for call, message in (
        (lambda: generate([[1]], loaded), "expected a model from load_model, found list"),
        (lambda: load_adapter("nope", loaded), "expected a model from load_model, found 'nope'"),
        (lambda: load_adapter(loaded, loaded), r"expected a path, found LoadedModel\('tiny', "),
        (lambda: load_adapter(loaded, adapter), r"expected a path, found Adapter"),
        (lambda: save_adapter(tmp_path / "out", adapter), "expected an adapter to save, found PosixPath"),
        (lambda: save_merged(adapter, loaded, tmp_path / "out"), "expected a model from load_model, found Adapter"),
        (lambda: save_merged(loaded, tmp_path / "out", adapter), "expected an adapter to merge, found PosixPath"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            call()
        assert len(str(caught.value)) < 200
        assert "\n" not in str(caught.value)


def test_a_model_is_shown_by_what_it_is_not_by_its_arrays(loaded):
    count = sum(x.size for x in jax.tree.leaves(loaded.params))
    assert repr(loaded) == f"LoadedModel('tiny', {loaded.config.family}, {count:,} parameters, float32)"


LOGITS = np.random.default_rng(3).normal(size=(2, 5, 53)).astype(np.float32) - 7  # all below 0


def drawn(config, **settings):
    keys = jax.random.split(jax.random.key(0), 2)
    out = sample_tokens(keys, jnp.asarray(LOGITS), SamplingSettings(5, 1, **settings), config)
    return [np.asarray(x) for x in out]


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-45, 1e-40, 1e-38, 1e-30, 1e-7])
def test_a_tiny_temperature_is_greedy(loaded, temperature):
    # Below 1.2e-38 the quotient was infinite or NaN, and a padded row, 47 to 52, was taken; at 1e-30 it was below the
    # -1e30 of the padded rows.
    ids, law, raw = drawn(loaded.config, temperature=temperature)
    np.testing.assert_array_equal(ids, LOGITS[..., :47].argmax(-1))
    np.testing.assert_array_equal(law, 0)
    assert np.isfinite(raw).all()


@pytest.mark.parametrize("temperature", [1.1e-6, 1e-3])
def test_a_small_temperature_divides(loaded, temperature):
    law = np.asarray(sampling_logits(jnp.asarray(LOGITS), SamplingSettings(5, 1, temperature), loaded.config))
    np.testing.assert_allclose(law[..., :47], LOGITS[..., :47] / np.float32(temperature), rtol=1e-6)
    assert (law[..., :47] > EXCLUDED).all()
    assert (law[..., 47:] == EXCLUDED).all()
    np.testing.assert_array_equal(drawn(loaded.config, temperature=temperature)[0], LOGITS[..., :47].argmax(-1))


@pytest.mark.parametrize("top_p", [5e-324, 1e-45, 1e-40, 1e-9])
def test_a_tiny_top_p_keeps_the_first(loaded, top_p):
    # float32 takes it for 0: nothing was kept, and any row drawn, padded ones included.
    ids, law, _ = drawn(loaded.config, temperature=1.0, top_p=top_p)
    np.testing.assert_array_equal(ids, LOGITS[..., :47].argmax(-1))
    np.testing.assert_allclose(law, 0, atol=1e-6)
