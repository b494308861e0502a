"""Sampling: the law, the loop, the cache and the policy axis."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from canaryjax.errors import UserError
from canaryjax.inference import decode
from canaryjax.inference.forward import run_context
from canaryjax.inference.generate import sample_rollouts
from canaryjax.inference.logprobs import head_logits, score_shared
from canaryjax.inference.sampling import SamplingSettings, sample_tokens, sampling_logits

sample = jax.jit(sample_rollouts, static_argnames="settings")
score = jax.jit(score_shared, static_argnames="temperature")


def keys(*seeds):
    return jax.random.key(0)[None] if not seeds else jnp.stack([jax.random.key(s) for s in seeds])


def contexts(shared_batch):
    ids, mask, _, _ = shared_batch(1, 53)
    return ids, mask


@pytest.mark.parametrize("style", ["plain", "windowed"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampler_equals_scorer(tiny_model, tiny_adapter, shared_batch, style, temperature):
    # Known faults 7, 12 and the cached decode: a rollout scored again under the sampled law, by the full pass, gives
    # the sampler's numbers. Catches a shifted cache, windows that forget the context, an undivided temperature.
    model = tiny_model(style, real_vocab_size=47, stddev=0.2)
    adapter = tiny_adapter(model.config, 1)
    ids, mask = contexts(shared_batch)
    settings = SamplingSettings(2, 7, temperature=temperature, eos_ids=tuple(range(0, 47, 4)))
    stacked = jax.tree.map(lambda a: a[None], adapter)
    rollout = sample(model, stacked, ids[None], mask[None], keys(), settings=settings)
    own, own_mask = rollout.ids_pbgt[0], rollout.completion_mask_pbgt[0]
    again = score(model, adapter, ids, mask, own, own_mask, temperature=temperature)
    raw = score(model, adapter, ids, mask, own, own_mask)
    np.testing.assert_allclose(rollout.logps_pbgt[0], again, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rollout.raw_logps_pbgt[0], raw, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rollout.logps_pbgt[0].sum(-1), again.sum(-1), atol=1e-4)
    assert float(jnp.abs(again - raw).max()) > 0.01  # the two laws differ here
    # The mask ends with the end-of-sequence token, which is scored; nothing stands behind it.
    ended = np.isin(own, settings.eos_ids) & np.asarray(own_mask)
    assert ended.any()
    np.testing.assert_array_equal(np.asarray(rollout.finished_pbg[0]), ended.any(axis=-1))
    for row, row_mask, row_ended in zip(
        np.asarray(own).reshape(-1, 7), np.asarray(own_mask).reshape(-1, 7), ended.reshape(-1, 7), strict=True
    ):
        length = row_ended.argmax() + 1 if row_ended.any() else 7
        np.testing.assert_array_equal(row_mask, np.arange(7) < length)
        assert not row[length:].any()


@pytest.mark.parametrize("policies", [1, 2])
@pytest.mark.parametrize("rows", [1, 3])
def test_deep_models_sample_what_unrolled_ones_do(tiny_model, tiny_adapter, shared_batch, monkeypatch, policies, rows):
    # Above MOST_UNROLLED layers the loop over them is a scan with caches of its own shape, written at other places.
    model = tiny_model("windowed", real_vocab_size=47, stddev=0.2)
    adapters = jax.tree.map(lambda *a: jnp.stack(a), *(tiny_adapter(model.config, i) for i in range(policies)))
    ids, mask = (jnp.stack([a[:rows]] * policies) for a in contexts(shared_batch))
    law = SamplingSettings(2, 7)
    found = []
    for most in (decode.MOST_UNROLLED, 0):
        monkeypatch.setattr(decode, "MOST_UNROLLED", most)
        fresh = jax.jit(lambda *given: sample_rollouts(*given, law))  # a function that was compiled is not traced again
        found.append(fresh(model, adapters, ids, mask, keys(*range(policies))))
    np.testing.assert_array_equal(found[0].ids_pbgt, found[1].ids_pbgt)
    np.testing.assert_allclose(found[0].logps_pbgt, found[1].logps_pbgt, rtol=1e-5, atol=1e-5)


def test_greedy_is_the_argmax_of_the_full_pass(tiny_model, shared_batch):
    # The oracle has no cache: the whole sequence again for each token.
    model = tiny_model("windowed", stddev=0.25, real_vocab_size=50)
    ids, mask = contexts(shared_batch)
    rollout = sample(model, None, ids[None], mask[None], keys(), settings=SamplingSettings(1, 6, temperature=0.0))
    full = jax.jit(lambda m, x: head_logits(m, None, run_context(m, None, x)[0]))
    for b in range(3):
        row = np.asarray(ids[b][mask[b]]).tolist()
        for step in range(6):
            padded = jnp.asarray(np.pad(row, (0, 19 - len(row)))[None])
            best = int(np.argmax(full(model, padded)[0, len(row) - 1, :50]))
            assert int(rollout.ids_pbgt[0, b, 0, step]) == best
            row.append(best)
    assert len(set(np.asarray(rollout.ids_pbgt).ravel().tolist())) > 3
    assert not rollout.logps_pbgt.any()  # greedy leaves no choice


@pytest.fixture
def eight():
    """Logits over 11 entries of which 9 are real; entry 10, padding, is by far the largest."""
    return jnp.array([2.0, 0.3, -1.0, 1.1, 0.9, -0.2, 1.5, 0.0, -2.0, 0.5, 12.0])


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.0, 0.7), (1.4, 0.35), (0.7, 1e-6)])
def test_law_equals_enumeration(tiny_model, eight, temperature, top_p):
    # Oracle in NumPy float64: smallest set of most probable real tokens whose mass reaches top_p.
    config = tiny_model(vocab_size=11, real_vocab_size=9).config
    p = np.exp(np.asarray(eight, np.float64)[:9] / temperature)
    p /= p.sum()
    order = np.argsort(-p)
    kept, mass = [], 0.0
    for token in order:
        kept.append(token)
        mass += p[token]
        if mass >= top_p:
            break
    wanted = np.zeros(11)
    wanted[kept] = p[kept] / p[kept].sum()
    settings = SamplingSettings(1, 1, temperature=temperature, top_p=top_p)
    law = jax.nn.softmax(sampling_logits(eight, settings, config))
    np.testing.assert_allclose(law, wanted, atol=1e-6)
    # And what is drawn follows it: 20,000 draws, chi-square over the entries that are possible.
    draws, logps, _ = jax.jit(lambda key, x: sample_tokens(key, x, settings, config))(
        keys(5), jnp.broadcast_to(eight, (1, 20_000, 11))
    )
    counts = np.bincount(np.asarray(draws[0]), minlength=11)
    assert not counts[wanted == 0].any()
    possible = wanted > 0
    if possible.sum() > 1:
        assert stats.chisquare(counts[possible], 20_000 * wanted[possible]).pvalue > 1e-4
    np.testing.assert_allclose(logps[0], np.log(wanted[np.asarray(draws[0])]), atol=1e-5)


def test_sequences_follow_the_product_law(tiny_model, shared_batch):
    # Two-token texts over 4 real entries: 16 outcomes enumerated with the full pass, 4,096 samples, chi-square. Catches
    # noise that is shared between steps or continuations.
    model = tiny_model("plain", vocab_size=5, real_vocab_size=4, stddev=0.2)
    context, mask = jnp.array([[3, 1, 2]]), jnp.ones((1, 3), bool)
    texts = jnp.array(list(itertools.product(range(4), repeat=2)), jnp.int32)[None]
    logps = score(model, None, context, mask, texts, jnp.ones(texts.shape, bool), temperature=1.0)
    wanted = np.exp(np.asarray(logps, np.float64).sum(-1)[0])
    np.testing.assert_allclose(wanted.sum(), 1, atol=1e-5)
    rollout = sample(model, None, context[None], mask[None], keys(7), settings=SamplingSettings(4096, 2))
    outcome = np.asarray(rollout.ids_pbgt[0, 0]) @ [4, 1]
    counts = np.bincount(outcome, minlength=16)
    assert stats.chisquare(counts, 4096 * wanted / wanted.sum()).pvalue > 1e-4


def test_early_exit_changes_nothing(tiny_model, shared_batch):
    # The loop ends when every row of every policy is done: same tokens as with a buffer that is only just long enough.
    model = tiny_model("plain", stddev=0.2)
    ids, mask = contexts(shared_batch)
    eos = tuple(range(0, 53, 2))  # half of the entries end a text
    short, long = (
        sample(model, None, ids[None], mask[None], keys(3), settings=SamplingSettings(2, t, eos_ids=eos))
        for t in (9, 31)
    )
    assert short.finished_pbg.all()
    for a, b in zip(jax.tree.leaves(short)[:4], jax.tree.leaves(long)[:4], strict=True):
        np.testing.assert_array_equal(a, b[..., :9])
        assert not b[..., 9:].any()


def test_policies_together_equal_one_at_a_time(tiny_model, tiny_adapter, shared_batch):
    model = tiny_model("windowed", stddev=0.2)
    adapters = [tiny_adapter(model.config, seed) for seed in (1, 2)]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *adapters)
    ids, mask = contexts(shared_batch)
    ids_p, mask_p = jnp.stack([ids, ids[::-1]]), jnp.stack([mask, mask[::-1]])
    settings = SamplingSettings(2, 5, eos_ids=tuple(range(15)))
    together = sample(model, stacked, ids_p, mask_p, keys(1, 2), settings=settings)
    for p, adapter in enumerate(adapters):
        one = jax.tree.map(lambda a: a[None], adapter)
        alone = sample(model, one, ids_p[p][None], mask_p[p][None], keys(1, 2)[p : p + 1], settings=settings)
        np.testing.assert_array_equal(alone.ids_pbgt[0], together.ids_pbgt[p])
        np.testing.assert_allclose(alone.logps_pbgt[0], together.logps_pbgt[p], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(alone.finished_pbg[0], together.finished_pbg[p])


def test_draws_differ_by_key_row_and_continuation_only(tiny_model, shared_batch):
    # Known fault 30. The same context twice in one batch, two continuations: four different texts; again: the same.
    model = tiny_model("plain", stddev=0.05)
    ids, mask = contexts(shared_batch)
    ids, mask = ids[jnp.array([0, 0, 1])], mask[jnp.array([0, 0, 1])]
    settings = SamplingSettings(2, 8)
    first, again, other = (
        sample(model, None, ids[None], mask[None], keys(k), settings=settings).ids_pbgt[0] for k in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    texts = np.concatenate([first[:2], other[:2]]).reshape(-1, 8)
    assert len({tuple(text) for text in texts.tolist()}) == 8
    # With a key a row, a row's draws do not depend on its place.
    rows = jnp.stack([jax.random.key(s) for s in (5, 6, 7)])
    there = sample(model, None, ids[None], mask[None], rows[None], settings=settings).ids_pbgt[0]
    back = sample(model, None, ids[None, ::-1], mask[None, ::-1], rows[None, ::-1], settings=settings).ids_pbgt[0]
    np.testing.assert_array_equal(there, back[::-1])


def test_settings_are_compiled_once(tiny_model, shared_batch):
    traces = []

    @jax.jit
    def run(model, ids, mask, key):
        traces.append(1)
        return sample_rollouts(model, None, ids, mask, key, SamplingSettings(2, 3))

    model, (ids, mask) = tiny_model(), contexts(shared_batch)
    for seed in range(3):
        run(model, (ids[None] + seed) % 53, mask[None], keys(seed))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": -0.1}, "temperature of 0 or more, found -0.1"),
        ({"temperature": float("nan")}, "temperature of 0 or more, found nan"),
        ({"top_p": 0.0}, r"top_p in \(0, 1\], found 0.0"),
        ({"top_p": 1.5}, r"top_p in \(0, 1\], found 1.5"),
        ({"num_samples": 0}, "num_samples of at least 1, found 0"),
        ({"max_new_tokens": 0}, "max_new_tokens of at least 1, found 0"),
    ],
)
def test_settings_out_of_range(change, message):
    with pytest.raises(UserError, match=message):
        SamplingSettings(**({"num_samples": 1, "max_new_tokens": 1} | change))
