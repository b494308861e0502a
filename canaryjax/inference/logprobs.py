"""Log-probs of given tokens: the head runs on the positions asked for, in vocabulary chunks, and is run again backward.

Logits `[rows, vocabulary]` never exist beyond one chunk, forward or backward, so memory does not grow with the
vocabulary; an adapter's update of the head goes through the same chunks. Everything from the logits on is float32.
"""

import math

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.errors import UserError
from canaryjax.inference.chunked_head import HeadUpdate, Law, capped, dot, product, reduce_head
from canaryjax.inference.forward import forward_shared
from canaryjax.models.lora import Adapter
from canaryjax.models.sharding import vocabulary_shards
from canaryjax.models.transformer import Transformer, head_table

CHUNK_FLOATS = 2**22  # logits of one chunk, all rows together: 16 MiB, about what a core's cache and a scan step want
MIN_CHUNK = 256  # narrower products waste the matrix unit; from 2**14 rows on the hidden states outweigh the chunk


@struct.dataclass
class TokenStatistics:
    """What the head says about given tokens.

    Attributes:
      logps: float32 `[...]`, nats; 0 where masked.
      entropy: float32 `[...]`, nats, of the same law; 0 where masked.
    """

    logps: jax.Array
    entropy: jax.Array


def head_logits(model: Transformer, adapter: Adapter | None, hidden: jax.Array) -> jax.Array:
    """A policy's own logits, capped, float32: `[..., d]` -> `[..., v]`. For few positions; scoring never needs it."""
    update = _update(adapter, hidden)
    raw = product(hidden, head_table(model))
    return capped(raw if update is None else raw + dot(update.inner, update.out), model.config.final_softcap)


def token_logps(
    model: Transformer,
    adapter: Adapter | None,
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
      adapter: The policy that the states are of, or None for the base itself.
      hidden: `[..., d]`, after the final norm; see `SharedHidden.predictors`.
      target_ids: int `[...]`; what stands where the mask is False is never read (-100 is safe).
      mask: bool `[...]`.
      temperature: None, or above 0.
      chunk: Vocabulary entries a pass; None chooses by the number of rows.

    Returns:
      float32 `[...]`, nats, at most 0; 0 where masked.
    """
    return _statistics(model, adapter, hidden, target_ids, mask, temperature, chunk, entropy=False)[0]


def token_statistics(
    model: Transformer,
    adapter: Adapter | None,
    hidden: jax.Array,
    target_ids: jax.Array,
    mask: jax.Array,
    *,
    temperature: float | None = None,
    chunk: int | None = None,
) -> TokenStatistics:
    """As `token_logps`, with the entropy of each distribution; both are differentiable."""
    logps, entropy = _statistics(model, adapter, hidden, target_ids, mask, temperature, chunk, entropy=True)
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
    return token_logps(model, adapter, states.predictors(), ids, continuation_mask_bgt, temperature=temperature)


def _statistics(model, adapter, hidden, target_ids, mask, temperature, chunk, entropy):
    law = _law(model, temperature, chunk, rows=math.prod(target_ids.shape))
    ids = jnp.where(mask, target_ids, 0).reshape(-1)
    flat = hidden.reshape(-1, hidden.shape[-1])
    logps, spread = reduce_head(flat, head_table(model), _update(adapter, flat), ids, law, entropy)
    logps = jnp.where(mask, logps.reshape(mask.shape), 0.0)
    return logps, jnp.where(mask, spread.reshape(mask.shape), 0.0) if entropy else None


def _law(model: Transformer, temperature: float | None, chunk: int | None, rows: int) -> Law:
    config, shards = model.config, vocabulary_shards(model)
    if temperature is not None and not temperature > 0:
        raise UserError(
            f"expected a temperature above 0, found {temperature}: greedy choices have no log-prob; score them at 1"
        )
    if chunk is None:
        chunk = max(MIN_CHUNK, CHUNK_FLOATS // max(rows, 1))
    limit = config.vocab_size if temperature is None else config.real_vocab_size
    chunk = min(chunk, config.vocab_size // shards)
    return Law(config.final_softcap, 1.0 if temperature is None else temperature, limit, chunk, shards)


def _update(adapter: Adapter | None, hidden: jax.Array) -> HeadUpdate | None:
    if adapter is None or adapter.head is None:
        return None
    return HeadUpdate(inner=adapter.scale * dot(hidden, adapter.head.a), out=adapter.head.b)
