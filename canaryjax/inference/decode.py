"""Running a context once and then one token at a time: keys and values of each part live in their own buffers.

Models of few layers are unrolled: weights and caches are cut by layer once, before the loop, where a scan would cut a
copy of every layer's out of the stack at each step (measured: half of a step). Deep ones are scanned, since a program
of all their layers would compile for minutes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.inference.attention import attend_step
from canaryjax.inference.forward import adapter_parts, heads_first, run_context
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import (
    Transformer,
    apply_block,
    embed,
    layer_settings,
    rms_norm,
    rope_tables,
)

MOST_UNROLLED = 12


@struct.dataclass
class Context:
    """What every step of one policy reads and none writes; by layer or stacked over layers (see `by_layer`).

    Attributes:
      pairs: The adapter's pairs.
      k: Keys of the contexts, shared by all their continuations, `[b, k, h, s]` a layer.
      v: Values, `[b, k, s, h]` a layer.
      lengths: int32 `[b]`, real tokens.
      scale: The adapter's scale, static.
    """

    pairs: Any
    k: Any
    v: Any
    lengths: jax.Array
    scale: float = struct.field(pytree_node=False)


@struct.dataclass
class OwnCache:
    """Keys and values of continuations, indexed by the continuation's own token; by layer or stacked.

    Attributes:
      k: `[b, k, g, h, t]` a layer, without such of b, k and g as are 1: XLA takes them out of products, and would copy
        the buffer at every step to have it both ways.
      v: `[b, k, g, t, h]` a layer, likewise.
    """

    k: Any
    v: Any


@jax.custom_batching.custom_vmap
def write_at(buffer: jax.Array, new: jax.Array, *starts: jax.Array | int) -> jax.Array:
    """`buffer` with `new` written at `starts`, which index the trailing axes; in place inside a loop, under vmap too.

    JAX maps `dynamic_update_slice` to a scatter, which XLA expands to a write and a choice between old and new buffer:
    a copy of both at every step. Here the mapped write is the same write with one more axis in front.
    """
    return jax.lax.dynamic_update_slice(buffer, new, (0,) * (buffer.ndim - len(starts)) + starts)


@write_at.def_vmap
def _write_at_mapped(axis_size, in_batched, buffer, new, *starts):
    assert not any(in_batched[2:]), "all policies stand at the same step"
    buffer, new = (
        a if mapped else jnp.broadcast_to(a, (axis_size, *a.shape))
        for a, mapped in zip((buffer, new), in_batched[:2], strict=True)
    )
    return write_at(buffer, new, *starts), True


def by_layer(stacked: Any, config: ModelConfig) -> Any:
    """A pytree stacked over layers as a tuple of one pytree a layer; a deep model's as it is."""
    if config.num_layers > MOST_UNROLLED:
        return stacked
    return tuple(jax.tree.map(lambda a, i=i: a[i], stacked) for i in range(config.num_layers))


def prefill(
    model: Transformer, adapter: Adapter | None, context_ids_bs: jax.Array, context_mask_bs: jax.Array
) -> tuple[jax.Array, Context]:
    """Runs contexts once: the final state of each one's last real token, `[b, d]`, and what decoding reads."""
    config = model.config
    lengths = context_mask_bs.sum(axis=1, dtype=jnp.int32)
    last, k, v = run_context(model, adapter, context_ids_bs, lengths - 1)
    pairs, scale = adapter_parts(adapter)
    k = jnp.swapaxes(k, -1, -2)
    pairs, k, v = (by_layer(a, config) for a in (pairs, k, v))
    return last[:, 0], Context(pairs, k, v, lengths, scale)


def _rows(*sizes: int) -> tuple[int, ...]:
    return tuple(n for n in sizes if n > 1)


def init_own_cache(context: Context, num_samples: int, size: int) -> OwnCache:
    """Empty buffers for `num_samples` continuations of `size` tokens of each context."""

    def empty(of_context, turned):
        *outer, b, k = of_context.shape[:-2]
        h = of_context.shape[-2 if turned else -1]
        inner = (h, size) if turned else (size, h)
        return jnp.zeros((*outer, *_rows(b, k, num_samples), *inner), of_context.dtype)

    return OwnCache(
        k=jax.tree.map(lambda a: empty(a, True), context.k), v=jax.tree.map(lambda a: empty(a, False), context.v)
    )


def decode_step(
    model: Transformer, blocks: Any, context: Context, own: OwnCache, ids_bg: jax.Array, step: jax.Array
) -> tuple[jax.Array, OwnCache]:
    """Runs token `step` of every continuation.

    Args:
      model: The base.
      blocks: `by_layer(model.blocks)`, cut outside the loop.
      context: From `prefill`.
      own: Of the continuations, filled below `step`.
      ids_bg: int32 `[b, g]`.
      step: int32 scalar, the tokens' index in their continuations; all rows stand at the same one.

    Returns:
      Final states `[b, g, d]`, after the last norm, and the buffers with entry `step` written.
    """
    config = model.config
    tables = rope_tables(config, jnp.broadcast_to(context.lengths[:, None] + step, ids_bg.shape))
    settings = layer_settings(config)

    def layer(x, block, pairs, settings, context_k, context_v, write):
        def attend(q, k, v):
            k, v = (heads_first(a) for a in (k, v))
            k, v = (a.reshape(*_rows(*a.shape[:3]), a.shape[3]) for a in (k, v))
            (own_k, own_v), written = write(k[..., None], v[..., None, :])
            mixed = attend_step(q, own_k, own_v, context_k, context_v, context.lengths, settings.window, step, config)
            return mixed, written

        rope = jnp.where(settings.local, tables[1], tables[0])
        return apply_block(block, pairs, context.scale, x, rope, attend, config)

    run = _unrolled if isinstance(own.k, tuple) else _scanned
    x, own = run(layer, embed(model, ids_bg), blocks, settings, context, own, step)
    return rms_norm(x, model.final_norm, config), own


def _unrolled(layer, x, blocks, settings, context, own, step):
    written = []
    for index, block in enumerate(blocks):

        def write(k, v, index=index):
            # Without the barrier the write would be made twice, on copies: for the next step and for the reader here.
            k, v = jax.lax.optimization_barrier((write_at(own.k[index], k, step), write_at(own.v[index], v, step, 0)))
            return (k, v), (k, v)

        mine = jax.tree.map(lambda a, index=index: a[index], settings)
        x, buffers = layer(x, block, context.pairs[index], mine, context.k[index], context.v[index], write)
        written.append(buffers)
    k, v = zip(*written, strict=True)
    return x, OwnCache(k=k, v=v)


def _scanned(layer, x, blocks, settings, context, own, step):
    def body(carry, xs):
        x, own = carry  # the buffers are carried: as scanned inputs and outputs they would be copied every step
        *parts, index = xs

        def write(k, v):
            k = write_at(own.k, k[None], index, *[0] * (k.ndim - 1), step)
            v = write_at(own.v, v[None], index, *[0] * (v.ndim - 2), step, 0)
            mine = tuple(jax.lax.dynamic_index_in_dim(a, index, keepdims=False) for a in (k, v))
            return mine, OwnCache(k=k, v=v)

        return layer(x, *parts, write), None

    xs = (blocks, context.pairs, settings, context.k, context.v, jnp.arange(settings.window.shape[0]))
    return jax.lax.scan(body, (x, own), xs)[0]
