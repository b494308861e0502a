"""One step of policy training, as pure stages over a leading policy axis: roll out, reward, update.

With a reward model all three are one program; with rewards made on the host the rollout and the update are two, with
the host between them.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.inference.generate import Rollout, sample_rollouts
from canaryjax.inference.logprobs import score_shared
from canaryjax.inference.sampling import SamplingSettings
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer
from canaryjax.rl.accumulation import sum_passes
from canaryjax.rl.advantages import group_advantages, masked_mean, masked_variance
from canaryjax.rl.dropout import drop_inputs
from canaryjax.rl.grpo import finish_grpo, grpo_sums
from canaryjax.rl.optimizer import TrainState, apply_gradients, make_optimizer
from canaryjax.rl.order import take_rows
from canaryjax.rl.programs import once
from canaryjax.rl.reward_model import RewardModel, append_eos, score_rewards
from canaryjax.rl.settings import GRPOSettings

INIT, SAMPLING, DROPOUT = 0, 1, 2  # purposes of a policy's key


@struct.dataclass
class PromptRows:
    """Prompts to train on, the same number for every policy.

    Attributes:
      context_ids: int32 `[p, n, s]`, right-padded, at least one real token a row.
      context_mask: bool `[p, n, s]`.
    """

    context_ids: jax.Array
    context_mask: jax.Array


class Recipe(NamedTuple):
    """What is static in a step program.

    Attributes:
      settings: How to train.
      eos_ids: What ends a completion; the first is the one that is appended for the reward model.
      steps: Rollouts of the whole run, for the schedule.
    """

    settings: GRPOSettings
    eos_ids: tuple[int, ...]
    steps: int


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


def take_prompts(prompts: PromptRows, index_pb: jax.Array) -> PromptRows:
    """Each policy's own prompts by number: `[p, b, s]`."""
    return jax.vmap(take_rows)(prompts, index_pb)


def roll_out(
    model: Transformer, adapters_p: Adapter, prompts: PromptRows, keys_p: jax.Array, step_p: jax.Array, recipe: Recipe
) -> Rollout:
    """Samples G completions of each prompt; the noise is fixed by each policy's key and step."""
    settings = recipe.settings
    law = SamplingSettings(
        num_samples=settings.num_generations,
        max_new_tokens=settings.max_completion_length,
        temperature=settings.temperature,
        top_p=settings.top_p,
        eos_ids=recipe.eos_ids,
    )
    keys = jax.vmap(lambda key, step: jax.random.fold_in(jax.random.fold_in(key, SAMPLING), step))(keys_p, step_p)
    return sample_rollouts(model, adapters_p, prompts.context_ids, prompts.context_mask, keys, law)


def model_rewards(
    model: Transformer, reward_models_p: RewardModel, prompts: PromptRows, rollout: Rollout, eos_id: int
) -> jax.Array:
    """Each policy's own reward model on its completions: float32 `[p, b, g]`."""

    def one(reward_model, prompts, ids, mask, finished):
        ids, mask = append_eos(ids, mask, finished, eos_id)
        return score_rewards(model, reward_model, prompts.context_ids, prompts.context_mask, ids, mask)

    return jax.vmap(one)(reward_models_p, prompts, rollout.ids_pbgt, rollout.completion_mask_pbgt, rollout.finished_pbg)


def update_policies(
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
      recipe: Static.

    Returns:
      The new state and metrics, each `[p]`.
    """
    one = functools.partial(_update_one, model, reference, recipe)
    return jax.vmap(one)(state, prompts, rollout, rewards_pbg, keys_p)


def _update_one(model, reference, recipe: Recipe, state, prompts, rollout, rewards, key):
    settings = recipe.settings
    if settings.missing_eos_penalty > 0:
        rewards = rewards - settings.missing_eos_penalty * ~rollout.finished_pbg
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
    metrics |= {
        "reward_mean": masked_mean(rewards, group.usable),
        "reward_std": jnp.sqrt(masked_variance(rewards, group.usable)),
        "completion_length": mask.sum(axis=-1).mean(),
        "finished_fraction": rollout.finished_pbg.mean(),
        "zero_variance_groups": group.zero_variance.sum(),
        "unusable_rewards": (~group.usable).sum(),
        "valid": state.valid,
    }
    return dataclasses.replace(state, step=state.step + 1), metrics


def _updates(model, recipe: Recipe, state, batch: _Batch, guard, key):
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


def _update_on(model, recipe: Recipe, state: TrainState, batch: _Batch, guard, key):
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


@once  # one compiled program for all chunks of a study
def model_reward_step(recipe: Recipe):
    """`step(model, reference, reward_models_p, state, prompts, index_pb, keys_p)`: one step; donates the state."""

    @functools.partial(jax.jit, donate_argnums=(3,))
    def step(model, reference, reward_models_p, state, prompts, index_pb, keys_p):
        chosen = take_prompts(prompts, index_pb)
        with jax.named_scope("rollout"):
            rollout = roll_out(model, state.params, chosen, keys_p, state.step, recipe)
        with jax.named_scope("reward"):
            rewards = model_rewards(model, reward_models_p, chosen, rollout, recipe.eos_ids[0])
        with jax.named_scope("update"):
            return update_policies(model, reference, state, chosen, rollout, rewards, keys_p, recipe)

    return step


@once
def host_reward_programs(recipe: Recipe):
    """`rollout(model, state, prompts, index_pb, keys_p)` and `update(model, reference, state, prompts, index_pb,
    rollout, rewards_pbg, keys_p)`, which donates the state."""

    @jax.jit
    def rollout(model, state, prompts, index_pb, keys_p):
        return roll_out(model, state.params, take_prompts(prompts, index_pb), keys_p, state.step, recipe)

    @functools.partial(jax.jit, donate_argnums=(2,))
    def update(model, reference, state, prompts, index_pb, rollout, rewards_pbg, keys_p):
        chosen = take_prompts(prompts, index_pb)
        return update_policies(model, reference, state, chosen, rollout, rewards_pbg, keys_p, recipe)

    return rollout, update
