"""Log-probs of given tokens: the head runs on the positions asked for, in vocabulary chunks, and is run again backward.

Logits `[rows, vocabulary]` never exist beyond one chunk, forward or backward, so memory does not grow with the
vocabulary. Everything from the logits on is float32.
"""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.errors import UserError
from canaryjax.inference.forward import forward_shared
from canaryjax.models.lora import Adapter
from canaryjax.models.sharding import vocabulary_shards
from canaryjax.models.transformer import Transformer

CHUNK_FLOATS = 2**22  # logits of one chunk, all rows together: 16 MiB, about what a core's cache and a scan step want
MIN_CHUNK = 256  # narrower products waste the matrix unit; from 2**14 rows on the hidden states outweigh the chunk
EXCLUDED = -1e30  # finite, so that exp gives 0 and nothing gives NaN


@struct.dataclass
class TokenStatistics:
    """What the head says about given tokens.

    Attributes:
      logps: float32 `[...]`, nats; 0 where masked.
      entropy: float32 `[...]`, nats, of the same law; 0 where masked.
    """

    logps: jax.Array
    entropy: jax.Array


@dataclasses.dataclass(frozen=True)
class _Law:
    """How states become a distribution; static.

    Attributes:
      softcap: `cap * tanh(x / cap)` on logits, or None.
      temperature: Divides the capped logits.
      rows: Vocabulary entries from here on are left out of the normaliser.
      chunk: Vocabulary entries a pass, of each shard.
      shards: Equal parts of the vocabulary that may lie on different devices; each device goes through its own.
    """

    softcap: float | None
    temperature: float
    rows: int
    chunk: int
    shards: int


def head_matrix(model: Transformer) -> jax.Array:
    """The output table `[v, d]`: the embedding where tied."""
    return (model.embedding if model.head is None else model.head)[...]


def head_logits(model: Transformer, hidden: jax.Array) -> jax.Array:
    """The model's own logits, capped, float32: `[..., d]` -> `[..., v]`. For few positions; scoring never needs it."""
    return _capped(_product(hidden, head_matrix(model)), model.config.final_softcap)


def token_logps(
    model: Transformer,
    hidden: jax.Array,
    target_ids: jax.Array,
    mask: jax.Array,
    *,
    temperature: float | None = None,
    chunk: int | None = None,
) -> jax.Array:
    """Log-prob of each target token under the state that predicts it.

    Two laws. The raw model law (`temperature=None`) is what an audit scores by: temperature 1, padded vocabulary rows
    in the normaliser, as in Hugging Face. The sampler's law (a number) is what training compares: logits divided by the
    temperature, padded rows out (as a target, such a row gets -1e30).

    Args:
      model: The base; gradients reach its head only when it is differentiated.
      hidden: `[..., d]`, after the final norm; see `SharedHidden.predictors`.
      target_ids: int `[...]`; what stands where the mask is False is never read (-100 is safe).
      mask: bool `[...]`.
      temperature: None, or above 0.
      chunk: Vocabulary entries a pass; None chooses by the number of rows.

    Returns:
      float32 `[...]`, nats, at most 0; 0 where masked.
    """
    return _statistics(model, hidden, target_ids, mask, temperature, chunk, entropy=False)[0]


def token_statistics(
    model: Transformer,
    hidden: jax.Array,
    target_ids: jax.Array,
    mask: jax.Array,
    *,
    temperature: float | None = None,
    chunk: int | None = None,
) -> TokenStatistics:
    """As `token_logps`, with the entropy of each distribution; both are differentiable."""
    logps, entropy = _statistics(model, hidden, target_ids, mask, temperature, chunk, entropy=True)
    return TokenStatistics(logps=logps, entropy=entropy)


def score_shared(
    model: Transformer,
    adapter: Adapter | None,
    context_ids_bs: jax.Array,
    context_mask_bs: jax.Array,
    continuation_ids_bgt: jax.Array,
    continuation_mask_bgt: jax.Array,
    *,
    temperature: float | None = None,
    remat: bool = False,
) -> jax.Array:
    """Log-probs of continuations that share their contexts: pure, to be jitted and mapped over adapters.

    Args:
      model: The base.
      adapter: One policy's adapter, or None for the base itself.
      context_ids_bs, context_mask_bs: As in `forward_shared`.
      continuation_ids_bgt, continuation_mask_bgt: int32 and bool `[b, g, t]`, right-padded.
      temperature: As in `token_logps`.
      remat: As in `forward_shared`.

    Returns:
      float32 `[b, g, t]`, nats; 0 where masked.
    """
    ids = jnp.where(continuation_mask_bgt, continuation_ids_bgt, 0)
    states = forward_shared(model, adapter, context_ids_bs, context_mask_bs, ids, remat=remat)
    return token_logps(model, states.predictors(), ids, continuation_mask_bgt, temperature=temperature)


def _statistics(model, hidden, target_ids, mask, temperature, chunk, entropy):
    law = _law(model, temperature, chunk, rows=math.prod(target_ids.shape))
    ids = jnp.where(mask, target_ids, 0).reshape(-1)
    flat = hidden.reshape(-1, hidden.shape[-1])
    logps, spread = _reduce(flat, head_matrix(model), ids, law, entropy)
    logps = jnp.where(mask, logps.reshape(mask.shape), 0.0)
    return logps, jnp.where(mask, spread.reshape(mask.shape), 0.0) if entropy else None


def _law(model: Transformer, temperature: float | None, chunk: int | None, rows: int) -> _Law:
    config, shards = model.config, vocabulary_shards(model)
    if temperature is not None and not temperature > 0:
        raise UserError(
            f"expected a temperature above 0, found {temperature}: greedy choices have no log-prob; score them at 1"
        )
    if chunk is None:
        chunk = max(MIN_CHUNK, CHUNK_FLOATS // max(rows, 1))
    limit = config.vocab_size if temperature is None else config.real_vocab_size
    chunk = min(chunk, config.vocab_size // shards)
    return _Law(config.final_softcap, 1.0 if temperature is None else temperature, limit, chunk, shards)


def _capped(logits, cap):
    return logits if cap is None else cap * jnp.tanh(logits / cap)


def _product(hidden, table):
    """`hidden @ table.T` in float32: products of bfloat16 numbers are exact there, so nothing is rounded on the way."""
    if hidden.dtype != table.dtype:
        hidden, table = hidden.astype(jnp.float32), table.astype(jnp.float32)
    return jax.lax.dot_general(
        hidden, table, (((1,), (1,)), ((), ())) if hidden.ndim == 2 else (((hidden.ndim - 1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32,
    )  # fmt: skip


def _chunk(hidden, head, ids, start, law):
    """One chunk: its first entry, its rows of the head, capped and final logits, and where each row's target is."""
    size = head.shape[0] // law.shards
    first = jnp.minimum(start, size - law.chunk)  # the last chunk is moved back so that all have one size
    # Of each shard at once: a chunk of the whole table would have to be sent to all devices that hold none of it.
    table = jax.lax.dynamic_slice_in_dim(_by_shard(head, law), first, law.chunk, axis=1).reshape(-1, head.shape[1])
    within = jnp.tile(first + jnp.arange(law.chunk), law.shards)
    entry = within + jnp.repeat(jnp.arange(law.shards) * size, law.chunk)
    new = within >= start
    raw = _capped(_product(hidden, table), law.softcap)
    logits = jnp.where(new & (entry < law.rows), raw / law.temperature, EXCLUDED)
    return first, table, raw, logits, (entry == ids[:, None]) & new


def _by_shard(table, law):
    """`[v, d]` -> `[shards, v / shards, d]`."""
    return table.reshape(law.shards, -1, table.shape[1])


def _over_chunks(step, carry, law, vocabulary):
    """Runs `step(carry, start)` over all chunks of the shards; a single one needs no loop."""
    size = vocabulary // law.shards
    if law.chunk == size:
        return step(carry, jnp.int32(0))
    starts = jnp.arange(0, size, law.chunk, dtype=jnp.int32)
    return jax.lax.scan(lambda c, start: (step(c, start), None), carry, starts)[0]


def _online(hidden, head, ids, law, entropy):
    """Row maximum, sum of exponentials, target logit and mean logit, gathered chunk by chunk."""
    rows = hidden.shape[0]

    def step(carry, start):
        top, total, target, weighted = carry
        *_, logits, hit = _chunk(hidden, head, ids, start, law)
        new_top = jnp.maximum(top, logits.max(axis=-1))
        shrink, weights = jnp.exp(top - new_top), jnp.exp(logits - new_top[:, None])
        target = target + jnp.where(hit, logits, 0.0).sum(axis=-1)
        if entropy:
            weighted = weighted * shrink + (weights * logits).sum(axis=-1)
        return new_top, total * shrink + weights.sum(axis=-1), target, weighted

    zero = jnp.zeros(rows, jnp.float32)
    top, total, target, weighted = _over_chunks(step, (jnp.full(rows, EXCLUDED), zero, zero, zero), law, head.shape[0])
    return top, jnp.log(total), target, weighted / total


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _reduce(hidden, head, ids, law, entropy):
    """(log-prob of ids, entropy), each `[rows]`; the target's logit is at most the top, so a log-prob is at most 0."""
    top, log_total, target, mean = _online(hidden, head, ids, law, entropy)
    return (target - top) - log_total, (top + log_total) - mean


def _reduce_forward(hidden, head, ids, law, entropy):
    hidden, wants_head, head, ids = hidden.value, head.perturbed, head.value, ids.value
    top, log_total, target, mean = _online(hidden, head, ids, law, entropy)
    out = (target - top) - log_total, (top + log_total) - mean
    return out, (hidden, head, ids, top + log_total, mean, () if wants_head else None)


def _reduce_backward(law, entropy, kept, cotangents):
    hidden, head, ids, log_norm, mean, wants_head = kept
    of_logps, of_entropy = (None if isinstance(c, jax.custom_derivatives.SymbolicZero) else c for c in cotangents)

    def step(carry, start):
        to_hidden, to_head = carry
        first, table, raw, logits, hit = _chunk(hidden, head, ids, start, law)
        share = jnp.exp(logits - log_norm[:, None])  # exactly 0 where excluded
        slope = jnp.zeros_like(share) if of_logps is None else of_logps[:, None] * (hit - share)
        if entropy and of_entropy is not None:
            slope = slope - of_entropy[:, None] * share * (logits - mean[:, None])
        slope = slope / law.temperature
        if law.softcap is not None:
            slope = slope * (1.0 - (raw / law.softcap) ** 2)
        to_hidden = to_hidden + jnp.dot(slope, table.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)
        if to_head is not None:
            part = jnp.dot(slope.T, hidden.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)
            whole, part = _by_shard(to_head, law), part.reshape(law.shards, law.chunk, -1)
            part = part + jax.lax.dynamic_slice_in_dim(whole, first, law.chunk, axis=1)
            to_head = jax.lax.dynamic_update_slice_in_dim(whole, part, first, axis=1).reshape(head.shape)
        return to_hidden, to_head

    zero = jnp.zeros(hidden.shape, jnp.float32), None if wants_head is None else jnp.zeros(head.shape, jnp.float32)
    to_hidden, to_head = _over_chunks(step, zero, law, head.shape[0])
    return to_hidden.astype(hidden.dtype), None if to_head is None else to_head.astype(head.dtype), None


_reduce.defvjp(_reduce_forward, _reduce_backward, symbolic_zeros=True)
