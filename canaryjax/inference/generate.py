"""Sampled continuations of many contexts under many policies: one prefill, one loop that ends when all are done."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.inference.decode import Context, OwnCache, by_layer, decode_step, init_own_cache, prefill, write_at
from canaryjax.inference.logprobs import head_logits
from canaryjax.inference.sampling import SamplingSettings, sample_tokens
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer


@struct.dataclass
class Rollout:
    """Sampled continuations.

    Attributes:
      ids_pbgt: int32; 0 after the end.
      completion_mask_pbgt: bool; True at sampled tokens, the end-of-sequence token included.
      logps_pbgt: float32, nats, under exactly the law that was sampled from; 0 where masked.
      raw_logps_pbgt: float32, nats, under the model's own law; 0 where masked.
      finished_pbg: bool; False where the buffer ended first.
    """

    ids_pbgt: jax.Array
    completion_mask_pbgt: jax.Array
    logps_pbgt: jax.Array
    raw_logps_pbgt: jax.Array
    finished_pbg: jax.Array


@struct.dataclass
class _State:
    """One policy's continuations on their way.

    Attributes:
      rollout: What was sampled so far, without the policy axis.
      own: Keys and values of what was fed so far.
      last_bg: int32, the newest tokens.
    """

    rollout: Rollout
    own: OwnCache
    last_bg: jax.Array


def sample_rollouts(
    model: Transformer,
    adapters_p: Adapter | None,
    context_ids_pbs: jax.Array,
    context_mask_pbs: jax.Array,
    keys: jax.Array,
    settings: SamplingSettings,
) -> Rollout:
    """Samples `num_samples` continuations of each context under each policy; pure, to be called inside a program.

    Args:
      model: The base, shared by the policies.
      adapters_p: Adapters stacked over a leading policy axis, or None for the base.
      context_ids_pbs: int32, right-padded, at least one real token a row.
      context_mask_pbs: bool, True where real.
      keys: Typed keys `[p]`, or `[p, b]` where a row's draws must not depend on its place in the batch.
      settings: Static.

    Returns:
      A `Rollout`; no gradient flows through it.
    """
    if keys.ndim == 1:
        rows = jnp.arange(context_ids_pbs.shape[1])
        keys = jax.vmap(lambda key: jax.vmap(partial(jax.random.fold_in, key))(rows))(keys)
    given = adapters_p, context_ids_pbs, context_mask_pbs, keys
    alone = keys.shape[0] == 1
    if alone:  # without an axis: one of length one would have the compiler copy every cache at every step
        given = jax.tree.map(lambda a: a[0], given)
    over_policies = (lambda function: function) if alone else jax.vmap
    adapters, _, _, row_keys = given
    context, state = over_policies(partial(_start, settings, model))(*given)
    blocks = by_layer(model.blocks, model.config)

    def unfinished(carry):
        step, state = carry
        return (step < settings.max_new_tokens) & ~state.rollout.finished_pbg.all()

    def advance(carry):
        # The loop is outside the map over policies: mapped, each would copy its whole cache at every step to be able to
        # stop by itself.
        step, state = carry
        advanced = over_policies(partial(_advance, settings, step, model, blocks))
        return step + 1, advanced(adapters, context, state, row_keys)

    _, state = jax.lax.while_loop(unfinished, advance, (jnp.int32(1), state))
    rollout = jax.lax.stop_gradient(state.rollout)
    return jax.tree.map(lambda a: a[None], rollout) if alone else rollout


def _start(settings, model, adapter, ids, mask, keys) -> tuple[Context, _State]:
    """Prefill of one policy's contexts and the first tokens, all drawn from the same state of their context."""
    last, context = prefill(model, adapter, ids, mask)
    b, g, t = ids.shape[0], settings.num_samples, settings.max_new_tokens
    zeros = jnp.zeros((b, g, t), jnp.float32)
    empty = Rollout(zeros.astype(jnp.int32), zeros.astype(bool), zeros, zeros, jnp.zeros((b, g), bool))
    hidden = jnp.broadcast_to(last[:, None], (b, g, last.shape[-1]))
    own = init_own_cache(context, g, max(t - 1, 1))  # the last token is never fed
    return context, _draw(settings, jnp.int32(0), model, adapter, hidden, keys, empty, own)


def _advance(settings, step, model, blocks, adapter, context, state, keys) -> _State:
    """Feeds the newest tokens and draws the next ones."""
    hidden, own = decode_step(model, blocks, context, state.own, state.last_bg, step - 1)
    return _draw(settings, step, model, adapter, hidden, keys, state.rollout, own)


def _draw(settings, step, model, adapter, hidden, keys, rollout, own) -> _State:
    keys = jax.vmap(lambda key: jax.random.fold_in(key, step))(keys)
    ids, logps, raw = sample_tokens(keys, head_logits(model, adapter, hidden), settings, model.config)
    going = ~rollout.finished_pbg

    def written(buffer, new):
        return write_at(buffer, jnp.where(going, new, jnp.zeros_like(new))[..., None], step)

    ended = (ids[..., None] == jnp.array(settings.eos_ids, jnp.int32)).any(axis=-1)
    rollout = Rollout(
        ids_pbgt=written(rollout.ids_pbgt, ids),
        completion_mask_pbgt=written(rollout.completion_mask_pbgt, going),
        logps_pbgt=written(rollout.logps_pbgt, logps),
        raw_logps_pbgt=written(rollout.raw_logps_pbgt, raw),
        finished_pbg=rollout.finished_pbg | ended,
    )
    return _State(rollout=rollout, own=own, last_bg=ids)
