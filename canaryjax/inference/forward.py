"""One context, many continuations: the single forward pass behind scoring, rollouts, training and reward models."""

import jax
import jax.numpy as jnp
from flax import struct
from jax.ad_checkpoint import checkpoint_name

from canaryjax.inference.attention import attend_causal, attend_continuations
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import (
    KEPT,
    Transformer,
    apply_block,
    embed,
    layer_settings,
    rms_norm,
    rope_tables,
)


@struct.dataclass
class SharedHidden:
    """Final hidden states (after the last norm) of one context and its continuations.

    Attributes:
      last_bd: At each context's last real token, `[b, d]`.
      continuation_bgtd: At each continuation token, `[b, g, t, d]`.
    """

    last_bd: jax.Array
    continuation_bgtd: jax.Array

    def predictors(self) -> jax.Array:
        """The state that predicts each continuation token, `[b, g, t, d]`: entry 0 is the context's last token."""
        b, g, _, d = self.continuation_bgtd.shape
        first = jnp.broadcast_to(self.last_bd[:, None, None], (b, g, 1, d))
        return jnp.concatenate([first, self.continuation_bgtd[:, :, :-1]], axis=2)


def adapter_parts(adapter: Adapter | None) -> tuple[dict, float]:
    """The pairs to scan over and their scale; no adapter is the exact base."""
    return ({}, 1.0) if adapter is None else (adapter.layers, adapter.scale)


def _recomputed(layer, everything: bool):
    """The layer with what its backward pass computes again: all of it, or what is cheaper to compute than to keep.

    Kept are the outputs of the projections and of attention; norms, rotations and activations are computed again, since
    writing, clearing and reading a kept array takes longer.
    """
    policy = None if everything else jax.checkpoint_policies.save_only_these_names(KEPT)
    return jax.checkpoint(layer, policy=policy, prevent_cse=False)  # inside a scan nothing can be merged


def heads_first(x: jax.Array) -> jax.Array:
    """`[b, s, k, h]` -> `[b, k, s, h]`, as attention and caches hold keys and values."""
    return jnp.swapaxes(x, 1, 2)


def run_context(
    model: Transformer, adapter: Adapter | None, ids_bs: jax.Array, *, remat: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Plain causal pass over right-padded rows, which need no mask: padding stands after every real token.

    Args:
      model: The base.
      adapter: One policy's adapter, or None for the base itself.
      ids_bs: int32 `[b, s]`.
      remat: Recompute each layer in the backward pass instead of keeping its activations.

    Returns:
      Final states after the last norm, `[b, s, d]`; rotated keys and values of all layers, each `[l, b, k, s, h]`.
    """
    config = model.config
    b, s = ids_bs.shape
    tables = rope_tables(config, jnp.broadcast_to(jnp.arange(s), (b, s)))
    lora, scale = adapter_parts(adapter)

    def layer(x, xs):
        block, pairs, settings = xs

        def attend(q, k, v):
            k, v = heads_first(k), heads_first(v)
            return attend_causal(q, k, v, settings.window, config), (k, v)

        rope = jnp.where(settings.local, tables[1], tables[0])
        return apply_block(block, pairs, scale, x, rope, attend, config)

    x, (k, v) = jax.lax.scan(
        _recomputed(layer, remat), embed(model, ids_bs), (model.blocks, lora, layer_settings(config))
    )
    return rms_norm(x, model.final_norm, config), k, v


def forward_shared(
    model: Transformer,
    adapter: Adapter | None,
    context_ids_bs: jax.Array,
    context_mask_bs: jax.Array,
    continuation_ids_bgt: jax.Array,
    *,
    remat: bool = False,
) -> SharedHidden:
    """Runs each context once and lets every continuation attend to its keys and values.

    Equals running each `context + continuation` by itself, values and gradients, to float32 rounding; tokens fall from
    g(s + t) to s + gt. Continuation padding needs no mask here: it stands after the real tokens and reaches none.

    Args:
      model: The base.
      adapter: One policy's adapter, or None for the base itself.
      context_ids_bs: int32 `[b, s]`, right-padded; at least one real token a row.
      context_mask_bs: bool `[b, s]`, True where real.
      continuation_ids_bgt: int32 `[b, g, t]`, right-padded.
      remat: Recompute each layer in the backward pass instead of keeping its activations.

    Returns:
      Final hidden states; see `SharedHidden`.
    """
    config = model.config
    b, s = context_ids_bs.shape
    g, t = continuation_ids_bgt.shape[1:]
    lengths = context_mask_bs.sum(axis=1, dtype=jnp.int32)
    # Context and continuations lie side by side, so that every projection is one matmul over all tokens.
    ids = jnp.concatenate([context_ids_bs, continuation_ids_bgt.reshape(b, g * t)], axis=1)
    own = jnp.broadcast_to(lengths[:, None, None] + jnp.arange(t), (b, g, t)).reshape(b, g * t)
    positions = jnp.concatenate([jnp.broadcast_to(jnp.arange(s), (b, s)), own], axis=1)
    tables = rope_tables(config, positions)
    lora, scale = adapter_parts(adapter)

    def layer(x, xs):
        block, pairs, settings = xs

        def attend(q, k, v):
            # Split, not sliced: the backward pass then joins the parts instead of padding and adding them.
            context_q, own_q = jax.lax.split(q, (s, g * t), axis=1)
            (context_k, own_k), (context_v, own_v) = (
                jax.lax.split(checkpoint_name(heads_first(a), KEPT), (s, g * t), axis=2) for a in (k, v)
            )
            own_k, own_v = (a.reshape(b, -1, g, t, a.shape[-1]) for a in (own_k, own_v))
            context = attend_causal(context_q, context_k, context_v, settings.window, config)
            own_q = own_q.reshape(b, g, t, *q.shape[2:])
            own = attend_continuations(own_q, own_k, own_v, context_k, context_v, lengths, settings.window, 0, config)
            return jnp.concatenate([context, own.reshape(b, g * t, *q.shape[2:])], axis=1), None

        rope = jnp.where(settings.local, tables[1], tables[0])
        return apply_block(block, pairs, scale, x, rope, attend, config)

    x, _ = jax.lax.scan(_recomputed(layer, remat), embed(model, ids), (model.blocks, lora, layer_settings(config)))
    last = jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)
    hidden = rms_norm(jnp.concatenate([last, x[:, s:]], axis=1), model.final_norm, config)
    return SharedHidden(last_bd=hidden[:, 0], continuation_bgtd=hidden[:, 1:].reshape(b, g, t, -1))
