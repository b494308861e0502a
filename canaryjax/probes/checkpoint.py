"""Step checkpoints and metrics of one training of a probe audit, so that a kill loses little of it."""

import json
from typing import Any, TypeVar

from canaryjax.runlog import Progress
from canaryjax.runlog.directory import RunDirectory
from canaryjax.runlog.provenance import package_version
from canaryjax.weights.state_store import StateStore

METRICS = "metrics.jsonl"
State = TypeVar("State")


class TrainingCheckpoints:
    """What a trainer is given (`rl.checkpoint.Checkpoints`): states in the run, under the training's own name."""

    def __init__(self, run: RunDirectory, config_hash: str, name: str, every: int, progress: Progress) -> None:
        """Takes the run, what states belong to, and how many updates lie between two of them."""
        belongs = {"canaryjax": package_version("canaryjax") or "unknown", "config": config_hash, "training": name}
        self.folder = run.path / "checkpoints" / name
        self._store = StateStore(self.folder, belongs)
        self._run, self._name, self._every, self._progress = run, name, every, progress
        self._steps = 0

    def log(self, row: dict) -> None:
        """Adds a metrics row to the run's."""
        self._run.append_jsonl(METRICS, {**row, "training": self._name})
        if row["policy"] == 0:  # all models of a training make an update together
            self._progress.pace(f"{self._name}: update {row['step'] + 1} of {self._steps}")

    def restore(self, fresh: State, steps: int) -> State:
        """The newest state, or `fresh`; metrics of updates that are made again are taken out first."""
        self._steps = steps
        saved = self._store.newest(fresh, self._progress.note)
        begun = 0 if saved is None else saved.step
        rows = self._run.read_jsonl(METRICS)
        kept = [row for row in rows if row.get("training") != self._name or _before(row, begun)]
        if len(kept) < len(rows):
            self._run.write_text(METRICS, "".join(f"{json.dumps(row)}\n" for row in kept))
        if saved is None:
            return fresh
        self._progress.note(f"{self._name}: resuming at update {begun} of {steps}")
        return saved.state

    def due(self, step: int, steps: int) -> bool:
        """Every so many updates; the last state is the adapters, which are kept otherwise."""
        return self._every > 0 and step % self._every == 0 and step < steps

    def save(self, state: Any, step: int, steps: int) -> None:
        """Begins to write a state."""
        self._store.save(step, state, {})

    def close(self) -> None:
        """Waits for what is being written."""
        self._store.close()


def _before(row: dict[str, Any], step: int) -> bool:
    found = row.get("step")
    return isinstance(found, int) and found < step
