"""The shared-context pass equals running each context + continuation by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.inference.forward import forward_shared, run_context
from canaryjax.inference.logprobs import head_logits, score_shared

score = jax.jit(score_shared, static_argnames=("temperature", "remat"))
plain_pass = jax.jit(run_context)


def repeated(model, adapter, batch):
    """Oracle: each pair as one plain row, log-softmax of its full logits, read off one token at a time."""
    ids, mask, own_ids, own_mask = map(np.asarray, batch)
    rows = np.zeros((6, 16), np.int32)
    for b, g in np.ndindex(3, 2):
        row = np.concatenate([ids[b][mask[b]], own_ids[b, g][own_mask[b, g]]])
        rows[2 * b + g, : len(row)] = row
    logps = jax.nn.log_softmax(head_logits(model, adapter, run_context(model, adapter, rows)[0]))
    out = jnp.zeros(own_ids.shape)
    for b, g in np.ndindex(3, 2):
        n = mask[b].sum()
        for i in range(own_mask[b, g].sum()):
            out = out.at[b, g, i].set(logps[2 * b + g, n + i - 1, rows[2 * b + g, n + i]])
    return out


ONE_LAYER = {"num_layers": 1, "windows": (5,)}  # nothing to scan: the only layer is the one that stops early


@pytest.mark.parametrize(("style", "changes"), [("plain", {}), ("windowed", {}), ("windowed", ONE_LAYER)])
def test_shared_equals_repeated_values_and_gradients(tiny_model, tiny_adapter, shared_batch, style, changes):
    # Would catch: continuations that see each other, positions counted through padding, windows that count padding,
    # gradients that do not reach the context from all continuations, a last layer that reads what it left out.
    model = tiny_model(style, **changes)
    adapter, batch = tiny_adapter(model.config, 1), shared_batch(2, 53)
    weights = jax.random.normal(jax.random.key(3), batch[2].shape)

    def loss(adapter, score):
        logps = score(adapter)
        return (weights * logps).sum(), logps

    def gradient(score):
        return jax.jit(jax.value_and_grad(lambda a: loss(a, score), has_aux=True))(adapter)

    (_, ours), our_grad = gradient(lambda a: score_shared(model, a, *batch))
    (_, plain), plain_grad = gradient(lambda a: repeated(model, a, batch))
    np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)
    assert float(jnp.abs(ours).max()) > 1  # a test of zeros would pass anything
    for a, b in zip(jax.tree.leaves(our_grad), jax.tree.leaves(plain_grad), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=3e-5 * float(jnp.abs(b).max()))


def test_recomputing_layers_changes_nothing(tiny_model, tiny_adapter, shared_batch):
    model = tiny_model("windowed")
    adapter, batch = tiny_adapter(model.config, 1), shared_batch(2, 53)
    kept, again = (
        jax.jit(jax.grad(lambda a, r=r: score_shared(model, a, *batch, remat=r).sum()))(adapter) for r in (False, True)
    )
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * float(jnp.abs(a).max()))


@pytest.mark.parametrize("style", ["plain", "windowed"])
def test_padding_content_and_width_reach_nothing(tiny_model, shared_batch, style):
    # Would catch a mask that lets padding in: the padding here is a real token of the vocabulary.
    model = tiny_model(style)
    ids, mask, own_ids, own_mask = shared_batch(4, 53)
    alone = score(model, None, ids, mask, own_ids, own_mask)
    wider = jnp.pad(jnp.where(mask, ids, 17), ((0, 0), (0, 6)), constant_values=17)
    own = jnp.pad(jnp.where(own_mask, own_ids, 19), ((0, 0), (0, 1), (0, 3)), constant_values=19)
    padded = score(
        model, None, wider, jnp.pad(mask, ((0, 0), (0, 6))), own, jnp.pad(own_mask, ((0, 0), (0, 1), (0, 3)))
    )
    np.testing.assert_allclose(padded[:, :2, :5], alone, rtol=1e-5, atol=1e-5)
    assert not padded[:, 2:].any()
    assert not padded[:, :, 5:].any()


def test_any_batch_gives_the_same(tiny_model, shared_batch):
    # Known fault 27: alone, in a batch of 8 and permuted.
    model = tiny_model("windowed")
    ids, mask, own_ids, own_mask = shared_batch(5, 53)
    eight = [jnp.concatenate([a, a, a])[:8] for a in (ids, mask, own_ids, own_mask)]
    order = jnp.array([5, 2, 7, 0, 3, 6, 1, 4])
    together = score(model, None, *eight)
    permuted = score(model, None, *(a[order] for a in eight))
    np.testing.assert_allclose(permuted, together[order], rtol=1e-5, atol=1e-5)
    for row in range(3):
        alone = score(model, None, *(a[row : row + 1] for a in (ids, mask, own_ids, own_mask)))
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-5, atol=1e-5)


def test_query_blocks_change_nothing(tiny_model, monkeypatch):
    # Would catch an offset that is lost between blocks: 13 positions in blocks of at most 4, one block shorter.
    model = tiny_model("windowed")
    ids = jax.random.randint(jax.random.key(6), (2, 13), 0, 53)
    whole = plain_pass(model, None, ids)[0]
    monkeypatch.setattr("canaryjax.inference.attention.QUERY_BLOCK", 4)
    in_blocks = jax.jit(lambda m, i: run_context(m, None, i))(model, ids)[0]
    np.testing.assert_allclose(in_blocks, whole, rtol=1e-5, atol=1e-5)


def test_stacked_policies_equal_one_at_a_time(tiny_model, tiny_adapter, shared_batch):
    model = tiny_model()
    adapters = [tiny_adapter(model.config, seed) for seed in (1, 2)]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *adapters)
    batch = shared_batch(7, 53)
    together = jax.jit(jax.vmap(lambda a: score_shared(model, a, *batch)))(stacked)
    for row, adapter in zip(together, adapters, strict=True):
        np.testing.assert_allclose(row, score(model, adapter, *batch), rtol=1e-5, atol=1e-5)
    assert float(jnp.abs(together[0] - together[1]).max()) > 0.1


def test_predictors_stand_one_before_their_tokens(tiny_model, shared_batch):
    # Entry 0 comes from the context's last real token, entry i from continuation token i - 1.
    model = tiny_model()
    ids, mask, own_ids, _ = shared_batch(8, 53)
    states = jax.jit(forward_shared)(model, None, ids, mask, own_ids)
    predictors = states.predictors()
    np.testing.assert_array_equal(predictors[:, 1, 0], states.last_bd)
    np.testing.assert_array_equal(predictors[:, :, 1:], states.continuation_bgtd[:, :, :-1])
    alone = plain_pass(model, None, ids[1:2, :7])[0][0, -1]
    np.testing.assert_allclose(states.last_bd[1], alone, rtol=1e-5, atol=1e-5)
