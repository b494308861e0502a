"""How far two arms lie apart in standard deviations, which does not depend on the unit of the score."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy import stats as sps
from scipy.optimize import brentq
from scipy.special import gammaln, ndtr

from canaryjax.stats.detection import empty_arm_reason
from canaryjax.stats.result import Interval, Result, no_interval
from canaryjax.stats.sample import Floats, as_level, as_measures, variance

NODES = 512  # of the integral below, whose error is then below 1e-6 from 2 degrees of freedom on


@dataclasses.dataclass(frozen=True)
class StandardisedEffect(Result):
    """Result of `hedges_g`.

    Attributes:
        value: difference of means in pooled standard deviations, positive when the second sample is larger; or None.
        interval: of the true difference, by the noncentral t law, for normal scores of equal variance.
        n0, n1: sample sizes.
        reason: why the value is None.
    """

    value: float | None
    interval: Interval
    n0: int
    n1: int
    reason: str | None = None


def hedges_g(negatives: Any, positives: Any, level: float = 0.95) -> StandardisedEffect:
    """Difference of two means over their pooled standard deviation, corrected for its bias in small samples.

    Use it to set scores of different units beside each other, such as nats and reward units.

    Args:
        negatives, positives: shape (n0,) and (n1,), at least one each and four together.
        level: confidence level.

    Returns:
        A StandardisedEffect; null with a reason for too few scores, or where neither sample varies.

    Raises:
        UserError: a NaN, infinite or huge score (position named), level out of range.

    Source: Hedges, Journal of Educational Statistics 6 (1981) 107; interval as in Steiger and Fouladi (1997).

    >>> effect = hedges_g([1, 2, 3, 4], [3, 4, 5, 6])
    >>> round(effect.value, 4), [round(bound, 3) for bound in effect.interval]
    (1.3457, [-0.125, 3.134])
    """
    low, high = as_measures(negatives, "negatives"), as_measures(positives, "positives")
    level, sizes = as_level(level), (low.size, high.size)
    reason = empty_arm_reason(low, high)
    freedom = sum(sizes) - 2
    if reason is None and freedom < 2:  # with one degree of freedom the estimate has no finite mean
        reason = f"needs at least 4 scores together, found {sum(sizes)}"
    found = standardised_difference(low, high) if reason is None else None
    if found is None:
        reason = reason or "no score differs from the others of its arm"
        return StandardisedEffect(None, no_interval(level, "noncentral-t", reason), *sizes, reason)
    return StandardisedEffect(found[1], _noncentral_interval(*found, sizes, level), *sizes)


def standardised_difference(low: Floats, high: Floats) -> tuple[float, float] | None:
    """Cohen's d and Hedges' g of mean(high) − mean(low), four values together; None where neither sample varies."""
    freedom = low.size + high.size - 2
    squares = sum(variance(arm) * (arm.size - 1) for arm in (low, high) if arm.size > 1)
    spread = math.sqrt(squares / freedom)
    if spread == 0:
        return None
    d = float(high.mean() - low.mean()) / spread
    # J(m) = Γ(m/2) / (√(m/2) Γ((m − 1)/2)), Hedges' equation 6e.
    return d, d * math.exp(gammaln(freedom / 2) - gammaln((freedom - 1) / 2)) / math.sqrt(freedom / 2)


@functools.cache
def _nodes() -> tuple[Floats, Floats]:
    """Places and weights of Gauss and Legendre's rule on (-1, 1)."""
    return np.polynomial.legendre.leggauss(NODES)


def _noncentral_interval(d: float, value: float, sizes: tuple[int, int], level: float) -> Interval:
    """The true effects under which the observed t would lie in either tail."""
    scale = math.sqrt(1 / sizes[0] + 1 / sizes[1])
    observed, freedom, tail = d / scale, sum(sizes) - 2, (1 - level) / 2
    # P(t <= observed) is the mean of Φ(observed s - noncentrality) over the law of s, the pooled over the true standard
    # deviation, taken along its quantiles: SciPy's `nct` gives NaN for some of the values that a search comes by.
    places, weights = _nodes()
    ratios = np.sqrt(sps.chi2.ppf((places + 1) / 2, freedom) / freedom)

    def bound(probability: float) -> float:
        def gap(noncentrality: float) -> float:
            return float(weights @ ndtr(observed * ratios - noncentrality)) / 2 - probability

        reach = 10 + abs(observed)  # doubled until the probability lies between
        while gap(observed - reach) < 0 or gap(observed + reach) > 0:
            reach *= 2
        return float(brentq(gap, observed - reach, observed + reach))

    low, high = (scale * bound(p) for p in (1 - tail, tail))
    return Interval(low, high, level, "noncentral-t", value)
