"""Sums over a vocabulary that is gone through in chunks, and run again backward: what log-probs are made of.

An adapter's update of the head goes through the same chunks: of its second factor too, a chunk's columns are read.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

EXCLUDED = -1e30  # finite, so that exp gives 0 and nothing gives NaN


@dataclass(frozen=True)
class Law:
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


@struct.dataclass
class HeadUpdate:
    """What an adapter adds to the logits, `inner @ out`.

    Attributes:
      inner: float32 `[..., r]`, the scaled product of each state and the update's first factor.
      out: float32 `[r, v]`, its second factor.
    """

    inner: jax.Array
    out: jax.Array


def capped(logits: jax.Array, cap: float | None) -> jax.Array:
    """`cap * tanh(logits / cap)`, or the logits."""
    return logits if cap is None else cap * jnp.tanh(logits / cap)


def dot(x: jax.Array, y: jax.Array) -> jax.Array:
    """A float32 product that no accelerator rounds."""
    return jnp.dot(x.astype(jnp.float32), y.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)


def product(hidden: jax.Array, table: jax.Array) -> jax.Array:
    """`hidden [..., d] @ table [v, d].T` in float32.

    Products of bfloat16 numbers are exact there, so nothing is rounded on the way.
    """
    if hidden.dtype != table.dtype:
        hidden, table = hidden.astype(jnp.float32), table.astype(jnp.float32)
    return jax.lax.dot_general(
        hidden,
        table,
        (((hidden.ndim - 1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )


def _chunk(hidden, head, update, ids, start, law):
    """One chunk: its first entry, its rows of the head and its columns of the update's second factor, capped and final
    logits, and where each row's target is."""
    size = head.shape[0] // law.shards
    first = jnp.minimum(start, size - law.chunk)  # the last chunk is moved back so that all have one size
    table, out = _cut(head, first, law), None
    raw = product(table, hidden).T  # a CPU multiplies a large left operand nearly twice as fast as a large right one
    if update is not None:
        out = _cut(update.out, first, law, axis=1)
        raw = raw + dot(update.inner, out)
    within = jnp.tile(first + jnp.arange(law.chunk), law.shards)
    entry = within + jnp.repeat(jnp.arange(law.shards) * size, law.chunk)
    new = within >= start
    raw = capped(raw, law.softcap)
    logits = jnp.where(new & (entry < law.rows), raw / law.temperature, EXCLUDED)
    return first, (table, out), raw, logits, (entry == ids[:, None]) & new


def _by_shard(table, law, axis=0):
    """The vocabulary's axis as two, `[..., v, ...]` -> `[..., shards, v / shards, ...]`."""
    return table.reshape(*table.shape[:axis], law.shards, -1, *table.shape[axis + 1 :])


def _cut(table, first, law, axis=0):
    """A chunk's entries, those of each shard at once: a chunk of the whole table would have to be sent to all devices
    that hold none of it."""
    part = jax.lax.dynamic_slice_in_dim(_by_shard(table, law, axis), first, law.chunk, axis=axis + 1)
    return part.reshape(*table.shape[:axis], -1, *table.shape[axis + 1 :])


def _add_at(total, part, first, law, axis=0):
    """Adds a chunk's entries to where they belong; the inverse of `_cut`."""
    whole, part = _by_shard(total, law, axis), _by_shard(part, law, axis)
    part = part + jax.lax.dynamic_slice_in_dim(whole, first, law.chunk, axis=axis + 1)
    return jax.lax.dynamic_update_slice_in_dim(whole, part, first, axis=axis + 1).reshape(total.shape)


def _over_chunks(step, carry, law, vocabulary):
    """Runs `step(carry, start)` over all chunks of the shards; a single one needs no loop."""
    size = vocabulary // law.shards
    if law.chunk == size:
        return step(carry, jnp.int32(0))
    starts = jnp.arange(0, size, law.chunk, dtype=jnp.int32)
    return jax.lax.scan(lambda c, start: (step(c, start), None), carry, starts)[0]


def _online(hidden, head, update, ids, law, entropy):
    """Row maximum, sum of exponentials, target logit and mean logit, gathered chunk by chunk."""
    rows = hidden.shape[0]

    def step(carry, start):
        top, total, target, weighted = carry
        *_, logits, hit = _chunk(hidden, head, update, ids, start, law)
        new_top = jnp.maximum(top, logits.max(axis=-1))
        shrink, weights = jnp.exp(top - new_top), jnp.exp(logits - new_top[:, None])
        target = target + jnp.where(hit, logits, 0.0).sum(axis=-1)
        if entropy:
            weighted = weighted * shrink + (weights * logits).sum(axis=-1)
        return new_top, total * shrink + weights.sum(axis=-1), target, weighted

    zero = jnp.zeros(rows, jnp.float32)
    top, total, target, weighted = _over_chunks(step, (jnp.full(rows, EXCLUDED), zero, zero, zero), law, head.shape[0])
    return top, jnp.log(total), target, weighted / total


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def reduce_head(
    hidden: jax.Array, head: jax.Array, update: HeadUpdate | None, ids: jax.Array, law: Law, entropy: bool
) -> tuple[jax.Array, jax.Array]:
    """Log-prob of given ids and entropy of each state's law, in memory of one chunk.

    Args:
      hidden: `[rows, d]`, after the final norm.
      head: `[v, d]`.
      update: An adapter's part of the logits, or None.
      ids: int32 `[rows]`, in range.
      law: Static.
      entropy: Static; False leaves the second result without meaning.

    Returns:
      float32 `[rows]` each, nats; the target's logit is at most the top, so a log-prob is at most 0.
    """
    top, log_total, target, mean = _online(hidden, head, update, ids, law, entropy)
    return (target - top) - log_total, (top + log_total) - mean


def _reduce_forward(hidden, head, update, ids, law, entropy):
    # Which of the two large gradients somebody asks for; as empty trees, since what is kept must be arrays.
    wants_head = () if head.perturbed else None
    wants_out = () if update is not None and update.out.perturbed else None
    hidden, head, update, ids = jax.tree.map(lambda x: x.value, (hidden, head, update, ids))
    top, log_total, target, mean = _online(hidden, head, update, ids, law, entropy)
    out = (target - top) - log_total, (top + log_total) - mean
    return out, (hidden, head, update, ids, top + log_total, mean, wants_head, wants_out)


def _reduce_backward(law, entropy, kept, cotangents):
    hidden, head, update, ids, log_norm, mean, wants_head, wants_out = kept
    of_logps, of_entropy = (None if isinstance(c, jax.custom_derivatives.SymbolicZero) else c for c in cotangents)

    def slope_of(raw, logits, hit):
        share = jnp.exp(logits - log_norm[:, None])  # exactly 0 where excluded
        slope = jnp.zeros_like(share) if of_logps is None else of_logps[:, None] * (hit - share)
        if entropy and of_entropy is not None:
            slope = slope - of_entropy[:, None] * share * (logits - mean[:, None])
        slope = slope / law.temperature
        return slope if law.softcap is None else slope * (1.0 - (raw / law.softcap) ** 2)

    def step(carry, start):
        to_hidden, to_head, to_inner, to_out = carry
        first, (table, out), *rest = _chunk(hidden, head, update, ids, start, law)
        slope = slope_of(*rest)
        to_hidden = to_hidden + dot(slope, table)
        if to_head is not None:
            to_head = _add_at(to_head, dot(slope.T, hidden), first, law)
        if to_inner is not None:
            to_inner = to_inner + dot(slope, out.T)
        if to_out is not None:
            to_out = _add_at(to_out, dot(update.inner.T, slope), first, law, axis=1)
        return to_hidden, to_head, to_inner, to_out

    zero = (
        jnp.zeros(hidden.shape, jnp.float32),
        None if wants_head is None else jnp.zeros(head.shape, jnp.float32),
        None if update is None else jnp.zeros_like(update.inner),
        None if wants_out is None else jnp.zeros_like(update.out),
    )
    to_hidden, to_head, to_inner, to_out = _over_chunks(step, zero, law, head.shape[0])
    return (
        to_hidden.astype(hidden.dtype),
        None if to_head is None else to_head.astype(head.dtype),
        None if update is None else HeadUpdate(inner=to_inner, out=to_out),
        None,
    )


reduce_head.defvjp(_reduce_forward, _reduce_backward, symbolic_zeros=True)
