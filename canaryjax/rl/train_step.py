"""One step of policy training as compiled programs: roll out, reward, update, for all policies of a chunk together.

With a reward model all three are one program; with rewards made on the host the rollout and the update are two, with
the host between them.
"""

import functools
from typing import Any

import jax

from canaryjax.inference.generate import Rollout
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer
from canaryjax.rl.grpo_step import update_grpo
from canaryjax.rl.optimizer import TrainState
from canaryjax.rl.ppo_settings import PPOSettings
from canaryjax.rl.ppo_step import PPOParams, update_ppo
from canaryjax.rl.programs import once
from canaryjax.rl.rollout import PromptRows, Recipe, model_rewards, roll_out, take_prompts
from canaryjax.rl.samples import Written


def policy_adapters(params_p: Any) -> Adapter:
    """The policies among the trained arrays: PPO trains value models beside them."""
    return params_p.policy if isinstance(params_p, PPOParams) else params_p


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
    """All updates of one rollout by the algorithm of the recipe's settings.

    Args:
      model: The base.
      reference: What the KL penalty pulls towards: a frozen adapter shared by all policies, or None for the base.
      state: Policies before the step.
      prompts: `[p, b, s]`.
      rollout: Completions sampled by the state's policies.
      rewards_pbg: float32; not finite takes a completion out of the step.
      keys_p: Typed keys `[p]`.
      recipe: Static.

    Returns:
      The new state and metrics, each `[p]`.
    """
    update = update_ppo if isinstance(recipe.settings, PPOSettings) else update_grpo
    return update(model, reference, state, prompts, rollout, rewards_pbg, keys_p, recipe)


@once  # one compiled program for all chunks of a study
def model_reward_step(recipe: Recipe):
    """`step(model, reference, reward_models_p, state, prompts, index_pb, keys_p)`: one step, donating the state; gives
    the new one, metrics and what was `Written`."""

    @functools.partial(jax.jit, donate_argnums=(3,))
    def step(model, reference, reward_models_p, state, prompts, index_pb, keys_p):
        chosen = take_prompts(prompts, index_pb)
        with jax.named_scope("rollout"):
            rollout = roll_out(model, policy_adapters(state.params), chosen, keys_p, state.step, recipe)
        with jax.named_scope("reward"):
            rewards = model_rewards(model, reward_models_p, chosen, rollout, recipe.eos_ids[0])
        with jax.named_scope("update"):
            state, metrics = update_policies(model, reference, state, chosen, rollout, rewards, keys_p, recipe)
        return state, metrics, Written(rollout.ids_pbgt, rollout.completion_mask_pbgt, rewards)

    return step


@once
def host_reward_programs(recipe: Recipe):
    """`rollout(model, state, prompts, index_pb, keys_p)` and `update(model, reference, state, prompts, index_pb,
    rollout, rewards_pbg, keys_p)`, which donates the state."""

    @jax.jit
    def rollout(model, state, prompts, index_pb, keys_p):
        return roll_out(
            model, policy_adapters(state.params), take_prompts(prompts, index_pb), keys_p, state.step, recipe
        )

    @functools.partial(jax.jit, donate_argnums=(2,))
    def update(model, reference, state, prompts, index_pb, rollout, rewards_pbg, keys_p):
        chosen = take_prompts(prompts, index_pb)
        return update_policies(model, reference, state, chosen, rollout, rewards_pbg, keys_p, recipe)

    return rollout, update
