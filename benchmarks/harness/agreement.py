"""Whether two stacks compute the same thing, so that no speed rests on computing something else."""

from collections.abc import Mapping
from typing import Any

import numpy as np

# What a side answers, by name. The name's last word says how two are compared:
#   logps      arrays of log-probs, nats: the largest difference, relative where large; rewards and values too
#   ids        arrays of token ids: the share that differs
#   loss, norm numbers, or an array of them: the largest relative difference
#   bounds     bounds of a bootstrap: the largest difference
#   gradients  tensors by name: the worst tensor's difference, relative to its norm
Answers = Mapping[str, Any]

TOLERANCES = {
    "logps": 1e-5,  # of max(1, |log-prob|), per token, float32
    "rewards": 1e-5,
    "values": 1e-5,
    "ids": 0.0,
    "loss": 1e-4,
    "norm": 1e-4,
    "bounds": 6e-3,  # of an AUROC near 0.7, 50 + 50 policies, 10,000 resamples: four errors of the draws
    "gradients": 2e-5,  # a gradient passes through every layer above it, forward and backward
}


class Agreement:
    """Named differences, each beside what is allowed."""

    def __init__(self, ours: Answers, theirs: Answers) -> None:
        """Compares all that the peer answers; a name that ours lacks, another shape and NaN agree with nothing."""
        self.checks = {name: self._check(name, ours.get(name), answer) for name, answer in theirs.items()}

    @property
    def holds(self) -> bool:
        """Whether something was compared and every difference is a number within its tolerance."""
        return bool(self.checks) and all(difference <= allowed for difference, allowed in self.checks.values())

    def record(self) -> dict[str, Any]:
        """As a result states it; a difference that is no finite number is null."""
        checks = {
            name: {"difference": difference if np.isfinite(difference) else None, "tolerance": allowed}
            for name, (difference, allowed) in self.checks.items()
        }
        return {"holds": self.holds, "checks": checks}

    @staticmethod
    def _check(name: str, ours: Any, theirs: Any) -> tuple[float, float]:
        kind = name.split("_")[-1]
        return float("inf") if ours is None else _DIFFERENCES[kind](ours, theirs), TOLERANCES[kind]


def _of_logps(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape or not ours.size:
        return float("inf")
    return float((np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))).max())  # NaN stays NaN


def _of_ids(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return float((ours != theirs).mean()) if ours.shape == theirs.shape and ours.size else float("inf")


def _of_numbers(ours: Any, theirs: Any) -> float:
    ours, theirs = np.atleast_1d(np.asarray(ours, np.float64)), np.atleast_1d(np.asarray(theirs, np.float64))
    if ours.shape != theirs.shape or not theirs.all():
        return float("inf")
    return float((np.abs(ours - theirs) / np.abs(theirs)).max())


def _of_gradients(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    if {name: x.shape for name, x in ours.items()} != {name: x.shape for name, x in theirs.items()}:
        return float("inf")
    # A tensor that should not be zero and is must count, so the peer's norm divides; both zero is 0 / 0, a fault too.
    return float(np.max([np.linalg.norm(ours[name] - theirs[name]) / np.linalg.norm(theirs[name]) for name in theirs]))


_DIFFERENCES = {"logps": _of_logps, "ids": _of_ids, "gradients": _of_gradients}
_DIFFERENCES |= {
    "loss": _of_numbers,
    "norm": _of_numbers,
    "rewards": _of_logps,
    "values": _of_logps,
    "bounds": _of_logps,
}
