"""Equivalence: whether a difference of means is shown to be smaller than a margin, by two one-sided tests."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from scipy import stats as sps

from canaryjax.errors import UserError
from canaryjax.stats.result import Interval, PValue, no_interval
from canaryjax.stats.sample import as_level, as_measures, as_number, variance, welch_error

# A standard error below this share of the margin is rounding: differences of equal numbers that were taken apart.
ROUNDING = 1e-9

NOT_SHOWN = "not shown equivalent"
DIFFERS = "differs"


@dataclasses.dataclass(frozen=True)
class Equivalence(PValue):
    """Result of `paired_equivalence` and `welch_equivalence`.

    Attributes:
        difference: of the means; None where a sample is empty.
        interval: of the difference, Student t or Welch.
        margin: in the unit of the difference.
        p_value: of the two one-sided tests, the larger one: small where the difference is within the margin.
        p_below, p_above: of the test against a difference of at most −margin, and against one of at least +margin.
        equivalent: `p_value` is at most 1 − level; None where nothing was tested.
        differs: `interval` lies on one side of 0; None where there is none.
        verdict: "equivalent within MARGIN" (", though not 0" where both hold), "differs", or "not shown equivalent":
            two samples are never said to be the same for lack of a difference.
        n: differences, or the two samples' sizes.
        reason: why nothing was tested.
    """

    difference: float | None
    interval: Interval
    margin: float
    p_value: float | None
    p_below: float | None
    p_above: float | None
    equivalent: bool | None
    differs: bool | None
    verdict: str
    n: int | tuple[int, int]
    design: Literal["paired", "independent"]
    reason: str | None = None


def paired_equivalence(differences: Any, margin: Any, level: float = 0.95) -> Equivalence:
    """Two one-sided t tests that the mean of paired differences is within a margin of 0.

    Use it where each unit was measured twice: a policy and the base on the same questions, a trial of two cells.

    Args:
        differences: one a unit, shape (n,), any unit; fewer than two, or equal ones, give no test and a reason.
        margin: > 0, in the unit of the differences; the largest difference that would not matter.
        level: of the interval; each one-sided test is at 1 − level.

    Raises:
        UserError: a NaN or infinite difference (position named), a margin that is not positive.

    Source: Schuirmann, J. Pharmacokin. Biopharm. 15 (1987).

    >>> result = paired_equivalence([0.01, -0.01, 0.0, 0.004], 0.02)
    >>> result.verdict, round(result.p_value, 4)
    ('equivalent within 0.02', 0.0101)
    """
    sample, width, level = as_measures(differences, "differences"), as_margin(margin), as_level(level)
    size = sample.size
    centre = float(sample.mean()) if size else None
    if size < 2 or centre is None:
        return _untested(centre, width, level, "student-t", size, "paired", f"needs at least 2 units, found {size}")
    error = math.sqrt(variance(sample) / size)
    if error <= ROUNDING * width:
        reason = f"all {size} differences are {centre:.4g}: without spread there is no test"
        return _untested(centre, width, level, "student-t", size, "paired", reason)
    return _tested(centre, error, size - 1, width, level, "student-t", size, "paired")


def welch_equivalence(a: Any, b: Any, margin: Any, level: float = 0.95) -> Equivalence:
    """Two one-sided Welch t tests that mean(a) − mean(b) is within a margin of 0, for independent samples.

    Args:
        a, b: shape (n,) each, any unit; fewer than two in one, or no spread in both, give no test and a reason.
        margin, level: as `paired_equivalence`.

    Raises:
        UserError: as `paired_equivalence`.

    Source: Schuirmann, J. Pharmacokin. Biopharm. 15 (1987); Welch, Biometrika 34 (1947) for unequal variances.

    >>> welch_equivalence([0.5, 0.6, 0.7], [0.4, 0.6, 0.8], 0.02).verdict
    'not shown equivalent'
    """
    first, second = as_measures(a, "a"), as_measures(b, "b")
    width, level = as_margin(margin), as_level(level)
    sizes = (first.size, second.size)
    difference = float(first.mean() - second.mean()) if min(sizes) else None
    if min(sizes) < 2 or difference is None:
        reason = f"needs at least 2 units in each sample, found {sizes[0]} and {sizes[1]}"
        return _untested(difference, width, level, "welch", sizes, "independent", reason)
    error, df = welch_error(first, second)
    if error <= ROUNDING * width:
        reason = "both samples are constant: without spread there is no test"
        return _untested(difference, width, level, "welch", sizes, "independent", reason)
    return _tested(difference, error, df, width, level, "welch", sizes, "independent")


def as_margin(margin: Any) -> float:
    """Check an equivalence margin, > 0.

    >>> as_margin(0)
    Traceback (most recent call last):
        ...
    canaryjax.errors.UserError: margin: expected a positive number; found 0; name the largest difference that would \
not matter
    """
    number = as_number(margin, "margin")
    if number <= 0:
        raise UserError(
            f"margin: expected a positive number; found {margin!r}; name the largest difference that would not matter"
        )
    return number


def _tested(
    difference: float, error: float, df: float, margin: float, level: float, method: str, n: Any, design: Any
) -> Equivalence:
    p_below = float(sps.t.sf((difference + margin) / error, df))
    p_above = float(sps.t.cdf((difference - margin) / error, df))
    reach = float(sps.t.ppf(0.5 + level / 2, df)) * error
    detail = f"{df:.4g} degrees of freedom"
    interval = Interval(difference - reach, difference + reach, level, method, difference, None, detail)
    p_value = max(p_below, p_above)
    equivalent, differs = p_value <= 1 - level, abs(difference) > reach
    verdict = DIFFERS if differs else NOT_SHOWN
    if equivalent:
        verdict = f"equivalent within {margin:g}{', though not 0' if differs else ''}"
    return Equivalence(
        difference, interval, margin, p_value, p_below, p_above, equivalent, differs, verdict, n, design
    )  # fmt: skip


def _untested(
    difference: float | None, margin: float, level: float, method: str, n: Any, design: Any, reason: str
) -> Equivalence:
    interval = no_interval(level, method, reason, difference)
    return Equivalence(
        difference, interval, margin, None, None, None, None, None, NOT_SHOWN, n, design, reason
    )  # fmt: skip
