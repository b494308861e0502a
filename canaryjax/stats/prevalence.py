"""A rate put on the scale between two control rates, and how the controls weigh a count."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from scipy.special import betaln

from canaryjax.stats.result import Result
from canaryjax.stats.sample import as_fraction, as_hits


@dataclasses.dataclass(frozen=True)
class Prevalence(Result):
    """A normalised rate: 0 at the floor, 1 at the ceiling.

    Attributes:
        raw: (rate − floor)/(ceiling − floor), as it comes; below 0 or above 1 where the rate lies outside of them.
        clipped: the same, moved into [0, 1].
        reason: why both are None.
    """

    raw: float | None
    clipped: float | None
    reason: str | None = None


def rogan_gladen(rate: float | None, floor: float | None, ceiling: float | None) -> Prevalence:
    """Share of true positives that a rate implies, from a test's false and true positive rates.

    Args:
        rate: observed share of hits, in [0, 1], or None where nothing was observed.
        floor: share of hits where nothing is to be found, or None.
        ceiling: share of hits where there is, or None.

    Returns:
        Null with a reason where one of them is missing, or the ceiling is not above the floor.

    Raises:
        UserError: a rate outside [0, 1].

    Source: Rogan and Gladen, Am. J. Epidemiol. 107 (1978) 71.

    >>> round(rogan_gladen(0.4, 0.05, 0.75).raw, 6)
    0.5
    >>> rogan_gladen(0.4, 0.2, 0.2).reason
    'the ceiling 0.2 is not above the floor 0.2'
    """
    named = {"rate": rate, "floor": floor, "ceiling": ceiling}
    missing = [name for name, value in named.items() if value is None]
    if rate is None or floor is None or ceiling is None:
        return Prevalence(None, None, f"no {' and no '.join(missing)}")
    seen, low, high = (as_fraction(value, name) for name, value in named.items())
    if high <= low:
        return Prevalence(None, None, f"the ceiling {high:g} is not above the floor {low:g}")
    raw = (seen - low) / (high - low)
    return Prevalence(raw, min(1.0, max(0.0, raw)))


def jeffreys_rate(k: Any, n: Any) -> float:
    """Rate smoothed by Jeffreys' prior, (k + 0.5)/(n + 1): the mean of Beta(k + 0.5, n − k + 0.5), never 0 or 1.

    Raises:
        UserError: k > n, or a negative or broken count.

    >>> jeffreys_rate(0, 0)
    0.5
    """
    hits, trials = as_hits(k, n)
    return (hits + 0.5) / (trials + 1)


def beta_binomial_ratio(k: Any, n: Any, k1: Any, n1: Any, k0: Any, n0: Any) -> float:
    """How much likelier k hits of n are at the rate of one control than at the other's, both rates integrated out.

    Each control's rate follows Beta(k + 0.5, n − k + 0.5), so a control of few trials weighs less than its plug-in rate
    would.

    Args:
        k, n: hits and trials that are weighed.
        k1, n1: hits and trials of the control that the numerator assumes.
        k0, n0: of the one that the denominator assumes.

    Returns:
        B(a1 + k, b1 + n − k)/B(a1, b1) over the same of a0, b0: a positive number, 1 for n = 0.

    Raises:
        UserError: k > n, or a negative or broken count.

    >>> beta_binomial_ratio(0, 0, 5, 8, 0, 20)
    1.0
    >>> round(beta_binomial_ratio(1, 1, 5, 8, 0, 20), 2)  # of a single trial it is the ratio of the smoothed rates
    25.67
    """
    hits, trials = as_hits(k, n)

    def log_likelihood(control_hits: int, control_trials: int) -> float:
        a, b = control_hits + 0.5, control_trials - control_hits + 0.5
        return float(betaln(a + hits, b + trials - hits) - betaln(a, b))

    return math.exp(log_likelihood(*as_hits(k1, n1)) - log_likelihood(*as_hits(k0, n0)))
