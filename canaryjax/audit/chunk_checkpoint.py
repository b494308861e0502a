"""Step checkpoints of a chunk of trials: its logged responses, reward models and policies, so that a kill loses little.

A checkpoint holds the trainer's state, whatever that is, and beside it what the audit carries along: the metrics logged
so far, seconds, and the calibrators of simulated feedback. A stage that has ended stays readable until the chunk's
records are whole, so that a run that is stopped while it measures trains nothing again.
"""

import shutil
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from canaryjax.audit.stopwatch import Stopwatch
from canaryjax.rl.metrics import Log
from canaryjax.runlog import Progress
from canaryjax.runlog.progress import duration
from canaryjax.runlog.provenance import package_version
from canaryjax.weights.state_store import StateStore

State = TypeVar("State")
DONE = {"done": np.ones(1, bool)}  # the arrays of a checkpoint that is all notes


class Carrier(Protocol):
    """What changes from step to step beside the trainer's own state."""

    def state(self) -> Any:
        """What JSON can hold, exactly."""

    def take_up(self, state: Any) -> None:
        """Goes on from what `state` gave."""


class StageCheckpoints:
    """One stage's checkpoints, as a trainer wants them (`rl.checkpoint.Checkpoints`)."""

    def __init__(self, chunk: "ChunkCheckpoints", stage: str, unit: str, log: Log, watch: Stopwatch) -> None:
        self._chunk, self._stage, self._unit, self._log, self._watch = chunk, stage, unit, log, watch
        self._store = chunk.store(stage)
        self._rows: list[dict] = []
        self._steps = 0  # how many there are, once it is known
        self._compiling: float | None = None  # seconds a step of the first rows: compilation is in them
        self.carrier: Carrier | None = None

    def log(self, row: dict) -> None:
        """Passes a metrics row on, and keeps it for the checkpoints to come."""
        self._rows.append(row)
        self._log(row)
        # All policies of a chunk make a step together: one of them tells for all.
        if self._steps and "seconds" in row and row.get("policy", 0) == 0:
            self._tell(row["step"] + 1, row["seconds"])

    def _tell(self, done: int, seconds: float) -> None:
        """Says which step was made, how fast they are and how long the rest takes."""
        text = f"{self._unit} {done} of {self._steps}"
        if self._compiling is None:
            self._compiling = seconds
        if seconds not in (0.0, self._compiling):
            text += f", {1 / seconds:.2g} a second, about {duration((self._steps - done) * seconds)} left"
        self._chunk.tell(text)

    def restore(self, fresh: State, steps: int) -> State:
        """The state of the newest checkpoint, with all that was carried along put back; else `fresh`."""
        saved = self._store.newest(fresh, self._chunk.progress.note) if self._chunk.every else None
        for row in saved.notes["rows"] if saved is not None else ():
            self.log(row)
        self._steps = steps
        if saved is None:
            return fresh
        self._watch.add(self._stage, saved.notes["seconds"])
        if self.carrier is not None:
            self.carrier.take_up(saved.notes["carried"])
        self._chunk.progress.note(f"{self._chunk.who}: resuming at {self._unit} {saved.step} of {steps}")
        return saved.state

    def due(self, step: int, steps: int) -> bool:
        """Every so many steps, and after the last."""
        every = self._chunk.every
        return every > 0 and (step % every == 0 or step == steps)

    def save(self, state: Any, step: int, steps: int) -> None:
        """Begins to write a checkpoint."""
        self._watch.lap(self._stage)
        carried = None if self.carrier is None else self.carrier.state()
        notes = {"rows": list(self._rows), "seconds": self._watch.seconds[self._stage], "carried": carried}
        self._store.save(step, state, notes)


class ChunkCheckpoints:
    """The step checkpoints of one chunk, a folder a stage; as a context, it ends when what is being written is whole.

    Attributes:
      who: Names the chunk: `trials 4, 5`.
      every: Steps between checkpoints; 0 keeps none.
      progress: Told where training is taken up again.
    """

    def __init__(self, folder: Path, config_hash: str, who: str, every: int, progress: Progress) -> None:
        """Takes a folder of the chunk's own, and the hash of the study's config, to which its checkpoints belong."""
        self.who, self.every, self.progress = who, every, progress
        self._folder = folder
        self._belongs = {"canaryjax": package_version("canaryjax") or "unknown", "config": config_hash, "chunk": who}
        self._stores: list[StateStore] = []

    def stage(self, name: str, unit: str, log: Log, watch: Stopwatch) -> StageCheckpoints:
        """Checkpoints of a stage of training.

        Args:
          name: Of the stage, by which the stopwatch books it.
          unit: What it counts, for whoever watches: `policy step`.
          log: Gets each metrics row once, those of a checkpoint when it is taken up.
          watch: The chunk's.
        """
        return StageCheckpoints(self, name, unit, log, watch)

    def tell(self, what: str) -> None:
        """Shows what the chunk is at, where nothing was shown for a while."""
        self.progress.pace(f"{self.who}: {what}")

    def recall(self, name: str) -> Any:
        """What `remember` was given before a stop, or None."""
        saved = self.store(name).newest(DONE, self.progress.note) if self.every else None
        return None if saved is None else saved.notes["value"]

    def remember(self, name: str, value: Any) -> None:
        """Keeps the outcome of a stage that is done at once; `value` is what JSON can hold, exactly."""
        if self.every:
            self.store(name).save(1, DONE, {"value": value})

    def store(self, stage: str) -> StateStore:
        """Where a stage's states are kept."""
        store = StateStore(self._folder / stage.replace(" ", "-"), self._belongs | {"stage": stage})
        self._stores.append(store)
        return store

    def discard(self) -> None:
        """Takes all of them away: what they were for is kept otherwise."""
        self._close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "ChunkCheckpoints":
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        stores, self._stores = self._stores, []
        for store in stores:
            store.close()
