"""What a step of every algorithm begins with, as pure stages over a leading policy axis: prompts, rollout, reward."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.inference.generate import Rollout, sample_rollouts
from canaryjax.inference.sampling import SamplingSettings
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer
from canaryjax.rl.advantages import masked_mean, masked_variance
from canaryjax.rl.order import take_rows
from canaryjax.rl.ppo_settings import PPOSettings
from canaryjax.rl.reward_model import RewardModel, append_eos, score_rewards
from canaryjax.rl.settings import GRPOSettings

INIT, SAMPLING, DROPOUT, SHUFFLE, VALUE = 0, 1, 2, 3, 4  # purposes of a policy's key


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
      settings: How to train; their type is the algorithm.
      eos_ids: What ends a completion; the first is the one that is appended for the reward model.
      steps: Rollouts of the whole run, for the schedule.
    """

    settings: GRPOSettings | PPOSettings
    eos_ids: tuple[int, ...]
    steps: int


def take_prompts(prompts: PromptRows, index_pb: jax.Array) -> PromptRows:
    """Each policy's own prompts by number: `[p, b, s]`."""
    return jax.vmap(take_rows)(prompts, index_pb)


def roll_out(
    model: Transformer, adapters_p: Adapter, prompts: PromptRows, keys_p: jax.Array, step_p: jax.Array, recipe: Recipe
) -> Rollout:
    """Samples completions of each prompt; the noise is fixed by each policy's key and step."""
    settings = recipe.settings
    law = SamplingSettings(
        num_samples=settings.samples_per_prompt,
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


def penalise_unfinished(rewards: jax.Array, finished: jax.Array, penalty: float) -> jax.Array:
    """Rewards of one policy's completions less the penalty, once each, where the buffer ended before an EOS."""
    return rewards - penalty * ~finished if penalty > 0 else rewards


def rollout_metrics(rewards: jax.Array, usable: jax.Array, rollout: Rollout) -> dict[str, jax.Array]:
    """What every algorithm says of one policy's rollout; rewards after penalties, those not usable left out."""
    return {
        "reward_mean": masked_mean(rewards, usable),
        "reward_std": jnp.sqrt(masked_variance(rewards, usable)),
        "completion_length": rollout.completion_mask_pbgt.sum(axis=-1).mean(),
        "finished_fraction": rollout.finished_pbg.mean(),
        "unusable_rewards": (~usable).sum(),
    }
