"""Trains the policies of a chunk together, from prompts and a source of rewards."""

import dataclasses
import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.models.lora import Adapter
from canaryjax.models.sharding import fetch, place_policies, place_rows
from canaryjax.models.transformer import Transformer
from canaryjax.rl.checkpoint import Checkpoints, restored, save_due
from canaryjax.rl.metrics import Log, MetricLog
from canaryjax.rl.optimizer import TrainState, init_state, make_optimizer
from canaryjax.rl.order import row_order
from canaryjax.rl.ppo_settings import PPOSettings
from canaryjax.rl.ppo_step import PPOParams
from canaryjax.rl.reward_model import RewardModel, new_adapter
from canaryjax.rl.rollout import INIT, VALUE, PromptRows, Recipe
from canaryjax.rl.samples import Sampling, Written
from canaryjax.rl.settings import GRPOSettings, require
from canaryjax.rl.step_profile import StepProfile
from canaryjax.rl.train_step import host_reward_programs, model_reward_step, policy_adapters
from canaryjax.rl.value_model import init_value_model

# (step, prompt numbers int32 [p, b], ids int32 [p, b, g, t], completion mask bool [p, b, g, t]) -> rewards [p, b, g]
HostReward = Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def train_policies(
    model: Transformer,
    rewards: RewardModel | HostReward,
    prompts: PromptRows,
    settings: GRPOSettings | PPOSettings,
    keys_p: jax.Array,
    log: Log | None = None,
    *,
    eos_ids: tuple[int, ...],
    initial_adapter: Adapter | None = None,
    reference_adapter: Adapter | None = None,
    checkpoints: Checkpoints | None = None,
    log_every: int = 8,
    sampling: Sampling | None = None,
    profile: StepProfile | None = None,
) -> tuple[Adapter, dict]:
    """Trains one policy for each key with GRPO or PPO, all in one program.

    With PPO a value model is trained beside each policy and dropped at the end: it starts as a copy of the policy's
    reward model, or at 0 where rewards come from the host.

    Each policy's result depends on its own prompts, rewards and key alone, to float32 rounding. Prompts are visited in
    one permutation an epoch; those that do not fill the last step are left out.

    Args:
      model: The base, never changed.
      rewards: Reward models stacked over policies, or a function on the host.
      prompts: The policies' prompts.
      settings: How to train; their type says by which algorithm.
      keys_p: Typed keys `[p]`: initial adapters, order of prompts and mini-batches, sampling noise, dropout.
      log: Called with one record a logged step and policy.
      eos_ids: What ends a completion; the first is what the reward model sees at the end of an unfinished one.
      initial_adapter: What every policy starts from; None is a new adapter, which equals the base.
      reference_adapter: What the KL penalty pulls towards; None is the base. Policies that start from an adapter
        have KL 0 at step 0 only when it is the reference too.
      checkpoints: Keeps the state now and then; a run that goes on from what it kept ends bit for bit as one that
        was never stopped. A host's rewards that carry a state of their own are its keeper's to keep too.
      log_every: Steps between transfers of metrics from the device.
      sampling: Shown some of the completions that steps are made of; nothing is sampled for it.
      profile: Traces a few of the steps.

    Returns:
      Adapters stacked over policies, and `valid` (NumPy bool `[p]`; False where a loss or gradient was not finite, or a
      step had no finite reward: such a policy keeps its last finite adapter), `steps`, `prompts_left_out` and
      `seconds`.

    Raises:
      UserError: Fewer prompts than one step takes, or no EOS.
    """
    require(bool(eos_ids), "at least one EOS id", eos_ids, "a completion could never end: give the tokenizer's")
    started = time.perf_counter()
    batches, left_out = _prompt_batches(prompts, settings, keys_p)
    recipe = Recipe(settings, tuple(eos_ids), len(batches))
    learned = rewards if isinstance(rewards, RewardModel) else None
    fresh = _new_state(recipe, model, initial_adapter, learned, keys_p)
    state = place_policies(model, restored(checkpoints, fresh, len(batches)))
    del fresh  # as large as the state
    prompts = jax.tree.map(jnp.asarray, prompts)  # moved to the device once
    prompts, keys_p = place_policies(model, (prompts, keys_p))
    advance = _advance_with(rewards, model, reference_adapter, prompts, recipe, keys_p)
    metrics = MetricLog(log, "ppo" if isinstance(settings, PPOSettings) else "grpo", log_every)

    def finish():
        jax.block_until_ready(state)  # the newest

    left = range(int(fetch(state.step)[0]), len(batches))
    for step in left if profile is None else profile.follow(left, finish):
        state, out, written = advance(step, state, place_rows(model, batches[step]))
        metrics.add(step, out)
        if sampling is not None:
            sampling.show(step, len(batches), batches[step], written)
        save_due(checkpoints, metrics, state, step + 1, len(batches))
    metrics.flush()
    result = {"valid": fetch(state.valid), "steps": len(batches), "prompts_left_out": left_out}
    return policy_adapters(state.params), result | {"seconds": time.perf_counter() - started}


def _prompt_batches(prompts: PromptRows, settings: GRPOSettings | PPOSettings, keys_p) -> tuple[np.ndarray, int]:
    """Prompt numbers of every step, int32 `[steps, p, b]`, and how many visits did not fill a step."""
    n, b = prompts.context_ids.shape[1], settings.prompts_per_step
    visits = n * settings.epochs
    require(visits >= b, f"at least the {b} prompts of one step", visits, "add prompts or epochs, or sample fewer")
    steps = visits // b
    orders = [row_order(key, np.arange(n), settings.epochs)[: steps * b].reshape(steps, b) for key in keys_p]
    return np.stack(orders, axis=1), visits - steps * b


@functools.partial(jax.jit, static_argnums=(0,))
def _new_state(
    recipe: Recipe, model: Transformer, initial: Adapter | None, learned: RewardModel | None, keys_p: jax.Array
) -> TrainState:
    settings = recipe.settings

    def one(key, reward_model):
        adapter = initial
        if adapter is None:
            adapter = new_adapter(jax.random.fold_in(key, INIT), model.config, settings.adapter)
        if isinstance(settings, GRPOSettings):
            return adapter
        if reward_model is None:
            reward_model = init_value_model(jax.random.fold_in(key, VALUE), model.config, settings.adapter)
        return PPOParams(policy=adapter, value=reward_model)

    optimizer = make_optimizer(settings.optimizer, recipe.steps * settings.updates_per_step)
    state = init_state(optimizer, jax.vmap(one)(keys_p, learned))
    if isinstance(settings, GRPOSettings):
        return state
    return dataclasses.replace(state, kl_coefficient=jnp.full(len(keys_p), settings.kl_coefficient, jnp.float32))


def _advance_with(rewards, model, reference, prompts, recipe, keys_p):
    """`advance(step, state, index_pb) -> (state, metrics, Written)` for the given source of rewards."""
    if isinstance(rewards, RewardModel):
        program, rewards = model_reward_step(recipe), place_policies(model, rewards)
        return lambda step, state, index: program(model, reference, rewards, state, prompts, index, keys_p)
    rollout_program, update_program = host_reward_programs(recipe)

    def advance(step, state, index):
        rollout = rollout_program(model, state, prompts, index, keys_p)
        rows, ids, mask = fetch((index, rollout.ids_pbgt, rollout.completion_mask_pbgt))
        given = np.asarray(rewards(step, rows, ids, mask))
        fitting = given.shape == ids.shape[:3] and np.issubdtype(given.dtype, np.floating)
        found = f"{given.dtype} {given.shape}"
        require(fitting, f"floating rewards of shape {ids.shape[:3]}", found, "return one number a completion")
        given = place_rows(model, given.astype(np.float32))
        state, out = update_program(model, reference, state, prompts, index, rollout, given, keys_p)
        return state, out, Written(rollout.ids_pbgt, rollout.completion_mask_pbgt, given)

    return advance
