"""Intervals for counts (one rate, a difference of two) and for a mean."""

from __future__ import annotations

import math
from typing import Any

from scipy import stats as sps

from canaryjax.stats.result import Interval, no_interval
from canaryjax.stats.sample import all_equal, as_hits, as_level, as_measures

NO_TRIALS = "no trials: n = 0"


def clopper_pearson(k: Any, n: Any, level: float = 0.95) -> Interval:
    """Exact interval for a proportion: never covers less than its level, at the cost of width.

    Args:
        k: successes, whole number, 0 <= k <= n.
        n: trials; n = 0 gives a null interval with a reason.
        level: confidence level, 0 < level < 1.

    Raises:
        UserError: k > n, a negative or broken count, a level outside (0, 1).

    Source: Clopper and Pearson, Biometrika 26 (1934); the beta form.

    >>> low, high = clopper_pearson(0, 20, 0.95)
    >>> low, round(high, 4)
    (0.0, 0.1684)
    """
    hits, trials = as_hits(k, n)
    level = as_level(level)
    if trials == 0:
        return no_interval(level, "clopper-pearson", NO_TRIALS)
    tail = (1.0 - level) / 2.0
    low = 0.0 if hits == 0 else float(sps.beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(sps.beta.ppf(1.0 - tail, hits + 1, trials - hits))
    return Interval(low, high, level, "clopper-pearson", hits / trials)


def wilson_interval(k: Any, n: Any, level: float = 0.95) -> Interval:
    """Score interval for a proportion: covers its level on average, and has width at 0/n and n/n too.

    Args, raises: as `clopper_pearson`.

    Source: Wilson, JASA 22 (1927).

    >>> low, high = wilson_interval(0, 20)
    >>> low, round(high, 4)
    (0.0, 0.1611)
    >>> wilson_interval(0, 0).reason
    'no trials: n = 0'
    """
    hits, trials = as_hits(k, n)
    level = as_level(level)
    if trials == 0:
        return no_interval(level, "wilson", NO_TRIALS)
    low, high = _wilson_bounds(hits, trials, level)
    return Interval(low, high, level, "wilson", hits / trials)


def _wilson_bounds(hits: int, trials: int, level: float) -> tuple[float, float]:
    z = _z(level)
    rate = hits / trials
    centre = rate + z * z / (2 * trials)
    spread = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # At the ends the closed form is exactly 0 or 1; rounding must not make it 1e-17 or 0.9999.
    low = 0.0 if hits == 0 else (centre - spread) / scale
    high = 1.0 if hits == trials else (centre + spread) / scale
    return low, high


def newcombe_interval(k1: Any, n1: Any, k2: Any, n2: Any, level: float = 0.95) -> Interval:
    """Interval for the difference of two independent proportions, k1/n1 − k2/n2.

    Use it for an excess over a control rate; it keeps its width when a count is 0 or full.

    Args:
        k1, n1: successes and trials of the first sample.
        k2, n2: of the second; n1 = 0 or n2 = 0 gives a null interval with a reason.
        level: confidence level, 0 < level < 1.

    Raises:
        UserError: as `clopper_pearson`.

    Source: Newcombe, Statistics in Medicine 17 (1998) 873, method 10 (Wilson bounds, no continuity correction).

    >>> [round(bound, 4) for bound in newcombe_interval(56, 70, 48, 80)]
    [0.0524, 0.3339]
    """
    hits_a, trials_a = as_hits(k1, n1)
    hits_b, trials_b = as_hits(k2, n2)
    level = as_level(level)
    if trials_a == 0 or trials_b == 0:
        return no_interval(level, "newcombe", NO_TRIALS)
    rate_a, rate_b = hits_a / trials_a, hits_b / trials_b
    low_a, high_a = _wilson_bounds(hits_a, trials_a, level)
    low_b, high_b = _wilson_bounds(hits_b, trials_b, level)
    difference = rate_a - rate_b
    low = difference - math.hypot(rate_a - low_a, high_b - rate_b)
    high = difference + math.hypot(high_a - rate_a, rate_b - low_b)
    return Interval(max(low, -1.0), min(high, 1.0), level, "newcombe", difference)


def mean_interval(values: Any, level: float = 0.95) -> Interval:
    """Student t interval for a mean: the error bars of a panel, or the spread between training seeds.

    Args:
        values: scores, shape (n,), any unit; fewer than two give a null interval with a reason.
        level: confidence level, 0 < level < 1.

    Raises:
        UserError: a NaN or infinite value (its position is named), a level outside (0, 1).

    >>> [round(bound, 4) for bound in mean_interval([1, 2, 3])]
    [-0.4841, 4.4841]
    >>> mean_interval([5]).reason
    'needs at least 2 values, found 1'
    """
    sample, level = as_measures(values, "values"), as_level(level)
    size = sample.size
    centre = float(sample.mean()) if size else None
    if size < 2 or centre is None:
        return no_interval(level, "student-t", f"needs at least 2 values, found {size}", centre)
    if all_equal(sample):
        point = float(sample[0])
        return Interval(point, point, level, "student-t", point, "degenerate: all values are equal")
    reach = float(sps.t.ppf(0.5 + level / 2, size - 1)) * float(sample.std(ddof=1)) / math.sqrt(size)
    return Interval(centre - reach, centre + reach, level, "student-t", centre, None, f"{size - 1} degrees of freedom")


def _z(level: float) -> float:
    return float(sps.norm.ppf(0.5 + level / 2))
