"""Adapters to PEFT's format and back, and what is wrong with one named."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from canaryjax.errors import UserError
from canaryjax.models.lora import (
    TARGETS,
    Adapter,
    LoraPair,
    adapter_pairs,
    concatenate_adapters,
    from_pairs,
    init_adapter,
)
from canaryjax.models.transformer import head_table
from canaryjax.weights.peft import load_adapter, save_adapter

TENSORS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
KEY = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"


@pytest.fixture
def model(tools):
    return tools.random_model(tools.configs["llama"])


def random_adapter(config, rank=3, alpha=7.0, targets=("q", "v", "down")) -> Adapter:
    adapter = init_adapter(jax.random.key(5), config, rank, alpha, targets)
    pairs = {
        name: LoraPair(a=pair.a, b=jax.random.normal(jax.random.key(i), pair.b.shape))
        for i, (name, pair) in enumerate(adapter_pairs(adapter).items())
    }
    return from_pairs(pairs, adapter.scale)


def assert_equal(left: Adapter, right: Adapter) -> None:
    assert left.scale == right.scale  # to the last bit
    left, right = adapter_pairs(left), adapter_pairs(right)
    assert left.keys() == right.keys()
    for name in left:
        assert jnp.array_equal(left[name].a, right[name].a)
        assert jnp.array_equal(left[name].b, right[name].b)


@pytest.fixture
def saved(model, tmp_path):
    save_adapter(random_adapter(model.config), tmp_path / "adapter", "some/base")
    return tmp_path / "adapter"


def test_two_adapters_of_other_projections_are_saved_as_one(model, tmp_path):
    # A warm start and a policy need not train the same projections; this was met when the policy was to be saved.
    warm, own = random_adapter(model.config, targets=("q", "up")), random_adapter(model.config, 5, 2.0, ("q", "down"))
    both = concatenate_adapters(warm, own)
    save_adapter(both, tmp_path / "both")
    assert_equal(load_adapter(model, tmp_path / "both"), both)


# 49 * (1 / 49) is not 1 in floating point: the scale must survive ranks that are no power of two.
@pytest.mark.parametrize(("rank", "alpha"), [(3, 7.0), (8, 16.0), (49, 1.0), (11, 0.3)])
@pytest.mark.parametrize("stabilised", [False, True])
def test_round_trip_is_exact(model, tmp_path, rank, alpha, stabilised):
    adapter = random_adapter(model.config, rank, alpha)
    if stabilised:
        adapter = Adapter(layers=adapter.layers, scale=alpha / math.sqrt(rank))
    save_adapter(adapter, tmp_path / "a", rank_stabilised=stabilised)
    assert_equal(load_adapter(model, tmp_path / "a"), adapter)


@pytest.mark.parametrize(("family", "targets"), [("llama", TARGETS), ("gemma", ("q", "head")), ("gemma2", ("head",))])
def test_an_adapter_on_the_head_goes_out_and_comes_back(tools, tmp_path, family, targets):
    # Tied and untied; by itself, no tensor tells how the layers' modules are called.
    model = tools.random_model(tools.configs[family])
    adapter = random_adapter(model.config, targets=targets)
    save_adapter(adapter, tmp_path / "a")
    assert_equal(load_adapter(model, tmp_path / "a"), adapter)
    tensors = tools.read_tensors(tmp_path / "a" / TENSORS)
    assert tensors["base_model.model.lm_head.lora_A.weight"].shape == (3, 14)
    assert tensors["base_model.model.lm_head.lora_B.weight"].shape == (37, 3)
    assert "lm_head" in json.loads((tmp_path / "a" / SETTINGS).read_text())["target_modules"]


def test_half_an_adapter_on_the_head_is_named(tools, model, tmp_path):
    save_adapter(random_adapter(model.config, targets=("q", "head")), tmp_path / "a")
    tensors = tools.read_tensors(tmp_path / "a" / TENSORS)
    del tensors["base_model.model.lm_head.lora_B.weight"]
    tools.write_tensors(tmp_path / "a" / TENSORS, tensors)
    with pytest.raises(UserError, match=r"'lm_head\.lora_B\.weight' in .*, found no such tensor"):
        load_adapter(model, tmp_path / "a")


def test_a_head_saved_beside_its_adapter_must_be_the_bases(tools, model, tmp_path):
    # PEFT writes it; with another head underneath the adapter would mean something else.
    adapter = random_adapter(model.config, targets=("q", "head"))
    save_adapter(adapter, tmp_path / "a")
    tensors, key = tools.read_tensors(tmp_path / "a" / TENSORS), "base_model.model.lm_head.base_layer.weight"
    own = np.asarray(head_table(model))
    for copy in (own, own.astype(jnp.bfloat16)):
        tools.write_tensors(tmp_path / "a" / TENSORS, tensors | {key: copy})
        assert_equal(load_adapter(model, tmp_path / "a"), adapter)
    for copy in (own + np.float32(0.01), own[:-1]):
        tools.write_tensors(tmp_path / "a" / TENSORS, tensors | {key: copy})
        with pytest.raises(UserError, match=r"expected the base's own head in 'base_model\.model\.lm_head"):
            load_adapter(model, tmp_path / "a")


def test_a_head_saved_in_another_type_than_the_base_is_loaded_in_is_its_own(tools, model, tmp_path):
    # Rounded to F16 and to BF16, one weight is two numbers: neither is the other's rounding.
    halved = tools.random_model(dataclasses.replace(model.config, dtype="bfloat16"))
    adapter = random_adapter(model.config, targets=("q", "head"))
    save_adapter(adapter, tmp_path / "a")
    tensors, key = tools.read_tensors(tmp_path / "a" / TENSORS), "base_model.model.lm_head.base_layer.weight"
    copy = np.asarray(head_table(model)).astype(np.float16)
    assert not np.array_equal(copy.astype(jnp.bfloat16), np.asarray(head_table(halved)))
    tools.write_tensors(tmp_path / "a" / TENSORS, tensors | {key: copy})
    assert_equal(load_adapter(halved, tmp_path / "a"), adapter)
    copy[2, 3] *= 1 + 2.0**-6  # two units of the last bit that bfloat16 has
    tools.write_tensors(tmp_path / "a" / TENSORS, tensors | {key: copy})
    with pytest.raises(UserError, match="found other weights"):
        load_adapter(halved, tmp_path / "a")


def test_settings_say_what_was_trained(saved):
    settings = json.loads((saved / SETTINGS).read_text())
    assert settings["lora_alpha"] == 7
    assert settings["r"] == 3
    assert settings["target_modules"] == ["q_proj", "v_proj", "down_proj"]
    assert settings["base_model_name_or_path"] == "some/base"


def test_rank_stabilised_scale_divides_by_the_root(model, saved):
    settings = json.loads((saved / SETTINGS).read_text())
    (saved / SETTINGS).write_text(json.dumps(settings | {"use_rslora": True}))
    assert load_adapter(model, saved).scale == 7 / math.sqrt(3)


def test_missing_tensor_is_named(tools, model, saved):
    tensors = tools.read_tensors(saved / TENSORS)
    tools.write_tensors(saved / TENSORS, {k: x for k, x in tensors.items() if k != KEY})
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.down_proj\.lora_B"):  # never zeros in its place
        load_adapter(model, saved)


def test_target_without_any_tensor_is_named(tools, model, saved):
    tensors = tools.read_tensors(saved / TENSORS)
    tools.write_tensors(saved / TENSORS, {k: x for k, x in tensors.items() if "down_proj" not in k})
    with pytest.raises(UserError, match="down_proj"):
        load_adapter(model, saved)


@pytest.mark.parametrize(
    "key",
    [
        "base_model.model.model.layers.3.mlp.down_proj.lora_B.weight",  # one layer past the base
        "base_model.model.model.layers.1.self_attn.down_proj.lora_B.weight",
        "base_model.model.model.lm_head.lora_A.weight",
        "base_model.model.model.layers.1.lm_head.lora_A.weight",
        "base_model.model.model.layers.1.self_attn.q_proj.lora_magnitude_vector.weight",
    ],
)
def test_unknown_tensor_is_named(tools, model, saved, key):
    tensors = tools.read_tensors(saved / TENSORS)
    tools.write_tensors(saved / TENSORS, {**tensors, key: tensors[KEY]})
    with pytest.raises(UserError, match=key.replace(".", r"\.")):
        load_adapter(model, saved)


@pytest.mark.parametrize("layer", ["00", "\u0660", "1" * 5000], ids=["00", "Arabic zero", "5000 digits"])
def test_a_layer_has_one_name(tools, model, saved, layer):
    tensors = tools.read_tensors(saved / TENSORS)
    tools.write_tensors(saved / TENSORS, {k.replace("layers.0.", f"layers.{layer}."): x for k, x in tensors.items()})
    with pytest.raises(UserError, match=r"expected LoRA tensors of the 3 layers' .*; use the base") as caught:
        load_adapter(model, saved)
    assert len(str(caught.value)) < 1000 + len(str(saved))


@pytest.mark.parametrize(("of", "at"), [("model.layers.1.", "model.language_model."), ("lm_head.lora_A", "")])
def test_the_names_of_two_models_in_one_file_are_refused(tools, model, tmp_path, of, at):
    save_adapter(random_adapter(model.config, targets=("q", "head")), tmp_path / "a")
    tensors = tools.read_tensors(tmp_path / "a" / TENSORS)
    other = f"base_model.model.{at}{of.removeprefix('model.')}" if at else f"base_model.model.language_model.{of}"
    renamed = {key.replace(f"base_model.model.{of}", other): x for key, x in tensors.items()}
    assert renamed.keys() != tensors.keys()
    tools.write_tensors(tmp_path / "a" / TENSORS, renamed)
    with pytest.raises(UserError, match=r"expected one model's names in .*language_model.*; save the adapter again"):
        load_adapter(model, tmp_path / "a")


def test_another_base_is_named(tools, saved):
    other = tools.random_model(dataclasses.replace(tools.configs["qwen3"], width=22))
    with pytest.raises(UserError, match="lora_A"):
        load_adapter(other, saved)


@pytest.mark.parametrize("change", [{"num_heads": 4}, {"num_layers": 4, "windows": (None,) * 4}, {"ff_dim": 29}])
def test_an_adapter_of_another_shape_says_what_was_expected(tools, tmp_path, change):
    own = dataclasses.replace(tools.configs["llama"], **change)
    save_adapter(random_adapter(own, targets=("q", "down")), tmp_path / "a")
    with pytest.raises(UserError, match=r"expected .*, found .*; .*use the base"):
        load_adapter(tools.random_model(tools.configs["llama"]), tmp_path / "a")


def test_an_adapter_for_another_vocabulary_is_named(tools, model, tmp_path):
    save_adapter(random_adapter(dataclasses.replace(model.config, vocab_size=41), targets=("head",)), tmp_path / "a")
    with pytest.raises(UserError, match=r"'base_model\.model\.lm_head\.lora_B.* of shape \(37, 3\), found \(41, 3\)"):
        load_adapter(model, tmp_path / "a")


@pytest.mark.parametrize("dtype", ["int32", "int8", "float64"])
def test_another_dtype_is_named(tools, model, saved, dtype):
    tensors = {key: np.asarray(x, dtype) if key == KEY else x for key, x in tools.read_tensors(saved / TENSORS).items()}
    save_file(tensors, saved / TENSORS)
    kind = {"int32": "I32", "int8": "I8", "float64": "F64"}[dtype]
    with pytest.raises(
        UserError, match=rf"expected '.*lora_B.weight' as F32, F16 or BF16, found {kind} in .*; save it"
    ):
        load_adapter(model, saved)


def test_a_directory_without_its_two_files_names_the_one_it_lacks(model, saved):
    for name in (TENSORS, SETTINGS):
        (saved / name).unlink()
        with pytest.raises(UserError, match=rf"expected .*{name}.*; check the path"):
            load_adapter(model, saved)


def test_nan_is_named(tools, model, saved):
    tensors = tools.read_tensors(saved / TENSORS)
    tensors[KEY][0, 0] = np.nan
    tools.write_tensors(saved / TENSORS, tensors)
    with pytest.raises(UserError, match=r"NaN.*lora_B"):
        load_adapter(model, saved)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"some_new_option": 3}, "some_new_option"),
        # Equal to false and to true, and neither: 0 means the first layer only.
        *[({name: v}, name) for name, v in (("layers_to_transform", 0), ("init_lora_weights", 1))],
        # Patterns that can take for ever, the first of them on this very file.
        *[
            ({"target_modules": v}, "; give a list of names")
            for v in (
                *("([a-z0-9_.]+)+!", r"(model\.layers\.\d+\.(self_attn\.[qv]_proj|mlp\.down_proj))+", "(?:.|[(]|.)*"),
                *(
                    "((?:.+)?){1,2}",
                    "(.|[a-z])+!",
                    ".*.*.*.*.*.*",
                    "(x|.*.*.*(.*.*.*))",
                    "(?x)(.+) +",
                    ".*" + "|x" * 500,
                ),
            )
        ],
        ({"r": 0}, "r "),
        ({"r": 4}, "lora_A"),
        *[
            ({"lora_alpha": a}, "lora_alpha")
            for a in (None, "7", True, [7], float("nan"), 10**400, 0, 0.0, 1e-320, -1e300)
        ],
        *[({"use_rslora": v}, "use_rslora") for v in ("no", "false", 1, 0, [])],  # "no" counted as true
        *[
            ({"target_modules": v}, "target_modules")
            for v in ([1], [], [["q_proj"]], {"q_proj": 1}, 5, True, "(q_proj")
        ],
        ({"r": 10**12}, "r "),
        ({"r": True}, "r "),
        # Modules that the entry does not mean, applied all the same.
        *[
            ({"target_modules": v}, r"target_modules .* only, found those of 'model\.layers\.0\.")
            for v in (["q_proj"], ["q_proj", "v_proj"], ["q_proj", "v_proj", "up_proj"], r".*\.(q|v)_proj", "q_proj")
        ],
        # Meant, and without tensors.
        ({"target_modules": ["q_proj", "v_proj", "down_proj", "up_proj"]}, "up_proj"),
        ({"target_modules": r".*\.(q|v|down|up)_proj"}, "up_proj"),
        ({"target_modules": "all-linear"}, "k_proj"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "embed_tokens"),
    ],
)
def test_settings_that_change_the_arithmetic_are_refused(model, saved, change, named):
    settings = json.loads((saved / SETTINGS).read_text())
    (saved / SETTINGS).write_text(json.dumps(settings | change))
    with pytest.raises(UserError, match=named):
        load_adapter(model, saved)


@pytest.mark.parametrize(
    "targets",
    [
        ["down_proj", "self_attn.q_proj", "v_proj"],
        [f"model.layers.{i}.{m}" for i in range(3) for m in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")],
        r"model\.layers\.\d+\.(self_attn\.[qv]_proj|mlp\.down_proj)",
        # As one large project writes it for models of text and pictures.
        r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|v_proj|down_proj).*?)|"
        r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|v_proj|down_proj)))",
        r"(model\.)?(layers\.\d+\.)?(?P<part>self_attn|mlp)\.(q|v|down)_proj(?!.*[+*(])",
        r".*q_proj|.*v_proj|.*down_proj|.*a|.*b|.*c|.*e",  # many repeats, but each name meets them one by one
        None,
    ],
)
def test_target_modules_may_be_said_in_every_way_peft_has(model, saved, targets):
    settings = json.loads((saved / SETTINGS).read_text())
    (saved / SETTINGS).write_text(json.dumps(settings | {"target_modules": targets, "use_rslora": None}))
    assert_equal(load_adapter(model, saved), random_adapter(model.config))


@pytest.mark.parametrize(
    "change", [{"n" * 5000: 3}, {"new": "v" * 5000}, {"bias": "v" * 5000}, {"target_modules": ["x" * 5000]}]
)
def test_of_a_long_entry_a_part_is_shown(model, saved, change):
    settings = json.loads((saved / SETTINGS).read_text())
    (saved / SETTINGS).write_text(json.dumps(settings | change))
    with pytest.raises(UserError, match="not implemented") as caught:
        load_adapter(model, saved)
    assert len(str(caught.value)) < 500 + len(str(saved))


def test_an_adapter_of_a_shallower_base_says_so(tools, model, tmp_path):
    shallow = dataclasses.replace(model.config, num_layers=2, windows=(None, None))
    save_adapter(random_adapter(shallow), tmp_path / "shallow")
    with pytest.raises(UserError, match=r"layers\.2\..*absent from 1 of 3 layers\); use the base it was trained on"):
        load_adapter(model, tmp_path / "shallow")


def test_what_is_no_adapter_is_not_saved(model, tmp_path):
    adapter = random_adapter(model.config)
    for wrong in (None, {}, Adapter(layers=adapter.layers, scale=0.0), Adapter(layers=adapter.layers, scale=math.nan)):
        with pytest.raises(UserError, match="expected an adapter"):
            save_adapter(wrong, tmp_path / "none")
    with pytest.raises(UserError, match=r"expected projections among .*, found \['query'\]; load it again"):
        save_adapter(Adapter(layers={"query": adapter.layers["q"]}), tmp_path / "none")
    with pytest.raises(
        UserError, match=r"expected a model from load_model, found 'embedded'; call load_model\('embedded'\) first"
    ):
        load_adapter("embedded", tmp_path)
    with pytest.raises(UserError, match="expected a path, found None"):
        save_adapter(adapter, None)
    with pytest.raises(UserError, match="expected a path, found None"):
        load_adapter(model, None)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["down", "head"])
def test_what_is_not_finite_is_not_saved(model, tmp_path, name, value):
    pairs = adapter_pairs(random_adapter(model.config, targets=("q", "down", "head")))
    pairs[name] = LoraPair(a=pairs[name].a, b=pairs[name].b.at[..., 1, 5].set(value))
    with pytest.raises(UserError, match=rf"finite weights to save, found NaN or infinity in {name}\.b; train"):
        save_adapter(from_pairs(pairs, 1.0), tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_truncated_and_pickled_adapters_are_named(model, saved):
    data = (saved / TENSORS).read_bytes()
    (saved / TENSORS).write_bytes(data[:-5])
    with pytest.raises(UserError, match=TENSORS):
        load_adapter(model, saved)
    (saved / TENSORS).rename(saved / "adapter_model.bin")
    with pytest.raises(UserError, match="pickle"):
        load_adapter(model, saved)


def test_nothing_is_overwritten_and_policies_are_saved_one_by_one(model, saved, tmp_path):
    adapter = random_adapter(model.config)
    with pytest.raises(UserError, match="in use"):
        save_adapter(adapter, saved)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), adapter)
    with pytest.raises(UserError, match="each policy by itself"):
        save_adapter(stacked, tmp_path / "stacked")
    assert not (tmp_path / "stacked").exists()
