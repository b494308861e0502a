"""Intervals for the AUROC: score (Newcombe), bootstrap, DeLong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats as sps
from scipy.optimize import brentq

from canaryjax.stats.detection import auroc, empty_arm_reason
from canaryjax.stats.resampling import RESAMPLES, SCHEMES, bootstrap_aurocs, describe, percentile_interval
from canaryjax.stats.result import Interval, no_interval
from canaryjax.stats.sample import Floats, as_choice, as_count, as_level, as_scores, variance

METHODS = ("newcombe", "bootstrap", "delong", "auto")
SMALL_ARM = 30  # DECIDED: below this, or at an area of 0 or 1, bootstrap and DeLong collapse


def auroc_interval(
    negatives: Any,
    positives: Any,
    level: float = 0.95,
    method: str = "newcombe",
    resamples: int = RESAMPLES,
    seed: Any = 0,
    scheme: str = "stratified",
) -> Interval:
    """Confidence interval for the AUROC.

    Args:
        negatives: scores of the compliant policies, shape (n0,).
        positives: scores of the violating policies, shape (n1,).
        level: confidence level; 0.90 is the 5 to 95 % of the source study.
        method: "newcombe", the score form of Hanley and McNeil, holds at any size and at perfect separation.
            "bootstrap", percentiles over policies. "delong", normal with the placement variance, cut at 0 and 1; null
            at perfect separation or with one policy in an arm, where that variance is 0 or unknown. "auto": newcombe
            when an arm has fewer than 30 policies or the area is 0 or 1, else bootstrap.
        resamples, seed, scheme: of the bootstrap; scheme "stratified" or "pooled" (resamples that lack an arm are
            skipped and counted in `detail`).

    Returns:
        An Interval whose `method` is the one used. An empty arm gives a null with a reason.

    Raises:
        UserError: a NaN or infinite score (position named), level out of range, unknown method or scheme.

    Source: Newcombe, Statistics in Medicine 25 (2006) 559, method 5; DeLong et al., Biometrics 44 (1988).

    >>> low, high = auroc_interval(range(8), range(8, 16), 0.95)
    >>> round(low, 2), high
    (0.76, 1.0)
    >>> auroc_interval([1], range(2, 52), 0.95, method="delong").reason
    'needs at least 2 scores per arm, found 1 and 50'
    """
    low, high = as_scores(negatives, "negatives"), as_scores(positives, "positives")
    level = as_level(level)
    as_choice(method, "method", METHODS)
    as_choice(scheme, "scheme", SCHEMES)
    area = auroc(low, high)
    if method == "auto":
        small = min(low.size, high.size) < SMALL_ARM or area in (0.0, 1.0)
        method = "newcombe" if small else "bootstrap"
    if area is None:
        return no_interval(level, method, str(empty_arm_reason(low, high)))
    if method == "newcombe":
        return _newcombe(area, low.size, high.size, level)
    if method == "delong":
        return _delong(low, high, area, level)
    count = as_count(resamples, "resamples", 1)
    draws = bootstrap_aurocs(low, high, count, seed, scheme)
    return percentile_interval(draws, level, area, describe(scheme, count, draws.size))


def _newcombe(area: float, n0: int, n1: int, level: float) -> Interval:
    """Solve (t − A)² = z² V(t), V = t(1 − t)[1 + (N − 1)((1 − t)/(2 − t) + t/(1 + t))]/(n0 n1), N = (n0 + n1)/2."""
    z = float(sps.norm.ppf(0.5 + level / 2))
    extra = (n0 + n1) / 2 - 1

    def spread(t: float) -> float:
        return z * z * (1 + extra * ((1 - t) / (2 - t) + t / (1 + t))) / (n0 * n1)

    def gap(t: float) -> float:
        return (t - area) ** 2 - t * (1 - t) * spread(t)

    # At A = 0 and A = 1 the point itself is a root; divide it out to find the other bound.
    if area == 1.0:
        low, high = brentq(lambda t: (1 - t) - t * spread(t), 0.0, 1.0), 1.0
    elif area == 0.0:
        low, high = 0.0, brentq(lambda t: t - (1 - t) * spread(t), 0.0, 1.0)
    else:
        low, high = brentq(gap, 0.0, area), brentq(gap, area, 1.0)
    return Interval(float(low), float(high), level, "newcombe", area)


def _delong(low: Floats, high: Floats, area: float, level: float) -> Interval:
    if min(low.size, high.size) < 2:
        reason = f"needs at least 2 scores per arm, found {low.size} and {high.size}"
        return no_interval(level, "delong", reason, area)
    spread = variance(placements(low, high)) / high.size + variance(placements(high, low)) / low.size
    if spread == 0:
        reason = "the placement variance is 0 (perfect separation, or all scores equal)"
        return no_interval(level, "delong", reason, area)
    reach = float(sps.norm.ppf(0.5 + level / 2)) * math.sqrt(spread)
    return Interval(max(area - reach, 0.0), min(area + reach, 1.0), level, "delong", area)


def placements(reference: Floats, scores: Floats) -> Floats:
    """Share of the reference sample below each score, ties one half, shape as `scores`."""
    ordered = np.sort(reference)
    twice = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    return twice / (2 * reference.size)
