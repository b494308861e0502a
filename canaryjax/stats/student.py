"""Student's t interval of a mean, for few independent values such as training seeds."""

from __future__ import annotations

import math
from typing import Any

from scipy import stats

from canaryjax.stats.result import Interval, no_interval
from canaryjax.stats.sample import as_level, as_measures, variance


def student_interval(values: Any, level: float = 0.95) -> Interval:
    """Two-sided Student t interval of the mean, n - 1 degrees of freedom.

    Args:
        values: independent values, any unit.
        level: confidence level.

    Returns:
        An Interval with `estimate`; null with a reason below two values. At 3 values and 95 % the factor is 4.3027.

    >>> low, high = student_interval([1.0, 2.0, 3.0])
    >>> round(low, 4), round(high, 4)
    (-0.4841, 4.4841)
    """
    sample, level = as_measures(values, "values"), as_level(level)
    if not sample.size:
        return no_interval(level, "student", "no values")
    mean = float(sample.mean())
    if sample.size < 2:
        return no_interval(level, "student", "needs at least 2 values, found 1", mean)
    half = float(stats.t.ppf((1 + level) / 2, sample.size - 1)) * math.sqrt(variance(sample) / sample.size)
    reason = f"degenerate: all {sample.size} values are equal" if half == 0 else None
    return Interval(mean - half, mean + half, level, "student", mean, reason, f"t with {sample.size - 1} df over seeds")
