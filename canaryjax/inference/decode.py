"""Running a context once and then one token at a time: keys and values of each part live in their own buffers."""

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.inference.attention import attend_continuations
from canaryjax.inference.forward import adapter_parts, heads_first, run_context
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import (
    Transformer,
    apply_block,
    embed,
    layer_settings,
    rms_norm,
    rope_tables,
)


@struct.dataclass
class ContextCache:
    """Keys and values of contexts, shared by all their continuations; never written after prefill.

    Attributes:
      k, v: `[l, b, k, s, h]`.
      lengths: int32 `[b]`, real tokens.
    """

    k: jax.Array
    v: jax.Array
    lengths: jax.Array


@struct.dataclass
class OwnCache:
    """Keys and values of continuations, indexed by the continuation's own token.

    Attributes:
      k, v: `[l, b, k, g, t, h]`.
    """

    k: jax.Array
    v: jax.Array


def prefill(
    model: Transformer, adapter: Adapter | None, context_ids_bs: jax.Array, context_mask_bs: jax.Array
) -> tuple[jax.Array, ContextCache]:
    """Runs contexts once: the final state of each one's last real token, `[b, d]`, and the cache."""
    hidden, k, v = run_context(model, adapter, context_ids_bs)
    lengths = context_mask_bs.sum(axis=1, dtype=jnp.int32)
    last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)[:, 0]
    return last, ContextCache(k=k, v=v, lengths=lengths)


def init_own_cache(cache: ContextCache, num_samples: int, size: int) -> OwnCache:
    """Empty buffers for `num_samples` continuations of `size` tokens of each context."""
    layers, b, k, _, h = cache.k.shape
    zeros = jnp.zeros((layers, b, k, num_samples, size, h), cache.k.dtype)
    return OwnCache(k=zeros, v=zeros)


def decode_step(
    model: Transformer,
    adapter: Adapter | None,
    cache: ContextCache,
    own: OwnCache,
    ids_bg: jax.Array,
    step: jax.Array,
) -> tuple[jax.Array, OwnCache]:
    """Runs token `step` of every continuation.

    Args:
      model: The base.
      adapter: One policy's adapter, or None.
      cache: Of the contexts.
      own: Of the continuations, filled below `step`.
      ids_bg: int32 `[b, g]`.
      step: int32 scalar, the tokens' index in their continuations; all rows stand at the same one.

    Returns:
      Final states `[b, g, d]`, after the last norm, and the buffers with entry `step` written.
    """
    config = model.config
    b, g = ids_bg.shape
    positions = jnp.broadcast_to(cache.lengths[:, None] + step, (b, g))
    tables = rope_tables(config, positions)
    lora, scale = adapter_parts(adapter)

    def layer(carry, xs):
        x, own = carry  # the buffers are carried: as scanned inputs and outputs they would be copied every step
        block, pairs, settings, context_k, context_v, index = xs

        def attend(q, k, v):
            def written(buffer, new):
                new = heads_first(new)[None, :, :, :, None]  # [1, b, k, g, 1, h]
                return jax.lax.dynamic_update_slice(buffer, new, (index, 0, 0, 0, step, 0))

            buffers = OwnCache(k=written(own.k, k), v=written(own.v, v))
            mine_k, mine_v = (jax.lax.dynamic_index_in_dim(a, index, keepdims=False) for a in (buffers.k, buffers.v))
            mixed = attend_continuations(
                q[:, :, None], mine_k, mine_v, context_k, context_v, cache.lengths, settings.window, step, config
            )
            return mixed[:, :, 0], buffers

        rope = jnp.where(settings.local, tables[1], tables[0])
        return apply_block(block, pairs, scale, x, rope, attend, config), None

    xs = (model.blocks, lora, layer_settings(config), cache.k, cache.v, jnp.arange(config.num_layers))
    (x, own), _ = jax.lax.scan(layer, (embed(model, ids_bg), own), xs)
    return rms_norm(x, model.final_norm, config), own
