"""The update of proximal policy optimisation on one rollout, as a pure stage over a leading policy axis."""

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
from canaryjax.rl.advantages import masked_mean, whiten
from canaryjax.rl.gae import estimate_gae
from canaryjax.rl.kl import estimate_kl
from canaryjax.rl.optimizer import TrainState, apply_gradients, make_optimizer
from canaryjax.rl.ppo import (
    PPOTargets,
    adapt_coefficient,
    explained_variance,
    finish_ppo,
    ppo_sums,
    sequence_divergence,
    token_rewards,
)
from canaryjax.rl.reward_model import RewardModel
from canaryjax.rl.rollout import SHUFFLE, PromptRows, Recipe, penalise_unfinished, rollout_metrics
from canaryjax.rl.value_model import score_values


@struct.dataclass
class PPOParams:
    """What PPO trains, under one optimiser and one gradient norm.

    Attributes:
      policy: The policy's adapter.
      value: Its value model.
    """

    policy: Adapter
    value: RewardModel


@struct.dataclass
class _Batch:
    """One policy's rollout with everything the losses read, rows in front."""

    context_ids: jax.Array
    context_mask: jax.Array
    ids: jax.Array
    mask: jax.Array
    targets: PPOTargets


def update_ppo(
    model: Transformer,
    reference: Adapter | None,
    state: TrainState,
    prompts: PromptRows,
    rollout: Rollout,
    rewards_pbg: jax.Array,
    keys_p: jax.Array,
    recipe: Recipe,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Values, reference log-probs, advantages, and all updates of one rollout; then the next KL coefficient.

    Args:
      model: The base.
      reference: What the KL penalty pulls towards: a frozen adapter shared by all policies, or None for the base.
      state: Policies and value models (`PPOParams`) before the step.
      prompts: `[p, b, s]`.
      rollout: Completions sampled by the state's policies; their log-probs are the old ones.
      rewards_pbg: float32, one a completion; not finite takes a completion out of the step.
      keys_p: Typed keys `[p]`, for the order of mini-batches.
      recipe: Static; its settings are PPO's.

    Returns:
      The new state and metrics, each `[p]`.
    """
    one = functools.partial(_update_one, model, reference, recipe)
    return jax.vmap(one)(state, prompts, rollout, rewards_pbg, keys_p)


def _update_one(model, reference, recipe, state, prompts, rollout, rewards, key):
    settings = recipe.settings
    scores = penalise_unfinished(rewards, rollout.finished_pbg, settings.missing_eos_penalty)
    usable = jnp.isfinite(scores)
    mask = rollout.completion_mask_pbgt & usable[..., None]
    values, token_kl, kl = _score_rollout(model, reference, settings, state, prompts, rollout, mask)
    gained = token_rewards(scores, token_kl, mask, state.kl_coefficient)
    if settings.whiten_rewards:
        gained = whiten(gained, mask, shift_mean=False)
    found = estimate_gae(gained, values, mask, gamma=settings.gamma, gae_lambda=settings.gae_lambda)
    advantages = whiten(found.advantages, mask) if settings.whiten_advantages else found.advantages
    targets = PPOTargets(
        old_token_logps=None if settings.updates_per_step == 1 else rollout.logps_pbgt,
        advantages=advantages,
        old_values=values,
        returns=found.returns,
    )
    batch = _Batch(prompts.context_ids, prompts.context_mask, rollout.ids_pbgt, mask, jax.lax.stop_gradient(targets))
    # Without a single reward the loss would be a silent 0: such a policy must stop.
    guard = jnp.where(usable.any(), 0.0, jnp.nan)
    divergence = sequence_divergence(token_kl, mask)
    metrics = {"kl": kl, "sequence_kl": divergence} if settings.kl_coefficient > 0 else {}
    metrics |= {
        "kl_coefficient": state.kl_coefficient,
        "explained_variance": explained_variance(values, found.returns, mask),
        "value_mean": masked_mean(values, mask),
        "return_mean": masked_mean(found.returns, mask),
    }
    coefficient = adapt_coefficient(state.kl_coefficient, divergence, usable.sum(), settings.adaptive_kl)
    state, updated = _updates(model, recipe, state, batch, guard, key)
    metrics |= updated | rollout_metrics(scores, usable, rollout) | {"valid": state.valid}
    return dataclasses.replace(state, step=state.step + 1, kl_coefficient=coefficient), metrics


def _score_rollout(model, reference, settings, state, prompts, rollout, mask):
    """Values and divergences of all tokens, a few completions at a time; and the mean divergence as GRPO logs it."""
    penalised = settings.kl_coefficient > 0

    def score(part):
        context_ids, context_mask, ids, real = part
        context = (context_ids, context_mask)
        values = score_values(model, state.params.value, *context, ids)
        if not penalised:
            return values, jnp.zeros_like(values)  # never read
        return values, score_shared(model, reference, *context, ids, real, temperature=settings.temperature)

    rows = (prompts.context_ids, prompts.context_mask, rollout.ids_pbgt, mask)
    values, ref = _in_parts(score, rows, settings.rollout_forward_batch_size // settings.samples_per_prompt)
    old = jnp.where(mask, rollout.logps_pbgt, 0.0)
    token_kl = estimate_kl(settings.kl, old, ref) if penalised else ref
    return values, token_kl, masked_mean(estimate_kl("k3", old, ref), mask)


def _in_parts(score, rows, most: int):
    """`score(rows)`, over equal parts of at most `most` rows, one after another."""
    n = rows[0].shape[0]
    parts = next(parts for parts in range(1, n + 1) if n % parts == 0 and n // parts <= most)
    if parts == 1:
        return score(rows)
    split = jax.tree.map(lambda x: x.reshape(parts, n // parts, *x.shape[1:]), rows)
    return jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), jax.lax.map(score, split))


def _updates(model, recipe, state, batch: _Batch, guard, key):
    """All optimiser updates on one rollout; metrics are means over them."""
    settings = recipe.settings
    if settings.updates_per_step == 1:
        return _update_on(model, recipe, state, batch, guard)
    parts = settings.mini_batches
    key = jax.random.fold_in(jax.random.fold_in(key, SHUFFLE), state.step)

    def one(state, number):
        order = jax.random.permutation(jax.random.fold_in(key, number // parts), batch.ids.shape[0])
        index = order.reshape(parts, -1)[number % parts]
        part = jax.tree.map(lambda x: x[index], batch)
        return _update_on(model, recipe, state, part, guard)

    state, metrics = jax.lax.scan(one, state, jnp.arange(settings.updates_per_step))
    return state, jax.tree.map(lambda x: x.mean(axis=0), metrics)


def _update_on(model, recipe, state: TrainState, batch: _Batch, guard):
    settings = recipe.settings

    def loss(params: PPOParams):
        def sums(part: _Batch):
            context, ids = (part.context_ids, part.context_mask), part.ids
            logps = score_shared(
                model, params.policy, *context, ids, part.mask, temperature=settings.temperature, remat=settings.remat
            )
            values = score_values(model, params.value, *context, ids, remat=settings.remat)
            return ppo_sums(logps, values, part.targets, part.mask, settings)

        return finish_ppo(sum_passes(sums, batch, settings.grad_accumulation), settings)

    (total, metrics), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
    optimizer = make_optimizer(settings.optimizer, recipe.steps * settings.updates_per_step)
    state, norm = apply_gradients(optimizer, state, total + guard, gradients)
    return state, metrics | {"loss": total, "grad_norm": norm}
