"""How well two groups of policy scores separate: area, curve, predictive value, and what a detector misses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from canaryjax.stats.result import Result
from canaryjax.stats.sample import Floats, as_fraction, as_measures, as_number, as_scores


def auroc(negatives: Any, positives: Any) -> float | None:
    """Probability that a positive outscores a negative, ties counted one half.

    1.0 means every positive (violating) policy lies above every negative (compliant) one; 0.0 the reverse, which
    mostly means that the labels are swapped (`direction_warning`).

    Args:
        negatives: scores of the compliant policies, shape (n0,), finite, any unit.
        positives: scores of the violating policies, shape (n1,).

    Returns:
        The area as a float, or None when an arm is empty.

    Raises:
        UserError: a NaN or infinite score (its position is named), or not a flat list of numbers.

    Source: Mann and Whitney's U over n0 n1.

    >>> auroc([1, 2, 3], [2, 3, 4])
    0.7777777777777778
    >>> auroc([], [1]) is None
    True
    """
    low, high = as_scores(negatives, "negatives"), as_scores(positives, "positives")
    if not low.size or not high.size:
        return None
    ordered = np.sort(low)
    # Twice the wins is a whole number, so the area is one correctly rounded division.
    twice = int(np.searchsorted(ordered, high, "left").sum() + np.searchsorted(ordered, high, "right").sum())
    return twice / (2 * low.size * high.size)


def direction_warning(negatives: Any, positives: Any) -> str | None:
    """Say in words that the positives score below the negatives, or None when they do not (or an arm is empty).

    >>> direction_warning([3, 4], [1, 2])
    'AUROC is 0.000, below 0.5: positives score lower than negatives; check that the labels are not swapped'
    >>> direction_warning([1, 2], [3, 4]) is None
    True
    """
    area = auroc(negatives, positives)
    if area is None or area >= 0.5:
        return None
    return (
        f"AUROC is {area:.3f}, below 0.5: positives score lower than negatives; check that the labels are not swapped"
    )


@dataclasses.dataclass(frozen=True)
class RocCurve(Result):
    """Points of a ROC curve from (0, 0) to (1, 1); `fpr, tpr, thresholds = curve` works.

    Attributes:
        fpr: share of negatives strictly above each threshold, float64 (k,).
        tpr: share of positives strictly above it, float64 (k,).
        thresholds: distinct scores in falling order, then minus infinity, float64 (k,).
        reason: why the arrays are empty, or None.
    """

    fpr: Floats
    tpr: Floats
    thresholds: Floats
    reason: str | None = None

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.fpr, self.tpr, self.thresholds))

    @property
    def points(self) -> list[tuple[float, float]]:
        """The curve as (fpr, tpr) pairs."""
        return list(zip(self.fpr.tolist(), self.tpr.tolist(), strict=True))


def roc_curve(negatives: Any, positives: Any) -> RocCurve:
    """ROC curve with one point per distinct score, so that an outlier moves nothing but its own point.

    A policy is called positive when its score is strictly above the threshold, as in `tpr_at_fpr`.

    Args, raises: as `auroc`. An empty arm gives empty arrays with a reason.

    >>> roc_curve([0, 1], [1, 2]).points
    [(0.0, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 1.0)]
    """
    low, high = as_scores(negatives, "negatives"), as_scores(positives, "positives")
    if not low.size or not high.size:
        empty = np.zeros(0)
        return RocCurve(empty, empty, empty, empty_arm_reason(low, high))
    cuts = np.concatenate([np.unique(np.concatenate([low, high]))[::-1], [-np.inf]])
    rates = [(arm.size - np.searchsorted(np.sort(arm), cuts, "right")) / arm.size for arm in (low, high)]
    return RocCurve(rates[0], rates[1], cuts)


def empty_arm_reason(negatives: Floats, positives: Floats) -> str | None:
    """Say which arm has no scores, or None."""
    missing = [name for name, arm in (("negatives", negatives), ("positives", positives)) if arm.size == 0]
    return f"no {' and no '.join(missing)}" if missing else None


def ppv(tpr: float | None, fpr: float | None, prevalence: float) -> float | None:
    """Share of flagged policies that are truly positive, TPR π / (TPR π + FPR (1 − π)).

    Show it at several prevalences: 0.67 at FPR 0.10 is 87 % when half the policies violate and 6 % when one in a
    hundred does.

    Args:
        tpr: true positive rate in [0, 1], or None when it was undefined.
        fpr: false positive rate in [0, 1], or None.
        prevalence: share π of positives in the population, in [0, 1].

    Returns:
        The value, or None when nothing is ever flagged (0/0) or a rate is None.

    Raises:
        UserError: a value outside [0, 1].

    >>> round(ppv(0.67, 0.10, 0.5), 4)
    0.8701
    >>> ppv(0, 0, 0.5) is None
    True
    """
    share = as_fraction(prevalence, "prevalence")
    if tpr is None or fpr is None:
        return None
    hits = as_fraction(tpr, "tpr") * share
    flagged = hits + as_fraction(fpr, "fpr") * (1.0 - share)
    return hits / flagged if flagged > 0 else None


@dataclasses.dataclass(frozen=True)
class Remainder(Result):
    """AUROC of the positives that a threshold misses, against all negatives.

    Attributes:
        value: area, or None.
        count: missed positives.
        n: all positives.
        threshold: the threshold, in score units.
        warning: set when the missed positives score below the negatives, which "undetected" alone cannot explain.
        reason: why the value is None.
    """

    value: float | None
    count: int
    n: int
    threshold: float | None
    warning: str | None = None
    reason: str | None = None


def remainder_auroc(negatives: Any, positives: Any, threshold: float | None) -> Remainder:
    """Area of the positives at or below the threshold: near 0.5 if training left no trace in them, since below the
    threshold both groups then look alike (a little under 0.5: the negatives keep their upper tail).

    Args:
        negatives, positives: as `auroc`.
        threshold: as `tpr_at_fpr` found it; None gives a null with a reason.

    >>> remainder_auroc([0, 1, 2, 3], [9, 9, 9, -1], 3).value
    0.0
    """
    low, high = as_scores(negatives, "negatives"), as_scores(positives, "positives")
    reason = empty_arm_reason(low, high)
    if threshold is None or reason is not None:
        return Remainder(None, 0, high.size, threshold, None, reason or "no threshold")
    cut = as_number(threshold, "threshold")
    missed = high[high <= cut]
    if not missed.size:
        return Remainder(None, 0, high.size, cut, None, "every positive is above the threshold")
    area = auroc(low, missed)
    # What "no trace" predicts: missed positives drawn like the negatives at or below the same threshold.
    below = low[low <= cut]
    expected = auroc(low, below) if below.size else None
    warning = None
    # Two standard errors of an area without effect, sqrt((1/n0 + 1/n1) / 12) for large samples.
    margin = 2 * math.sqrt((1 / missed.size + 1 / low.size) / 12)
    if area is not None and expected is not None and area < expected - margin:
        warning = (
            f"the {missed.size} undetected positives have AUROC {area:.3f} against the negatives: "
            "they score below them, so the score moves both ways; look at a two-sided score"
        )
    return Remainder(area, missed.size, high.size, cut, warning)


def implied_remainder_auroc(area: float, tpr: float, fpr: float) -> tuple[float, float] | None:
    """Bounds on the area of the undetected positives that a published AUROC and operating point force.

    The detected share contributes between 1 − fpr and 1 to the area, and the rest must make up the difference.

    Returns:
        (low, high), not clipped: a bound outside [0, 1] says that the published numbers contradict each other. None
        when tpr is 1.

    >>> [round(bound, 2) for bound in implied_remainder_auroc(0.756, 0.67, 0.01)]
    [0.26, 0.28]
    """
    whole, hit, miss = as_fraction(area, "area"), as_fraction(tpr, "tpr"), as_fraction(fpr, "fpr")
    if hit == 1.0:
        return None
    return (whole - hit) / (1.0 - hit), (whole - hit * (1.0 - miss)) / (1.0 - hit)


def two_sided_scores(scores: Any, centre: float = 0.0) -> Floats:
    """Distance of each score from a centre fixed beforehand, for effects that may go either way.

    The centre must not be estimated from the compliant scores that set the threshold: they would sit closer to it than
    a new compliant policy does. Net scores have the natural centre 0.

    >>> two_sided_scores([-2, 1]).tolist()
    [2.0, 1.0]
    """
    return np.abs(as_measures(scores, "scores") - as_number(centre, "centre"))
