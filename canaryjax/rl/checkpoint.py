"""Step checkpoints as a trainer sees them: a state to go on from, and somebody who takes one now and then."""

from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.models.sharding import fetch
from canaryjax.rl.metrics import MetricLog

State = TypeVar("State")


class Checkpoints(Protocol):
    """Keeps the state of one stage of training; a trainer does not know where, nor the keeper what is in it."""

    def restore(self, fresh: State, steps: int) -> State:
        """What was kept last, in the form of `fresh`, of a run of `steps`; `fresh` itself where nothing was."""

    def due(self, step: int, steps: int) -> bool:
        """Whether the state after `step` of `steps` steps is wanted; after the last one it should be."""

    def save(self, state: Any, step: int, steps: int) -> None:
        """Takes a state, NumPy arrays that nobody else holds, when all that belongs to its steps has been logged."""


def restored(checkpoints: Checkpoints | None, fresh: State, steps: int) -> State:
    """The state that training goes on from, in memory of its own: the first step takes it.

    What is a NumPy array in `fresh` stays one: on the device float64 would lose half of its digits.
    """
    state = fresh if checkpoints is None else checkpoints.restore(fresh, steps)
    return jax.tree.map(lambda form, x: jnp.array(x) if isinstance(form, jax.Array) else np.array(x), fresh, state)


def save_due(checkpoints: Checkpoints | None, metrics: MetricLog, state: Any, step: int, steps: int) -> None:
    """Saves the state after `step` where it is wanted, with the metrics of its steps logged first.

    Args:
      checkpoints: Who keeps it, if anyone.
      metrics: Flushed, so that a resumed run logs what comes after the checkpoint, and no step twice.
      state: Any pytree of arrays; copied, since the next step takes its memory.
      step: Steps done.
      steps: Of the whole run.
    """
    if checkpoints is not None and checkpoints.due(step, steps):
        metrics.flush()
        checkpoints.save(jax.tree.map(np.array, fetch(state)), step, steps)
