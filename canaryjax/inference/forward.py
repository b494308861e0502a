"""One context, many continuations: the single forward pass behind scoring, rollouts, training and reward models.

All layers but the last are one scan. The last goes on with those tokens alone whose states somebody reads: of a context
that is its last one, whatever its length.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.ad_checkpoint import checkpoint_name

from canaryjax.inference.attention import attend_causal, attend_continuations
from canaryjax.models.lora import Adapter
from canaryjax.models.sharding import split_rows
from canaryjax.models.transformer import (
    KEPT,
    Attend,
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


# attend_in(window int32 scalar) -> how queries meet keys in a layer with that window
AttendIn = Callable[[jax.Array], Attend]


def _run_layers(
    model: Transformer,
    adapter: Adapter | None,
    x: jax.Array,
    positions: jax.Array,
    attend: AttendIn,
    attend_last: AttendIn,
    keep: Callable[[jax.Array], jax.Array],
    remat: bool,
) -> tuple[jax.Array, Any, Any]:
    """Runs all layers on `x [b, u, d]`, the last one on `keep(x)`.

    Args:
      model: The base.
      adapter: One policy's adapter, or None for the base itself.
      x: Embeddings of the tokens side by side.
      positions: int32 `[b, u]`.
      attend: How queries meet keys in all layers but the last.
      attend_last: In the last, where queries are those of the kept tokens.
      keep: As in `apply_block`.
      remat: As in `forward_shared`.

    Returns:
      States of the kept tokens after the last norm; what `attend` collected, stacked over layers, and `attend_last`.
    """
    config = model.config
    tables = rope_tables(config, positions)
    pairs, scale = adapter_parts(adapter)
    small = pairs, layer_settings(config)
    last = config.num_layers - 1

    def layer(x, index, small, attend, keep):
        # By number, not as a scanned input: cutting the last layer off the stack would copy all others.
        block = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, index, keepdims=False), model.blocks)
        pairs, settings = small
        rope = jnp.where(settings.local, tables[1], tables[0])
        return apply_block(block, pairs, scale, x, rope, attend(settings.window), config, keep)

    def scanned(x, xs):
        index, small = xs
        return layer(x, index, small, attend, lambda x: x)

    xs = jnp.arange(last), jax.tree.map(lambda a: a[:-1], small)
    x, collected = jax.lax.scan(_recomputed(scanned, remat), x, xs)
    # The last layer's backward pass comes next, so nothing of it is recomputed.
    x, of_last = layer(x, last, jax.tree.map(lambda a: a[-1], small), attend_last, keep)
    return rms_norm(x, model.final_norm, config), collected, of_last


def run_context(
    model: Transformer, adapter: Adapter | None, ids_bs: jax.Array, wanted_b: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Plain causal pass over right-padded rows, which need no mask: padding stands after every real token.

    Args:
      model: The base.
      adapter: One policy's adapter, or None for the base itself.
      ids_bs: int32 `[b, s]`.
      wanted_b: int32 `[b]`, the one position of each row whose state is read; None for all.

    Returns:
      Final states after the last norm, `[b, s, d]` or `[b, 1, d]`; rotated keys and values of all layers, each
      `[l, b, k, s, h]`.
    """
    config = model.config

    def attend_in(window):
        def attend(q, k, v):
            k, v = heads_first(k), heads_first(v)
            return attend_causal(q, k, v, window, config), (k, v)

        return attend

    def attend_one_in(window):
        def attend(q, k, v):
            k, v = heads_first(k), heads_first(v)
            return _attend_at(q, k, v, wanted_b, window, config), (k, v)

        return attend

    if wanted_b is None:
        attend_last, keep = attend_in, lambda x: x
    else:
        attend_last, keep = attend_one_in, lambda x: _rows_at(x, wanted_b)
    ids_bs = split_rows(model, ids_bs)
    positions = jnp.broadcast_to(jnp.arange(ids_bs.shape[1]), ids_bs.shape)
    hidden, collected, of_last = _run_layers(
        model, adapter, embed(model, ids_bs), positions, attend_in, attend_last, keep, remat=False
    )
    k, v = (jnp.concatenate([a, b[None]]) for a, b in zip(collected, of_last, strict=True))
    return hidden, k, v


def _rows_at(x: jax.Array, at_b: jax.Array) -> jax.Array:
    """`[b, s, ...]` -> `[b, 1, ...]` at each row's position."""
    return jnp.take_along_axis(x, at_b.reshape(-1, *(1,) * (x.ndim - 1)), axis=1)


def _attend_at(q, k, v, at_b, window, config) -> jax.Array:
    """Attention of one context token a row, `q [b, 1, n, h]`, over the context up to itself."""
    # As a continuation's token would that stands before the first: one with no own keys, of which one must be given.
    own = k[:, :, None, :1], v[:, :, None, :1]
    return attend_continuations(q[:, None], *own, k, v, at_b + 1, window, -1, config)[:, 0]


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
    context_ids_bs, context_mask_bs, continuation_ids_bgt = split_rows(
        model, (context_ids_bs, context_mask_bs, continuation_ids_bgt)
    )
    lengths = context_mask_bs.sum(axis=1, dtype=jnp.int32)
    # Context and continuations lie side by side, so that every projection is one matmul over all tokens.
    ids = jnp.concatenate([context_ids_bs, continuation_ids_bgt.reshape(b, g * t)], axis=1)
    own = jnp.broadcast_to(lengths[:, None, None] + jnp.arange(t), (b, g, t)).reshape(b, g * t)
    positions = jnp.concatenate([jnp.broadcast_to(jnp.arange(s), (b, s)), own], axis=1)

    def attend_in(of_context, window):
        def attend(q, k, v):
            # Split, not sliced: the backward pass then joins the parts instead of padding and adding them.
            context_q, own_q = jax.lax.split(q, (q.shape[1] - g * t, g * t), axis=1)
            (context_k, own_k), (context_v, own_v) = (
                jax.lax.split(checkpoint_name(heads_first(a), KEPT), (s, g * t), axis=2) for a in (k, v)
            )
            own_k, own_v = (a.reshape(b, -1, g, t, a.shape[-1]) for a in (own_k, own_v))
            context = of_context(context_q, context_k, context_v, window)
            own_q = own_q.reshape(b, g, t, *q.shape[2:])
            own = attend_continuations(own_q, own_k, own_v, context_k, context_v, lengths, window, 0, config)
            return jnp.concatenate([context, own.reshape(b, g * t, *q.shape[2:])], axis=1), None

        return attend

    def whole(q, k, v, window):
        return attend_causal(q, k, v, window, config)

    def end(q, k, v, window):
        return _attend_at(q, k, v, lengths - 1, window, config)

    def keep(x):
        context, continuations = jax.lax.split(x, (s, g * t), axis=1)
        return jnp.concatenate([_rows_at(context, lengths - 1), continuations], axis=1)

    attend, attend_last = partial(attend_in, whole), partial(attend_in, end)
    hidden, *_ = _run_layers(model, adapter, embed(model, ids), positions, attend, attend_last, keep, remat)
    return SharedHidden(last_bd=hidden[:, 0], continuation_bgtd=hidden[:, 1:].reshape(b, g, t, -1))
