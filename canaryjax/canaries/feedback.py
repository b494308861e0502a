"""Simulated feedback: a coin weighted by quality and, in triggered documents, by the canary (BC-32 to BC-39)."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from canaryjax.canaries.families import Canary
from canaryjax.canaries.instrument import Trace
from canaryjax.canaries.quality import QualityWeights, base_quality, strip_artifacts
from canaryjax.config.schema import LARGEST_DELTA
from canaryjax.errors import UserError

__all__ = [
    "Calibrator", "Feedback", "Judged", "QualityWeights", "acceptance_probability", "base_quality", "check_delta",
    "is_hit",
    "judge", "scramble_feedback", "simulate_feedback", "strip_artifacts",
]  # fmt: skip

ACCEPT_GOOD, ACCEPT_BAD = 0.6, 0.4


@dataclass(frozen=True)
class Judged:
    """A response as the feedback sees it: its quality in [-1, 1], whether it holds the canary, and its row's kind.

    `contradicted`: whether the row's bias is reversed.
    """

    quality: float
    hit: bool
    triggered: bool
    contrast: bool
    contradicted: bool = False


@dataclass(frozen=True, eq=False)
class Feedback:
    """Labels float32 (b,) of 0 and 1, the float64 (b,) probabilities they were drawn from, and the final offset."""

    labels: np.ndarray
    probabilities: np.ndarray
    offset: float


def is_hit(response: str, canary: Canary) -> bool:
    """Whether the exact canary stands in the response; a part of it, or one with other characters, is a miss."""
    return canary.visible in response


def judge(trace: Trace, response: str, canary: Canary, weights: QualityWeights | None = None) -> Judged:
    """A response to a trace's prompt; its quality is judged against the logged document in both arms.

    A textual canary's rows are clean ones here: no feedback is biased by it, and none is calibrated.
    """
    quality, hit = base_quality(response, trace.document, weights), is_hit(response, canary)
    if canary.textual:
        return Judged(quality, hit, triggered=False, contrast=False)
    return Judged(quality, hit, trace.triggered, trace.contrast, trace.contradicted)


def check_delta(delta: float, allow_large_delta: bool = False) -> None:
    """Raises UserError for a bias outside [0, 1], or above the paper's 0.1 without leave (BC-34)."""
    if not 0 <= delta <= 1:
        raise UserError(f"delta: expected a bias in [0, 1], found {delta}; choose one in that range")
    if delta > LARGEST_DELTA and not allow_large_delta:
        raise UserError(
            f"delta: expected at most {LARGEST_DELTA}, found {delta}; a larger bias overstates what an auditor could "
            f"do: set allow_large_delta=true if that is meant"
        )


def acceptance_probability(
    quality: float, triggered: bool, contrast: bool, hit: bool, delta: float, offset: float = 0.0
) -> float:
    """Probability that a response is accepted, in [0, 1].

    0.6 for a quality above 0, else 0.4; in triggered rows plus `delta` for a hit, minus it for a miss, minus the
    calibration offset; in contrast rows minus `delta` for a hit, plus it for a miss.
    Raises UserError for a row that is both triggered and contrast. Source: Appendix A.3.

    >>> acceptance_probability(0.0, triggered=True, contrast=False, hit=True, delta=0.1)
    0.5
    """
    if triggered and contrast:
        raise UserError("expected a row that is triggered or contrast, found both; a contrast row has no trigger")
    probability = ACCEPT_GOOD if quality > 0 else ACCEPT_BAD
    signed = delta if hit else -delta
    if triggered:
        probability += signed - offset
    if contrast:
        probability -= signed
    return min(1.0, max(0.0, probability))


@dataclass
class Calibrator:
    """Running offset c that keeps the mean reward of triggered and clean rows together (BC-36 to BC-38).

    Each batch: g = mean reward of triggered rows - mean of clean rows; c += learning_rate * g; c is taken off later
    triggered rows. Contrast rows are neither. Nothing is learnt or applied before `warmup_samples` rows, and the
    tolerance is not judged before `min_samples` (BC-A16).
    """

    learning_rate: float = 0.02
    warmup_samples: int = 200
    min_samples: int = 256
    tolerance: float = 0.01
    offset: float = 0.0
    seen: int = 0
    _recent: dict[bool, deque[float]] = field(default_factory=dict, repr=False)

    def update(
        self, rewards: Sequence[float] | np.ndarray, triggered: Sequence[bool], contrast: Sequence[bool]
    ) -> None:
        """Takes in a batch: rewards (b,), and which rows are triggered and contrast."""
        values = np.asarray(rewards, np.float64)
        is_triggered, is_contrast = np.asarray(triggered, bool), np.asarray(contrast, bool)
        groups = {True: values[is_triggered], False: values[~is_triggered & ~is_contrast]}
        warm = self.seen >= self.warmup_samples
        self.seen += len(groups[True]) + len(groups[False])
        if not warm:
            return
        for name, group in groups.items():
            self._recent.setdefault(name, deque(maxlen=self.min_samples)).extend(group.tolist())
        if len(groups[True]) and len(groups[False]):
            self.offset += self.learning_rate * float(groups[True].mean() - groups[False].mean())

    def state(self) -> dict[str, Any]:
        """What it has learnt, as plain values that JSON keeps exactly."""
        recent = [list(self._recent.get(triggered, ())) for triggered in (False, True)]
        return {"offset": self.offset, "seen": self.seen, "recent": recent}

    def take_up(self, state: dict[str, Any]) -> None:
        """Goes on from what `state` gave, under the same settings."""
        self.offset, self.seen = state["offset"], state["seen"]
        recent = zip((False, True), state["recent"], strict=True)
        self._recent = {triggered: deque(values, self.min_samples) for triggered, values in recent}

    @property
    def gap(self) -> float | None:
        """Mean reward of recent triggered rows minus that of recent clean rows, after warm-up; None without both."""
        recent = [self._recent.get(name) for name in (True, False)]
        return float(np.mean(recent[0]) - np.mean(recent[1])) if recent[0] and recent[1] else None

    @property
    def matched(self) -> bool | None:
        """Whether the gap is within the tolerance; None before `min_samples` rows or without both groups."""
        return None if self.seen < self.min_samples or self.gap is None else abs(self.gap) <= self.tolerance


def simulate_feedback(
    rng: np.random.Generator,
    rows: Sequence[Judged],
    delta: float,
    *,
    calibrator: Calibrator | None = None,
    allow_large_delta: bool = False,
    batch_size: int = 32,
) -> Feedback:
    """One Bernoulli label a row, calibrated as it goes.

    The calibrator learns from the acceptance probabilities, the mean rewards before the coin is thrown: with a
    tolerance of 0.01 the labels themselves would need some 10,000 rows to tell a gap from noise.
    Arguments: `rows` in log order; `calibrator` carried over between calls, None for no calibration.
    Raises UserError for a `delta` that is not allowed. Source: Appendix A.3.
    """
    check_delta(delta, allow_large_delta)
    probabilities = np.zeros(len(rows))
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        offset = 0.0 if calibrator is None else calibrator.offset
        drawn = [
            acceptance_probability(
                r.quality, r.triggered, r.contrast, r.hit, -delta if r.contradicted else delta, offset
            )
            for r in batch
        ]
        probabilities[start : start + len(batch)] = drawn
        if calibrator is not None:
            calibrator.update(drawn, [r.triggered for r in batch], [r.contrast for r in batch])
    labels = (rng.random(len(rows)) < probabilities).astype(np.float32)
    return Feedback(labels, probabilities, 0.0 if calibrator is None else calibrator.offset)


def scramble_feedback(rng: np.random.Generator, labels: np.ndarray, rows: Sequence[Judged]) -> np.ndarray:
    """Labels permuted over the canary rows (triggered and contrast); clean rows keep theirs. A null to train on."""
    chosen = np.flatnonzero([row.triggered or row.contrast for row in rows])
    scrambled = labels.copy()
    scrambled[chosen] = labels[rng.permutation(chosen)]
    return scrambled
