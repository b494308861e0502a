"""Step checkpoints of one training of a probe audit, so that a kill loses little of it."""

from pathlib import Path
from typing import Any, TypeVar

from canaryjax.rl.metrics import Log
from canaryjax.runlog import Progress
from canaryjax.runlog.provenance import package_version
from canaryjax.weights.state_store import StateStore

State = TypeVar("State")


class TrainingCheckpoints:
    """What a trainer is given (`rl.checkpoint.Checkpoints`): states under a folder of the training's own."""

    def __init__(self, folder: Path, config_hash: str, name: str, every: int, progress: Progress, log: Log) -> None:
        """Takes where, what it belongs to, and how many updates lie between two states."""
        belongs = {"canaryjax": package_version("canaryjax") or "unknown", "config": config_hash, "training": name}
        self._store = StateStore(folder, belongs)
        self._name, self._every, self._progress, self._log = name, every, progress, log
        self._rows: list[dict] = []
        self._steps = 0

    def log(self, row: dict) -> None:
        """Passes a metrics row on, and keeps it for the states to come."""
        self._rows.append(row)
        self._log({**row, "training": self._name})
        if row["policy"] == 0:  # all models of a training make an update together
            self._progress.pace(f"{self._name}: update {row['step'] + 1} of {self._steps}")

    def restore(self, fresh: State, steps: int) -> State:
        """The newest state, the rows that led to it logged again; `fresh` where there is none."""
        self._steps = steps
        saved = self._store.newest(fresh, self._progress.note)
        if saved is None:
            return fresh
        for row in saved.notes["rows"]:
            self.log(row)
        self._progress.note(f"{self._name}: resuming at update {saved.step} of {steps}")
        return saved.state

    def due(self, step: int, steps: int) -> bool:
        """Every so many updates; the last state is the adapters, which are kept otherwise."""
        return self._every > 0 and step % self._every == 0 and step < steps

    def save(self, state: Any, step: int, steps: int) -> None:
        """Begins to write a state."""
        self._store.save(step, state, {"rows": list(self._rows)})

    def close(self) -> None:
        """Waits for what is being written."""
        self._store.close()
