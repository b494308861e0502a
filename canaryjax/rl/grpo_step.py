"""The update of group-relative policy optimisation on one rollout, as a pure stage over a leading policy axis."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.inference.generate import Rollout
from canaryjax.inference.logprobs import score_shared
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer
from canaryjax.rl.accumulation import sum_passes
from canaryjax.rl.advantages import group_advantages
from canaryjax.rl.dropout import drop_inputs
from canaryjax.rl.grpo import finish_grpo, grpo_sums
from canaryjax.rl.optimizer import TrainState, apply_gradients, make_optimizer
from canaryjax.rl.rollout import DROPOUT, PromptRows, Recipe, penalise_unfinished, rollout_metrics


@struct.dataclass
class _Batch:
    """One policy's rollout with everything the loss reads, rows in front."""

    context_ids: jax.Array
    context_mask: jax.Array
    ids: jax.Array
    mask: jax.Array
    old_logps: jax.Array
    ref_logps: jax.Array
    advantages: jax.Array


def update_grpo(
    model: Transformer,
    reference: Adapter | None,
    state: TrainState,
    prompts: PromptRows,
    rollout: Rollout,
    rewards_pbg: jax.Array,
    keys_p: jax.Array,
    recipe: Recipe,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Reference log-probs, advantages, and all updates of one rollout.

    Args:
      model: The base.
      reference: What the KL penalty pulls towards: a frozen adapter shared by all policies, or None for the base.
      state: Policies before the step.
      prompts: `[p, b, s]`.
      rollout: Completions sampled by `state.params`.
      rewards_pbg: float32; not finite takes a completion out of the step.
      keys_p: Typed keys `[p]`, for dropout.
      recipe: Static; its settings are GRPO's.

    Returns:
      The new state and metrics, each `[p]`.
    """
    one = functools.partial(_update_one, model, reference, recipe)
    return jax.vmap(one)(state, prompts, rollout, rewards_pbg, keys_p)


def _update_one(model, reference, recipe, state, prompts, rollout, rewards, key):
    settings = recipe.settings
    rewards = penalise_unfinished(rewards, rollout.finished_pbg, settings.missing_eos_penalty)
    group = group_advantages(rewards, scale=settings.scale_advantages)
    mask = rollout.completion_mask_pbgt
    context = (prompts.context_ids, prompts.context_mask)
    if settings.kl_coefficient > 0:
        ref = score_shared(model, reference, *context, rollout.ids_pbgt, mask, temperature=settings.temperature)
    else:
        ref = jnp.zeros_like(rollout.logps_pbgt)  # never read
    batch = _Batch(
        context_ids=prompts.context_ids,
        context_mask=prompts.context_mask,
        ids=rollout.ids_pbgt,
        mask=mask & group.usable[..., None],
        old_logps=rollout.logps_pbgt,
        ref_logps=jax.lax.stop_gradient(ref),
        advantages=group.advantages,
    )
    key = jax.random.fold_in(jax.random.fold_in(key, DROPOUT), state.step)
    # Without a single reward the loss would be a silent 0: such a policy must stop.
    guard = jnp.where(group.usable.any(), 0.0, jnp.nan)
    state, metrics = _updates(model, recipe, state, batch, guard, key)
    metrics |= rollout_metrics(rewards, group.usable, rollout)
    metrics |= {"zero_variance_groups": group.zero_variance.sum(), "valid": state.valid}
    return dataclasses.replace(state, step=state.step + 1), metrics


def _updates(model, recipe, state, batch: _Batch, guard, key):
    """All optimiser updates on one rollout; metrics are means over them."""
    settings = recipe.settings
    updates = settings.updates_per_step
    if updates == 1:
        return _update_on(model, recipe, state, batch, guard, key)
    parts = updates // settings.updates_per_rollout
    split = jax.tree.map(lambda x: x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), batch)

    def one(state, number):
        part = jax.tree.map(lambda x: x[number % parts], split)
        return _update_on(model, recipe, state, part, guard, jax.random.fold_in(key, number))

    state, metrics = jax.lax.scan(one, state, jnp.arange(updates))
    return state, jax.tree.map(lambda x: x.mean(axis=0), metrics)


def _update_on(model, recipe, state: TrainState, batch: _Batch, guard, key):
    settings = recipe.settings
    on_policy = settings.updates_per_step == 1

    def loss(adapter):
        dropped = drop_inputs(adapter, key, settings.adapter.dropout)

        def sums(part: _Batch):
            logps = score_shared(
                model,
                dropped,
                part.context_ids,
                part.context_mask,
                part.ids,
                part.mask,
                temperature=settings.temperature,
                remat=settings.remat,
            )
            old = None if on_policy else part.old_logps
            return grpo_sums(logps, part.ref_logps, old, part.advantages, part.mask, settings)

        return finish_grpo(sum_passes(sums, batch, settings.grad_accumulation))

    (value, metrics), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
    optimizer = make_optimizer(settings.optimizer, recipe.steps * settings.updates_per_step)
    state, norm = apply_gradients(optimizer, state, value + guard, gradients)
    if settings.kl_coefficient == 0:
        del metrics["kl"]  # the reference was not run
    return state, metrics | {"loss": value, "grad_norm": norm}
