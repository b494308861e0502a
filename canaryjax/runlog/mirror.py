"""The rows of metrics.jsonl once more in the trackers that `output.report_to` names, each row once, resumed or not."""

import contextlib
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from canaryjax.errors import UserError
from canaryjax.runlog.directory import RunDirectory
from canaryjax.runlog.trackers import TRACKERS, Place, TensorBoard, Tracker

REPORTED = "reported.json"
REMEDY = "restore it, or leave output.report_to out"
KEYS = ("trial", "policy", "stage", "step", "updates")  # of a row: what is not a metric


def series(row: Mapping[str, Any]) -> tuple[str, str, int, dict[str, float]]:
    """Where a row of metrics.jsonl belongs: policy, stage, update and its numbers; null and text are left out.

    >>> series({"trial": 3, "stage": "grpo", "step": 17, "kl": 0.5, "valid": True, "reward_mean": None})
    ('trial-0003', 'grpo', 17, {'kl': 0.5, 'valid': 1.0})
    """
    step = row.get("step", row.get("updates"))
    values = {name: float(x) for name, x in row.items() if name not in KEYS and isinstance(x, (bool, int, float))}
    return policy_name(row.get("trial")), str(row["stage"]), int(step or 0), values


def policy_name(trial: int | None) -> str:
    """What a trial's policy is called in trackers; None is the base, which the warm start's rows are of."""
    return "base" if trial is None else f"trial-{trial:04d}"


class Mirror:
    """Passes rows on to trackers; one that fails is told of and left out, since metrics.jsonl has every row."""

    def __init__(
        self, trackers: dict[str, Tracker], reported: Mapping[str, Mapping[str, int]], tell: Callable[[str], None]
    ) -> None:
        """Takes trackers by name, the last update that each had of every series before, and where to tell."""
        self._trackers, self._reported, self._tell = trackers, reported, tell
        self._policies: set[str] = set()
        self._lock = threading.Lock()  # chunks side by side log from threads of their own

    def add(self, row: Mapping[str, Any]) -> None:
        """Mirrors a row to the trackers that have not had it before the run was stopped."""
        policy, stage, step, values = series(row)
        with self._lock:
            for name in list(self._trackers):
                if step > self._reported.get(name, {}).get(f"{policy} {stage}", -1):
                    self._policies.add(policy)
                    self._call(name, "add", policy, stage, step, values)

    def finish(self, trials: Sequence[int | None]) -> None:
        """Ends the runs of policies whose training is over; None is the base."""
        with self._lock:
            self._end({policy_name(trial) for trial in trials})

    def close(self) -> None:
        """Ends all that is open, for good."""
        with self._lock:
            self._end(self._policies)
            self._trackers.clear()  # threads that a stop has left behind log to the file alone

    def _end(self, policies: set[str]) -> None:
        for policy in sorted(policies & self._policies):
            self._policies.remove(policy)
            for name in list(self._trackers):
                self._call(name, "finish", policy)

    def _call(self, name: str, method: str, *args: Any) -> None:
        try:
            getattr(self._trackers[name], method)(*args)
        except Exception as error:  # a disk, a network, a library: none of them is worth the training
            del self._trackers[name]
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._tell(f"{name} gets no more metrics ({why}); metrics.jsonl has them all")


@contextlib.contextmanager
def mirroring(
    names: Sequence[str],
    run_dir: RunDirectory,
    before: Sequence[Mapping[str, Any]],
    kept: Sequence[Mapping[str, Any]],
    tell: Callable[[str], None],
) -> Iterator[Mirror]:
    """A mirror of the rows that are logged inside the block.

    A service keeps what it was sent, so a resumed run skips the updates that it logged before: training comes by the
    same numbers again. One that is new to the run is sent the rows that it keeps; TensorBoard's files are the run's
    own, and are made anew from them.

    Args:
      names: Of `output.report_to`; libraries that `check_trackers` has found.
      run_dir: The run.
      before: The rows that an earlier call of the run has logged, those to be dropped too.
      kept: Those of them that stay.
      tell: Called with a line where a tracker fails.
    """
    token, reported = _begin(names, run_dir, before)
    if "tensorboard" in names:
        shutil.rmtree(run_dir.path / TensorBoard.FOLDER, ignore_errors=True)
    mirror = Mirror({name: TRACKERS[name](Place(run_dir.path, token)) for name in names}, reported, tell)
    try:
        for row in kept if names else ():
            _read_series(run_dir, row)
            mirror.add(row)
        mirror.finish([row.get("trial") for row in kept])  # of policies whose training is over
        yield mirror
    finally:
        mirror.close()


def _begin(
    names: Sequence[str], run_dir: RunDirectory, before: Sequence[Mapping[str, Any]]
) -> tuple[str, dict[str, dict[str, int]]]:
    """The run's token, and by service the last update it had of each series; both kept in the run with the names.

    What an earlier call logged, its services had. To be called before rows are dropped: a run that is stopped twice
    shall still know what was sent at first.
    """
    there = (run_dir.path / REPORTED).is_file()
    if not names:
        if there:  # what a service misses from here on, it is sent when it is named again
            with contextlib.suppress(UserError):  # damaged: without trackers the run goes on all the same
                _keep_reported(run_dir, run_dir.read_sealed(REPORTED, REMEDY), before, [])
        return "", {}
    empty: dict[str, Any] = {"token": secrets.token_hex(4), "services": [], "updates": {}}
    old = run_dir.read_sealed(REPORTED, REMEDY) if there else empty
    services = [name for name in names if name != "tensorboard"]
    return old["token"], _keep_reported(run_dir, old, before, services)


def _keep_reported(
    run_dir: RunDirectory, old: Mapping[str, Any], before: Sequence[Mapping[str, Any]], services: list[str]
) -> dict[str, dict[str, int]]:
    updates = {name: dict(had) for name, had in old["updates"].items()}
    for name in old["services"]:
        had = updates.setdefault(name, {})
        for row in before:
            policy, stage, step, _ = _read_series(run_dir, row)
            had[f"{policy} {stage}"] = max(step, had.get(f"{policy} {stage}", -1))
    run_dir.write_sealed(REPORTED, {"token": old["token"], "services": services, "updates": updates})
    return updates


def _read_series(run_dir: RunDirectory, row: Mapping[str, Any]) -> tuple[str, str, int, dict[str, float]]:
    try:
        return series(row)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"expected trial, stage and update in every row of metrics.jsonl in {run_dir.path}, found {row!s:.80}; "
            f"{REMEDY}"
        ) from error
