"""Trains the policies of a chunk together, from prompts and a source of rewards."""

import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer
from canaryjax.rl.metrics import Log, MetricLog
from canaryjax.rl.optimizer import TrainState, init_state, make_optimizer
from canaryjax.rl.order import row_order
from canaryjax.rl.reward_model import RewardModel, new_adapter
from canaryjax.rl.settings import GRPOSettings, require
from canaryjax.rl.train_step import INIT, PromptRows, Recipe, host_reward_programs, model_reward_step

# (step, prompt numbers int32 [p, b], ids int32 [p, b, g, t], completion mask bool [p, b, g, t]) -> rewards [p, b, g]
HostReward = Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def train_policies(
    model: Transformer,
    rewards: RewardModel | HostReward,
    prompts: PromptRows,
    settings: GRPOSettings,
    keys_p: jax.Array,
    log: Log | None = None,
    *,
    eos_ids: tuple[int, ...],
    initial_adapter: Adapter | None = None,
    reference_adapter: Adapter | None = None,
    resume: TrainState | None = None,
    save: Callable[[TrainState], None] | None = None,
    save_every: int = 0,
    log_every: int = 8,
) -> tuple[Adapter, dict]:
    """Trains one policy for each key with GRPO, all in one program.

    Each policy's result depends on its own prompts, rewards and key alone, to float32 rounding. Prompts are visited in
    one permutation an epoch; those that do not fill the last step are left out.

    Args:
      model: The base, never changed.
      rewards: Reward models stacked over policies, or a function on the host.
      prompts: The policies' prompts.
      settings: How to train.
      keys_p: Typed keys `[p]`: initial adapters, order of prompts, sampling noise, dropout.
      log: Called with one record a logged step and policy.
      eos_ids: What ends a completion; the first is what the reward model sees at the end of an unfinished one.
      initial_adapter: What every policy starts from; None is a new adapter, which equals the base.
      reference_adapter: What the KL penalty pulls towards; None is the base. Policies that start from an adapter
        have KL 0 at step 0 only when it is the reference too.
      resume: A state that `save` was given; the run goes on bit for bit.
      save: Called with the state, as NumPy arrays, every `save_every` steps (0: never).
      save_every: Steps between saves.
      log_every: Steps between transfers of metrics from the device.

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
    state = resume if resume is not None else _new_state(recipe, model, initial_adapter, keys_p)
    # Copied: the first step takes the state's memory, which a caller may hold. Prompts move to the device once.
    state, prompts = jax.tree.map(jnp.array, state), jax.tree.map(jnp.asarray, prompts)
    advance = _advance_with(rewards, model, reference_adapter, prompts, recipe, keys_p)
    metrics = MetricLog(log, "grpo", log_every)
    for step in range(int(state.step[0]), len(batches)):
        state, out = advance(step, state, batches[step])
        metrics.add(step, out)
        if save is not None and save_every and (step + 1) % save_every == 0:
            save(jax.tree.map(np.array, state))  # copies: the next step takes the state's memory
    metrics.flush()
    result = {"valid": np.asarray(state.valid), "steps": len(batches), "prompts_left_out": left_out}
    return state.params, result | {"seconds": time.perf_counter() - started}


def _prompt_batches(prompts: PromptRows, settings: GRPOSettings, keys_p) -> tuple[np.ndarray, int]:
    """Prompt numbers of every step, int32 `[steps, p, b]`, and how many visits did not fill a step."""
    n, b = prompts.context_ids.shape[1], settings.prompts_per_step
    visits = n * settings.epochs
    require(visits >= b, f"at least the {b} prompts of one step", visits, "add prompts or epochs, or sample fewer")
    steps = visits // b
    orders = [row_order(key, np.arange(n), settings.epochs)[: steps * b].reshape(steps, b) for key in keys_p]
    return np.stack(orders, axis=1), visits - steps * b


@functools.partial(jax.jit, static_argnums=(0,))
def _new_state(recipe: Recipe, model: Transformer, initial: Adapter | None, keys_p: jax.Array) -> TrainState:
    settings = recipe.settings

    def one(key):
        if initial is not None:
            return initial
        return new_adapter(jax.random.fold_in(key, INIT), model.config, settings.adapter)

    optimizer = make_optimizer(settings.optimizer, recipe.steps * settings.updates_per_step)
    return init_state(optimizer, jax.vmap(one)(keys_p))


def _advance_with(rewards, model, reference, prompts, recipe, keys_p):
    """`advance(step, state, index_pb) -> (state, metrics)` for the given source of rewards."""
    if isinstance(rewards, RewardModel):
        program = model_reward_step(recipe)
        return lambda step, state, index: program(model, reference, rewards, state, prompts, index, keys_p)
    rollout_program, update_program = host_reward_programs(recipe)

    def advance(step, state, index):
        rollout = rollout_program(model, state, prompts, index, keys_p)
        ids, mask = jax.device_get((rollout.ids_pbgt, rollout.completion_mask_pbgt))
        given = np.asarray(rewards(step, index, ids, mask))
        fitting = given.shape == ids.shape[:3] and np.issubdtype(given.dtype, np.floating)
        found = f"{given.dtype} {given.shape}"
        require(fitting, f"floating rewards of shape {ids.shape[:3]}", found, "return one number a completion")
        return update_program(model, reference, state, prompts, index, rollout, given.astype(np.float32), keys_p)

    return advance
