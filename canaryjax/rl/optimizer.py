"""AdamW for many policies at once, and the state that freezes a policy whose numbers are no longer finite."""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from flax import struct

from canaryjax.rl.settings import OptimizerSettings

Tree = TypeVar("Tree")


@struct.dataclass
class TrainState:
    """What training carries, every array with policies in front; donated to each step.

    Attributes:
      params: Trained arrays (an adapter, a reward model, or `PPOParams`), `[p, ...]`.
      optimizer: optax state, `[p, ...]`.
      step: int32 `[p]`, steps done.
      valid: bool `[p]`, False from the first step on whose loss or gradient was not finite; such a policy keeps its
        last finite parameters.
      active: bool `[p]`, False once early stopping has ended a policy.
      kl_coefficient: float32 `[p]`, of PPO's penalty in the next step, which may adapt; None elsewhere.
    """

    params: Any
    optimizer: Any
    step: jax.Array
    valid: jax.Array
    active: jax.Array
    kl_coefficient: jax.Array | None = None


def learning_rate_schedule(settings: OptimizerSettings, updates: int) -> optax.Schedule:
    """The rate at each of `updates` updates: linear warm-up, then the settings' schedule."""
    warmup = round(settings.warmup_fraction * updates)
    rest = max(updates - warmup, 1)
    peak = settings.learning_rate
    match settings.schedule:
        case "constant":
            after = optax.constant_schedule(peak)
        case "linear":
            after = optax.linear_schedule(peak, 0.0, rest)
        case "cosine":
            after = optax.cosine_decay_schedule(peak, rest)
    if warmup == 0:
        return after
    # Update i of the warm-up takes (i + 1) / warmup of the peak, so that none is wasted at a rate of 0.
    rising = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
    return optax.join_schedules([rising, after], [warmup])


def make_optimizer(settings: OptimizerSettings, updates: int) -> optax.GradientTransformation:
    """Global-norm clip, then AdamW under the schedule; made for one policy, to be mapped over the policy axis."""
    return optax.chain(
        optax.clip_by_global_norm(settings.max_grad_norm),
        optax.adamw(learning_rate_schedule(settings, updates), weight_decay=settings.weight_decay),
    )


def init_state(optimizer: optax.GradientTransformation, params_p: object) -> TrainState:
    """A new state for stacked parameters."""
    policies = jax.tree.leaves(params_p)[0].shape[0]
    return TrainState(
        params=params_p,
        optimizer=jax.vmap(optimizer.init)(params_p),
        step=jnp.zeros(policies, jnp.int32),
        valid=jnp.ones(policies, bool),
        active=jnp.ones(policies, bool),
    )


def apply_gradients(
    optimizer: optax.GradientTransformation, state: TrainState, loss: jax.Array, gradients: object
) -> tuple[TrainState, jax.Array]:
    """One policy's update, skipped when it is invalid, stopped, or its loss or gradient is not finite.

    Returns:
      The new state, its step left to the caller, and the gradient's norm before clipping.
    """
    norm = jnp.sqrt(sum(jnp.square(x).sum() for x in jax.tree.leaves(gradients)))
    valid = state.valid & jnp.isfinite(loss) & jnp.isfinite(norm)
    updates, new_optimizer = optimizer.update(gradients, state.optimizer, state.params)
    new_params = optax.apply_updates(state.params, updates)
    params, kept = select_tree(valid & state.active, (new_params, new_optimizer), (state.params, state.optimizer))
    return dataclasses.replace(state, params=params, optimizer=kept, valid=valid), norm


def select_tree(condition: jax.Array, chosen: Tree, other: Tree) -> Tree:
    """Leafwise `where` with one scalar condition."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), chosen, other)
