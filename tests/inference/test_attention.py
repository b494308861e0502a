"""Attention with its own backward pass against the textbook formula under ordinary autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.inference import attention
from canaryjax.inference.attention import attend_causal, attend_continuations, attend_step


def textbook(q, k, v, allowed, config):
    """One softmax over all keys: q `[u, n, h]`, k and v `[s, n, h]`, allowed `[u, s]`."""
    scores = jnp.einsum("unh,snh->nus", q, k) * config.attn_scale
    if config.attn_softcap is not None:
        scores = config.attn_softcap * jnp.tanh(scores / config.attn_softcap)
    weights = jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf), axis=-1)
    return jnp.einsum("nus,snh->unh", weights, v)


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def assert_same(ours, theirs, operands):
    """Values, and the gradients of a random weighting of them."""
    found, wanted = jax.jit(ours)(*operands), jax.jit(theirs)(*operands)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)
    (weights,) = arrays(found.shape)
    every = tuple(range(len(operands)))
    grads = (jax.jit(jax.grad(lambda *x, f=f: (weights * f(*x)).sum(), every))(*operands) for f in (ours, theirs))
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [2**30, 3])
@pytest.mark.parametrize("softcap", [None, 0.9])
@pytest.mark.parametrize("bytes_of_head", [0, attention.HEAD_BYTES], ids=["head by head", "together"])
def test_causal(tiny_model, monkeypatch, window, softcap, bytes_of_head):
    # 11 positions in blocks of 4, 4 and 3. Catches a lost block offset, a forgotten derivative of the soft cap, a query
    # head that reads the wrong key head.
    monkeypatch.setattr(attention, "QUERY_BLOCK", 4)
    monkeypatch.setattr(attention, "HEAD_BYTES", bytes_of_head)
    config = tiny_model(attn_softcap=softcap, num_heads=6).config

    def ours(q, k, v):
        return attend_causal(q, jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2), jnp.int32(window), config)

    i, j = jnp.arange(11)[:, None], jnp.arange(11)
    allowed = (j <= i) & (i - j < window)

    def theirs(q, k, v):
        return jax.vmap(lambda q, k, v: textbook(q, jnp.repeat(k, 3, 1), jnp.repeat(v, 3, 1), allowed, config))(q, k, v)

    assert_same(ours, theirs, arrays((2, 11, 6, 5), (2, 11, 2, 5), (2, 11, 2, 5)))


@pytest.mark.parametrize("window", [2**30, 4])
@pytest.mark.parametrize("softcap", [None, 0.9])
def test_continuations(tiny_model, window, softcap):
    # Two rows with 7 and 4 real tokens of 7, three continuations of 3 queries beginning at index 2 of buffers of 5. A
    # window of 4 spans a padded context and its continuation: counted through the padding it would miss the context.
    config = tiny_model(attn_softcap=softcap, num_heads=6).config
    lengths = jnp.array([7, 4])
    operands = arrays((2, 3, 3, 6, 5), *[(2, 3, 5, 2, 5)] * 2, *[(2, 7, 2, 5)] * 2)

    def ours(q, k, v, context_k, context_v):
        k, v = (a.transpose(0, 3, 1, 2, 4) for a in (k, v))
        context_k, context_v = (jnp.swapaxes(a, 1, 2) for a in (context_k, context_v))
        return attend_continuations(q, k, v, context_k, context_v, lengths, jnp.int32(window), 2, config)

    def theirs(q, k, v, context_k, context_v):
        rows = []
        for b, n in enumerate((7, 4)):
            query = n + 2 + jnp.arange(3)[:, None]
            key = jnp.concatenate([jnp.arange(7), n + jnp.arange(5)])
            real = jnp.arange(12) < n
            real = real | (jnp.arange(12) >= 7)
            allowed = real & (key <= query) & (query - key < window)
            for g in range(3):
                keys, values = (
                    jnp.repeat(jnp.concatenate([c[b], o[b, g]]), 3, axis=1) for c, o in ((context_k, k), (context_v, v))
                )
                rows.append(textbook(q[b, g], keys, values, allowed, config))
        return jnp.stack(rows).reshape(q.shape)

    assert_same(ours, theirs, operands)


def test_long_contexts_have_a_bounded_number_of_blocks():
    # Every position once, in order, whatever the length.
    for s in (1, 127, 128, 129, 1600, 40_000):
        parts = attention._blocks(s, 128)
        assert len(parts) <= 16
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(s))


def test_scores_and_softmax_are_float32_under_bfloat16(tiny_model):
    # Scores of 64 and 64.125, which are one number in bfloat16 (steps of 0.5 there): weights are 0.47 and 0.53.
    config = tiny_model(num_heads=1, num_kv_heads=1, head_dim=2, attn_scale=1.0, dtype="bfloat16").config
    q, keys, values = (jnp.array(x, jnp.bfloat16) for x in ([64, 0.125], [[1, 0], [1, 1]], [[0, 0], [1, 1]]))
    anywhere, one = jnp.int32(2**30), jnp.array([1], jnp.int32)
    k, v = keys[None, None], values[None, None]  # [b, k, s, h]
    causal = attend_causal(jnp.stack([q, q])[None, :, None], k, v, anywhere, config)[0, 1, 0]
    # The first key is the context's, the second the continuation's own.
    parts = k[:, :, None, 1:], v[:, :, None, 1:], k[:, :, :1], v[:, :, :1]
    own = attend_continuations(q[None, None, None, None], *parts, one, anywhere, 0, config)[0, 0, 0, 0]
    turned = jnp.swapaxes(parts[0], -1, -2), parts[1], jnp.swapaxes(parts[2], -1, -2), parts[3]
    step = attend_step(q[None, None, None], *turned, one, anywhere, jnp.int32(0), config)[0, 0, 0]
    for found in (causal, own, step):
        assert found.dtype == jnp.bfloat16
        assert found.tolist() == [0.53125, 0.53125]
