"""Early stopping of each policy by its own held-out loss, with each one's best parameters kept."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from canaryjax.rl.optimizer import TrainState, select_tree

HELDOUT = ("heldout_loss", "heldout_accuracy", "heldout_auc")


@struct.dataclass
class Stopping:
    """What early stopping remembers; all but `best` are NumPy arrays, which a checkpoint keeps in full precision.

    Attributes:
      best: Parameters at each policy's lowest held-out loss, `[p, ...]`.
      heldout: By its name, the evaluation of `best`, float64 `[p]`; NaN before the first.
      stopped_at: int `[p]`, updates after which a policy stopped; -1 while it goes on.
      lowest: float64 `[p]`, its lowest loss.
      misses: int `[p]`, evaluations since.
    """

    best: Any
    heldout: dict[str, np.ndarray]
    stopped_at: np.ndarray
    lowest: np.ndarray
    misses: np.ndarray


def new_stopping(params_p: Any) -> Stopping:
    """Early stopping before any evaluation, for stacked parameters."""
    policies = jax.tree.leaves(params_p)[0].shape[0]
    return Stopping(
        best=jax.tree.map(jnp.copy, params_p),
        heldout={name: np.full(policies, np.nan) for name in HELDOUT},
        stopped_at=np.full(policies, -1),
        lowest=np.full(policies, np.inf),
        misses=np.zeros(policies, int),
    )


def after_evaluation(
    stopping: Stopping, state: TrainState, heldout: dict[str, np.ndarray], updates: int, patience: int
) -> tuple[Stopping, TrainState]:
    """Takes in one evaluation.

    Args:
      stopping: Before it.
      state: What was evaluated.
      heldout: Float64 `[p]` by the names of `HELDOUT`; a loss of NaN is a miss.
      updates: Done so far.
      patience: Evaluations without a new lowest loss before a policy stops.

    Returns:
      Early stopping after it, and the state with stopped policies inactive.
    """
    running, loss_p = stopping.stopped_at < 0, heldout["heldout_loss"]
    better = running & (loss_p < stopping.lowest)  # False for NaN
    misses = np.where(better, 0, stopping.misses + running)
    stopped_at = np.where(running & (misses >= patience), updates, stopping.stopped_at)
    after = Stopping(
        best=_keep_better(jnp.asarray(better), state.params, stopping.best),
        heldout={name: np.where(better, heldout[name], stopping.heldout[name]) for name in HELDOUT},
        stopped_at=stopped_at,
        lowest=np.where(better, loss_p, stopping.lowest),
        misses=misses,
    )
    return after, dataclasses.replace(state, active=jnp.asarray(stopped_at < 0))


@jax.jit
def _keep_better(better_p, new, old):
    return jax.vmap(select_tree)(better_p, new, old)
