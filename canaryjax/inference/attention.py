"""How queries meet keys when many continuations share one context.

Contexts are left-aligned and right-padded; continuation t of a row of length n stands at position n + t. Keys and
values of a continuation live in their own buffer, indexed by t, so nothing is scattered into the padded context.
"""

import math

import jax
import jax.numpy as jnp

from canaryjax.models.config import ModelConfig

MASKED = -1e30  # finite, so that a row of padding stays free of NaN
QUERY_BLOCK = 128  # context queries a block: scores above the diagonal are skipped, not computed and masked


def _softcap(scores: jax.Array, cap: float | None) -> jax.Array:
    return scores if cap is None else cap * jnp.tanh(scores / cap)


def _scores(q: jax.Array, k: jax.Array, config: ModelConfig) -> jax.Array:
    """q `[b, q, k, m, h]`, k `[b, s, k, h]` -> float32 `[b, k, m, q, s]`; m query heads share each key head."""
    raw = jnp.einsum("bqkmh,bskh->bkmqs", q, k, preferred_element_type=jnp.float32)
    return _softcap(raw * config.attn_scale, config.attn_softcap)


def _mix(weights: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.einsum("bkmqs,bskh->bqkmh", weights.astype(v.dtype), v)


def _split_heads(q: jax.Array, config: ModelConfig) -> jax.Array:
    b, u, n, h = q.shape
    return q.reshape(b, u, config.num_kv_heads, n // config.num_kv_heads, h)


def attend_causal(q: jax.Array, k: jax.Array, v: jax.Array, window: jax.Array, config: ModelConfig) -> jax.Array:
    """Causal, windowed attention of a right-padded context over itself.

    Padding needs no mask: it stands after every real token, so no real query reaches it.

    Args:
      q: `[b, s, n, h]`, rotated.
      k: `[b, s, k, h]`, rotated.
      v: `[b, s, k, h]`.
      window: int32 scalar; position i attends to j with 0 <= i - j < window.
      config: The model's configuration.

    Returns:
      `[b, s, n, h]`.
    """
    s = q.shape[1]
    q = _split_heads(q, config)

    @jax.checkpoint  # scores are cheaper to compute again than to keep: s * s floats a head
    def one_block(q_block, k_seen, v_seen, offset):
        i = offset + jnp.arange(q_block.shape[1])[:, None]
        j = jnp.arange(k_seen.shape[1])[None, :]
        allowed = (j <= i) & (i - j < window)
        scores = jnp.where(allowed, _scores(q_block, k_seen, config), MASKED)
        return _mix(jax.nn.softmax(scores, axis=-1), v_seen)

    blocks = math.ceil(s / QUERY_BLOCK)
    size = math.ceil(s / blocks)
    parts = [
        one_block(q[:, start : start + size], k[:, : start + size], v[:, : start + size], start)
        for start in range(0, s, size)
    ]
    return jnp.concatenate(parts, axis=1).reshape(*q.shape[:2], -1, q.shape[-1])


def attend_continuations(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    context_k: jax.Array,
    context_v: jax.Array,
    lengths: jax.Array,
    window: jax.Array,
    first: jax.Array | int,
    config: ModelConfig,
) -> jax.Array:
    """Continuation queries over the shared context and their own earlier tokens, in one softmax.

    Args:
      q: `[b, g, t, n, h]`, the queries at continuation indices first .. first + t - 1.
      k: `[b, g, s, k, h]`, keys of the continuation's own buffer, index 0 on; those after a query are masked.
      v: `[b, g, s, k, h]`.
      context_k: `[b, c, k, h]`, shared by the row's continuations.
      context_v: `[b, c, k, h]`.
      lengths: int32 `[b]`, real tokens in each context.
      window: int32 scalar, as in `attend_causal`.
      first: Continuation index of the first query; a scalar, or int32 `[b, g]` where rows stand at different indices.
      config: The model's configuration.

    Returns:
      `[b, g, t, n, h]`.
    """
    b, g, t, n, h = q.shape
    c, s = context_k.shape[1], k.shape[2]
    i = jnp.arange(t) + jnp.broadcast_to(jnp.asarray(first), (b, g))[..., None]  # [b, g, t]
    # All continuations of a row meet the shared keys in one matmul.
    shared = _scores(_split_heads(q.reshape(b, g * t, n, h), config), context_k, config)  # [b, k, m, g*t, c]
    position = (lengths[:, None, None] + i).reshape(b, g * t, 1)
    j = jnp.arange(c)
    allowed = (j < lengths[:, None, None]) & (position - j < window)
    shared = jnp.where(allowed[:, None, None], shared, MASKED)
    own = _scores(_split_heads(q.reshape(b * g, t, n, h), config), k.reshape(b * g, s, -1, h), config)
    j = jnp.arange(s)
    allowed = (j <= i[..., None]) & (i[..., None] - j < window)
    own = jnp.where(allowed.reshape(b * g, 1, 1, t, s), own, MASKED)  # [b*g, k, m, t, s]
    kv, m = own.shape[1:3]
    shared = shared.reshape(b, kv, m, g, t, c).transpose(0, 3, 1, 2, 4, 5).reshape(b * g, kv, m, t, c)
    weights = jax.nn.softmax(jnp.concatenate([shared, own], axis=-1), axis=-1)
    mixed_own = _mix(weights[..., c:], v.reshape(b * g, s, kv, h)).reshape(b, g, t, n, h)
    shared = weights[..., :c].reshape(b, g, kv, m, t, c).transpose(0, 2, 3, 1, 4, 5).reshape(b, kv, m, g * t, c)
    return mixed_own + _mix(shared, context_v).reshape(b, g, t, n, h)
