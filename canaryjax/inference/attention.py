"""How queries meet keys when many continuations share one context; forward and backward are written out.

Contexts are left-aligned and right-padded; continuation t of a row of length n stands at position n + t. Keys and
values of a continuation live in their own buffer, indexed by t, so nothing is scattered into the padded context.

Heads come before tokens, and the m query heads of one key head beside the tokens, so that every product is a plain
batched matmul and scores, the largest arrays of a step, are never transposed (on a CPU that costs more than the
product). The backward pass computes scores again from the saved log-sum-exp (Dao et al. 2022) instead of keeping them.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from canaryjax.models.config import ModelConfig
from canaryjax.models.transformer import KEPT

MASKED = -1e30  # finite, so that a row of padding stays free of NaN
QUERY_BLOCK = 128  # context queries a block: scores above the diagonal are skipped, not computed and masked
HEAD_BYTES = 2**21  # scores of a block and key head from which one head at a time is faster on two CPU cores of 2 MiB
MOST_BLOCKS = 16  # blocks are unrolled; beyond, a longer program would save little


def _dot(subscripts: str, *operands: jax.Array) -> jax.Array:
    """Einsum in float32 out of the operands' dtype."""
    return jnp.einsum(subscripts, *operands, preferred_element_type=jnp.float32)


def _row_sums(x: jax.Array, y: jax.Array) -> jax.Array:
    """Sums of `x * y` over the last axis in float32; as a product, since a CPU takes ten times as long for the sum."""
    x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    return jnp.einsum("...h,...h->...", x, y, precision=jax.lax.Precision.HIGHEST)


def _over_keys(rows: jax.Array, scores: jax.Array, subscripts: str) -> jax.Array:
    """Sum over query rows, keys last: the other order would have the product transpose its large operand."""
    return _dot(subscripts, rows, scores.astype(rows.dtype))


def _turned(of_keys: jax.Array, dtype) -> jax.Array:
    """`[..., h, s]` -> `[..., s, h]`; the barrier keeps the compiler from folding the turn into the product before."""
    return jnp.swapaxes(jax.lax.optimization_barrier(of_keys), -1, -2).astype(dtype)


def _scores(products: jax.Array, allowed: jax.Array, config: ModelConfig) -> jax.Array:
    """Scaled, capped and masked; the scale is applied here, in float32, not to queries that may be bfloat16."""
    scores, cap = products * config.attn_scale, config.attn_softcap
    return jnp.where(allowed, scores if cap is None else cap * jnp.tanh(scores / cap), MASKED)


def _slope(weights: jax.Array, of_weights: jax.Array, mean: jax.Array, scores: jax.Array, config: ModelConfig):
    """Cotangent of products of queries and keys; `mean` is sum(weights * of_weights) of each row."""
    slope = weights * (of_weights - mean[..., None]) * config.attn_scale
    if config.attn_softcap is not None:
        capped = jnp.where(weights > 0, scores / config.attn_softcap, 0.0)  # masked ones are far beyond the cap
        slope = slope * (1.0 - capped**2)
    return slope


def _heads_first(x: jax.Array, num_kv_heads: int) -> jax.Array:
    """`[..., u, n, h]` -> `[..., u, k, m, h]` with u moved behind the heads: `[..., k, m, u, h]`."""
    x = x.reshape(*x.shape[:-2], num_kv_heads, -1, x.shape[-1])
    return jnp.moveaxis(x, -4, -2)


def attend_causal(q: jax.Array, k: jax.Array, v: jax.Array, window: jax.Array, config: ModelConfig) -> jax.Array:
    """Causal, windowed attention of a right-padded context over itself.

    Padding needs no mask: it stands after every real token, so no real query reaches it.

    Args:
      q: `[b, s, n, h]`, rotated.
      k: `[b, k, s, h]`, rotated.
      v: `[b, k, s, h]`.
      window: int32 scalar; position i attends to j with 0 <= i - j < window.
      config: The model's configuration.

    Returns:
      `[b, s, n, h]`.
    """
    mixed = _causal(checkpoint_name(_heads_first(q, config.num_kv_heads), KEPT), k, v, window, config, QUERY_BLOCK)
    return jnp.moveaxis(mixed, -2, -4).reshape(q.shape)


def _blocks(s: int, block: int) -> list[slice]:
    count = min(math.ceil(s / block), MOST_BLOCKS)
    size = math.ceil(s / count)
    return [slice(start, min(start + size, s)) for start in range(0, s, size)]


def _head_by_head(attend, block, q, *rest):
    """`attend` of arrays `[b, k, ...]` and as many back; on a CPU one key head at a time where its scores are large.

    More of them is then still in the cores' caches when the next operation reads it; of small ones a head alone would
    leave cores idle. On several devices these axes may be split, and a loop over them would gather everything on each.
    Under a map over policies it is one head of every policy.
    """
    b, k, m, s, _ = q.shape
    small = 4 * m * _blocks(s, block)[0].stop * s < HEAD_BYTES
    if small or jax.default_backend() != "cpu" or jax.device_count() > 1:
        return attend(q, *rest)
    heads = [a.reshape(b * k, 1, 1, *a.shape[2:]) for a in (q, *rest)]
    done = jax.lax.map(lambda one: attend(*one), heads)
    return jax.tree.map(lambda a: a.reshape(b, k, *a.shape[3:]), done)


def _causal_scores(q, k, window, config, part):
    """Scores of one block of queries with the keys up to its end."""
    products = _dot("bkmqh,bksh->bkmqs", q[..., part, :], k[:, :, : part.stop])
    i, j = jnp.arange(part.start, part.stop)[:, None], jnp.arange(part.stop)[None, :]
    return _scores(products, (j <= i) & (i - j < window), config)


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _causal(q, k, v, window, config, block):
    return _causal_forward(q, k, v, window, config, block)[0]


def _causal_forward(q, k, v, window, config, block):
    parts = _blocks(q.shape[3], block)

    def attend(q, k, v):
        mixed, norms = [], []
        for part in parts:
            scores = _causal_scores(q, k, window, config, part)
            top = scores.max(axis=-1, keepdims=True)
            weights = jnp.exp(scores - top)
            total = weights.sum(axis=-1, keepdims=True)
            mixed.append(_dot("bkmqs,bksh->bkmqh", weights.astype(v.dtype), v[:, :, : part.stop]) / total)
            norms.append((top + jnp.log(total))[..., 0])
        return jnp.concatenate(mixed, axis=-2).astype(q.dtype), jnp.concatenate(norms, axis=-1)

    mixed, norm = checkpoint_name(_head_by_head(attend, block, q, k, v), KEPT)
    return mixed, (q, k, v, window, mixed, norm)


def _causal_backward(config, block, kept, of_mixed):
    q, k, v, window, mixed, norm = kept
    mean = _row_sums(of_mixed, mixed)
    parts: list[jax.Array] = []
    of_k = of_v = jnp.zeros((), jnp.float32)
    for part in _blocks(q.shape[3], block):
        scores = _causal_scores(q, k, window, config, part)
        weights = jnp.exp(scores - norm[..., part, None])
        out = of_mixed[..., part, :]
        of_weights = _dot("bkmqh,bksh->bkmqs", out, v[:, :, : part.stop])
        slope = _slope(weights, of_weights, mean[..., part], scores, config)
        parts.append(_dot("bkmqs,bksh->bkmqh", slope.astype(k.dtype), k[:, :, : part.stop]))
        rest = ((0, 0), (0, 0), (0, 0), (0, q.shape[3] - part.stop))
        of_k = of_k + jnp.pad(_over_keys(q[..., part, :], slope, "bkmqh,bkmqs->bkhs"), rest)
        of_v = of_v + jnp.pad(_over_keys(out, weights, "bkmqh,bkmqs->bkhs"), rest)
    of_q = jnp.concatenate(parts, axis=-2).astype(q.dtype)
    return of_q, _turned(of_k, k.dtype), _turned(of_v, v.dtype), None


_causal.defvjp(_causal_forward, _causal_backward)


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
      k: `[b, k, g, s, h]`, keys of the continuations' own buffers, index 0 on; those after a query are masked.
      v: `[b, k, g, s, h]`.
      context_k: `[b, k, c, h]`, shared by the row's continuations.
      context_v: `[b, k, c, h]`.
      lengths: int32 `[b]`, real tokens in each context.
      window: int32 scalar, as in `attend_causal`.
      first: Continuation index of the first query.
      config: The model's configuration.

    Returns:
      `[b, g, t, n, h]`.
    """
    b, g, t, n, h = q.shape
    kv = config.num_kv_heads
    rows = checkpoint_name(q.reshape(b, g, t, kv, n // kv, h).transpose(0, 3, 1, 4, 2, 5), KEPT)
    mixed = _joint(rows, k, v, context_k, context_v, lengths, window, jnp.asarray(first), config)
    return mixed.transpose(0, 2, 4, 1, 3, 5).reshape(q.shape)


def attend_step(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    context_k: jax.Array,
    context_v: jax.Array,
    lengths: jax.Array,
    window: jax.Array,
    step: jax.Array,
    config: ModelConfig,
) -> jax.Array:
    """`attend_continuations` for one query a continuation, forward only, with keys turned beforehand.

    Args:
      q: `[b, g, n, h]`, the queries at continuation index `step`.
      k: `[b, k, g, h, t]`, keys of the continuations' own buffers; axes of length 1 before h may be left out.
      v: `[b, k, g, t, h]`, likewise.
      context_k: `[b, k, h, c]`.
      context_v: `[b, k, c, h]`.
      lengths, window, config: As in `attend_continuations`.
      step: int32 scalar.

    Returns:
      `[b, g, n, h]`.
    """
    b, g, n, h = q.shape
    kv = config.num_kv_heads
    rows = jnp.swapaxes(q.reshape(b, g, kv, n // kv, h), 1, 2)
    flat = b, kv, g * n // kv, -1
    j, length = jnp.arange(context_k.shape[-1]), lengths[:, None, None, None, None]
    shared = _dot("bkrh,bkhc->bkrc", rows.reshape(flat), context_k).reshape(*rows.shape[:4], -1)
    shared = _scores(shared, (j < length) & (length + step - j < window), config)
    j = jnp.arange(k.shape[-1])
    products = _dot("...mh,...ht->...mt", rows.reshape(*k.shape[:-2], *rows.shape[3:]), k).reshape(*rows.shape[:4], -1)
    own = _scores(products, (j <= step) & (step - j < window), config)
    top = jnp.maximum(shared.max(axis=-1, keepdims=True), own.max(axis=-1, keepdims=True))
    shared, own = jnp.exp(shared - top), jnp.exp(own - top)
    total = shared.sum(axis=-1, keepdims=True) + own.sum(axis=-1, keepdims=True)
    mixed = _dot("bkrc,bkch->bkrh", shared.astype(v.dtype).reshape(flat), context_v).reshape(rows.shape)
    of_own = _dot("...mt,...th->...mh", own.astype(v.dtype).reshape(*v.shape[:-2], *own.shape[3:]), v)
    mixed = (mixed + of_own.reshape(rows.shape)) / total
    return jnp.swapaxes(mixed.astype(q.dtype), 1, 2).reshape(q.shape)


def _flat(x):
    """`[b, k, g, m, t, ...]` -> `[b, k, g * m * t, ...]`: all continuations meet the shared keys in one matmul."""
    return x.reshape(*x.shape[:2], -1, *x.shape[5:])


def _joint_scores(q, k, context_k, lengths, window, first, config):
    """Scores with the context, `[b, k, g, m, t, c]`, and with own tokens, `[b, k, g, m, t, s]`."""
    i = first + jnp.arange(q.shape[4])[:, None]
    j = jnp.arange(k.shape[3])
    own = _dot("bkgmth,bkgsh->bkgmts", q, k)
    own_allowed = (j <= i) & (i - j < window)
    length = lengths[:, None, None, None, None, None]
    j = jnp.arange(context_k.shape[2])
    shared = _dot("bkrh,bkch->bkrc", _flat(q), context_k).reshape(*q.shape[:5], -1)
    shared_allowed = (j < length) & (length + i - j < window)
    return _scores(shared, shared_allowed, config), _scores(own, own_allowed, config)


@partial(jax.custom_vjp, nondiff_argnums=(8,))
def _joint(q, k, v, context_k, context_v, lengths, window, first, config):
    return _joint_forward(q, k, v, context_k, context_v, lengths, window, first, config)[0]


def _joint_forward(q, k, v, context_k, context_v, lengths, window, first, config):
    shared, own = _joint_scores(q, k, context_k, lengths, window, first, config)
    top = jnp.maximum(shared.max(axis=-1, keepdims=True), own.max(axis=-1, keepdims=True))
    shared, own = jnp.exp(shared - top), jnp.exp(own - top)
    total = shared.sum(axis=-1, keepdims=True) + own.sum(axis=-1, keepdims=True)
    mixed = _dot("bkrc,bkch->bkrh", _flat(shared).astype(v.dtype), context_v).reshape(q.shape)
    mixed = mixed + _dot("bkgmts,bkgsh->bkgmth", own.astype(v.dtype), v)
    mixed = checkpoint_name((mixed / total).astype(q.dtype), KEPT)
    norm = checkpoint_name((top + jnp.log(total))[..., 0], KEPT)
    return mixed, (q, k, v, context_k, context_v, lengths, window, first, mixed, norm)


def _joint_backward(config, kept, of_mixed):
    q, k, v, context_k, context_v, lengths, window, first, mixed, norm = kept
    scores = _joint_scores(q, k, context_k, lengths, window, first, config)
    shared, own = (jnp.exp(part - norm[..., None]) for part in scores)
    mean = _row_sums(of_mixed, mixed)
    out = _flat(of_mixed)
    of_context_v = _over_keys(out, _flat(shared), "bkrh,bkrc->bkhc")
    of_v = _over_keys(of_mixed, own, "bkgmth,bkgmts->bkghs")
    of_shared = _dot("bkrh,bkch->bkrc", out, context_v).reshape(shared.shape)
    shared = _slope(shared, of_shared, mean, scores[0], config)
    own = _slope(own, _dot("bkgmth,bkgsh->bkgmts", of_mixed, v), mean, scores[1], config)
    of_q = _dot("bkrc,bkch->bkrh", _flat(shared).astype(k.dtype), context_k).reshape(q.shape)
    of_q = of_q + _dot("bkgmts,bkgsh->bkgmth", own.astype(k.dtype), k)
    of_context_k = _over_keys(_flat(q), _flat(shared), "bkrh,bkrc->bkhc")
    of_k = _over_keys(q, own, "bkgmth,bkgmts->bkghs")
    turned = (_turned(x, k.dtype) for x in (of_k, of_v, of_context_k, of_context_v))
    return of_q.astype(q.dtype), *turned, None, None, None


_joint.defvjp(_joint_forward, _joint_backward)
