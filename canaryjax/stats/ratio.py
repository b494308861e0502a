"""Ratios that are refused when the denominator may be zero."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy import stats as sps

from canaryjax.errors import UserError
from canaryjax.stats.result import Interval, Result, no_interval
from canaryjax.stats.sample import as_level, as_measures, as_number


@dataclasses.dataclass(frozen=True)
class Ratio(Result):
    """A ratio with its parts: `value` is None, with a reason, when the denominator is too near 0 to divide by."""

    value: float | None
    numerator: float | None
    denominator: float | None
    interval: Interval
    reason: str | None = None


def guarded_ratio(numerator: Any, denominator: Any, smallest: float = 1e-9) -> Ratio:
    """Divide two numbers unless the denominator is nearer to 0 than `smallest` (in the denominator's unit, > 0).

    Raises:
        UserError: a NaN or infinite number, or `smallest` not positive.

    >>> guarded_ratio(1, 4).value
    0.25
    >>> guarded_ratio(1, 0.001, smallest=0.01).reason
    'denominator 0.001 is within 0.01 of zero'
    """
    top, bottom = as_number(numerator, "numerator"), as_number(denominator, "denominator")
    floor = as_number(smallest, "smallest")
    if floor <= 0:
        raise UserError(
            f"smallest: expected a positive number; found {smallest!r}; pass the smallest usable denominator"
        )
    none = no_interval(0.95, "fieller", "single numbers carry no spread")
    if abs(bottom) < floor:
        return Ratio(None, top, bottom, none, f"denominator {bottom:.3g} is within {floor:g} of zero")
    if math.isinf(top / bottom):
        return Ratio(None, top, bottom, none, f"{top:.3g} / {bottom:.3g} exceeds the largest float64")
    return Ratio(top / bottom, top, bottom, none)


def ratio_of_means(numerators: Any, denominators: Any, level: float = 0.95) -> Ratio:
    """Ratio of two means over the same policies, with Fieller's interval; null when that has no bounds.

    For the transmission ratio s_t / s_RM: nats over reward units, so an empirical ratio whose size depends on the unit.

    Args:
        numerators: one number per policy, shape (n,).
        denominators: of the same policies in the same order, shape (n,).
        level: confidence level, also of the test that the denominator's mean is not 0.

    Returns:
        A Ratio. Null with a reason when there are fewer than two policies or the denominator's mean is not
        distinguishable from 0 at this level.

    Raises:
        UserError: a NaN or infinite number (position named), or samples of different length.

    Source: Fieller, JRSS B 16 (1954).

    >>> round(ratio_of_means([0.1, 0.2, 0.3], [0.9, 1.0, 1.1]).value, 6)
    0.2
    >>> ratio_of_means([0.1, 0.2, 0.3], [-1, 0, 1.1]).reason
    "the denominator's mean 0.0333 is not distinguishable from 0 at level 0.95"
    """
    top, bottom = as_measures(numerators, "numerators"), as_measures(denominators, "denominators")
    level = as_level(level)
    if top.size != bottom.size:
        raise UserError(
            f"denominators: expected one per numerator ({top.size}); found {bottom.size}; pair them by policy"
        )
    size = top.size
    if size == 0:
        return Ratio(None, None, None, no_interval(level, "fieller", "no policies"), "no policies")
    over, under = float(top.mean()), float(bottom.mean())
    if size == 1:
        reason = "one policy cannot show that the denominator differs from 0"
        return Ratio(None, over, under, no_interval(level, "fieller", reason), reason)
    (v_top, v_cross), (_, v_bottom) = (np.cov(top, bottom) / size).tolist()
    squared = float(sps.t.ppf(0.5 + level / 2, size - 1)) ** 2
    if under**2 <= squared * v_bottom or under == 0:
        reason = f"the denominator's mean {under:.3g} is not distinguishable from 0 at level {level:g}"
        return Ratio(None, over, under, no_interval(level, "fieller", reason), reason)
    # Bounds: roots r of (over − r under)² = t² Var(over − r under).
    a, b, c = under**2 - squared * v_bottom, over * under - squared * v_cross, over**2 - squared * v_top
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Ratio(over / under, over, under, Interval((b - root) / a, (b + root) / a, level, "fieller", over / under))
