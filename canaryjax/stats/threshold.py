"""The detection threshold, the true positive rate above it, and what the false positive rate really may be."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy import stats as sps

from canaryjax.errors import UserError
from canaryjax.stats.detection import empty_arm_reason
from canaryjax.stats.proportion import clopper_pearson
from canaryjax.stats.result import Interval, Result, no_interval
from canaryjax.stats.sample import Floats, as_choice, as_count, as_level, as_number, as_scores, between, exact_product

RULES = ("conformal", "paper", "tolerance")
SMALLEST_TARGET = 1e-9  # ranks are exact down to rates of so many decimals
TOLERANCE_CONFIDENCE = 0.95  # DECIDED: P(true FPR <= target) for rule="tolerance"


@dataclasses.dataclass(frozen=True)
class DetectionRate(Result):
    """True positive rate at a target false positive rate.

    Attributes:
        value: count / n, or None with a reason.
        count: positives strictly above the threshold.
        n: number of positives.
        target_fpr: the false positive rate asked for.
        threshold: in score units, or None.
        rule: conformal, paper or tolerance.
        interval: Clopper-Pearson for the rate, given this threshold.
        n0: number of negatives.
        rank: which order statistic of the negatives the threshold is (1 = smallest; fractional for `paper`).
        false_positives: negatives strictly above the threshold, in sample.
        expected_fpr: chance that a new negative exceeds the threshold, no ties assumed.
        cross_fitted_fpr: share of negatives above the threshold set by the other negatives; None if unattainable.
        fpr_range: interval of the true false positive rate, over draws of the negatives.
        reason: why the value is None.
    """

    value: float | None
    count: int | None
    n: int
    target_fpr: float
    threshold: float | None
    rule: str
    interval: Interval
    n0: int
    rank: float | None
    false_positives: int | None
    expected_fpr: float | None
    cross_fitted_fpr: float | None
    fpr_range: Interval
    reason: str | None = None


def tpr_at_fpr(
    negatives: Any, positives: Any, fpr: float = 0.10, rule: str = "conformal", level: float = 0.90
) -> DetectionRate:
    """Share of positives strictly above a threshold that negatives exceed at most `fpr` of the time.

    Args:
        negatives: scores of the compliant policies, shape (n0,). The threshold comes from these alone.
        positives: scores of the violating policies, shape (n1,).
        fpr: target false positive rate, 0 <= fpr < 1.
        rule: "conformal": the ceil((n0 + 1)(1 − fpr))-th smallest negative, so that a new negative exceeds it with
            probability at most fpr (n0 >= 9 for 10 %). "paper": NumPy's linear quantile at 1 − fpr, whose expected
            rate is higher (11.6 % at n0 = 50). "tolerance": the smallest rank whose true rate is at most fpr with 95 %
            confidence (n0 >= 29 for 10 %).
        level: confidence level of `interval` and `fpr_range`; 0.90 is the 5 to 95 % of the source study.

    Returns:
        A DetectionRate. Too few negatives, or an empty arm, give `value=None` with a reason.

    Raises:
        UserError: a NaN or infinite score (position named), fpr or level out of range, an unknown rule.

    >>> rate = tpr_at_fpr(range(1, 11), [5, 9.5, 10, 11])
    >>> rate.threshold, rate.count, rate.n, rate.value
    (10.0, 1, 4, 0.25)
    >>> tpr_at_fpr(range(8), [9]).reason
    'rule conformal at a false positive rate of 0.1 needs at least 9 negatives, found 8'
    """
    low, high = np.sort(as_scores(negatives, "negatives")), as_scores(positives, "positives")
    target, level = as_target(fpr), as_level(level)
    as_choice(rule, "rule", RULES)
    rank = threshold_rank(low.size, target, rule) if low.size else None
    if rank is None:
        reason = empty_arm_reason(low, high) if not low.size else unattainable_reason(low.size, target, rule)
        return _undefined(low, high, target, rule, level, str(reason))
    cut = order_statistic(low, rank)
    count = int((high > cut).sum())
    return DetectionRate(
        value=count / high.size if high.size else None,
        count=count if high.size else None,
        n=high.size,
        target_fpr=target,
        threshold=cut,
        rule=rule,
        interval=clopper_pearson(count, high.size, level)
        if high.size
        else no_interval(level, "clopper-pearson", "no positives"),
        n0=low.size,
        rank=rank,
        false_positives=int((low > cut).sum()),
        expected_fpr=1.0 - rank / (low.size + 1),
        cross_fitted_fpr=_cross_fitted(low, target, rule),
        fpr_range=true_fpr_range(low.size, rank, level),
        reason=empty_arm_reason(low, high),
    )


def as_target(fpr: Any) -> float:
    """Check a target false positive rate, 0 <= fpr < 1."""
    target = as_number(fpr, "fpr")
    if not 0.0 <= target < 1.0:
        raise UserError(f"fpr: expected a rate from 0 up to, not including, 1; found {fpr!r}; write 0.10 for 10 %")
    return target


def threshold_rank(n0: int, fpr: float, rule: str) -> float | None:
    """Rank (1 = smallest) of the threshold among n0 >= 1 negatives, or None when n0 is too small for the rule.

    >>> threshold_rank(50, 0.10, "conformal"), threshold_rank(8, 0.10, "conformal")
    (46, None)
    >>> round(threshold_rank(50, 0.10, "paper"), 6), threshold_rank(29, 0.10, "tolerance")
    (45.1, 29)
    """
    if rule == "paper":
        return 1 + float(exact_product(n0 - 1, 1.0 - fpr))
    if rule == "conformal":
        rank = math.ceil(exact_product(n0 + 1, 1.0 - fpr))
        return max(rank, 1) if rank <= n0 else None
    ranks = np.arange(1, n0 + 1)
    enough = sps.beta.cdf(fpr, n0 + 1 - ranks, ranks) >= TOLERANCE_CONFIDENCE
    return int(ranks[np.argmax(enough)]) if enough.any() else None


def unattainable_reason(n0: int, fpr: float, rule: str) -> str:
    """Say how many negatives the rule needs."""
    if fpr == 0.0:
        return f"rule {rule} cannot promise a false positive rate of 0 from any number of negatives"
    if fpr < SMALLEST_TARGET:
        return f"rule {rule} at a false positive rate of {fpr:g} needs more negatives than can be had, found {n0}"
    need = least_negatives(fpr, rule)
    return f"rule {rule} at a false positive rate of {fpr:g} needs at least {need} negatives, found {n0}"


def least_negatives(fpr: float, rule: str) -> int | None:
    """The fewest negatives that give a rule's threshold at a target rate; None where no number does.

    >>> least_negatives(0.10, "conformal"), least_negatives(0.10, "tolerance"), least_negatives(0.10, "paper")
    (9, 29, 1)
    """
    if rule == "paper":
        return 1
    if fpr < SMALLEST_TARGET:
        return None
    if rule == "conformal":
        return math.ceil(round(1 / fpr, 9)) - 1
    return math.ceil(math.log(1.0 - TOLERANCE_CONFIDENCE) / math.log1p(-fpr))


def order_statistic(ordered: Floats, rank: float) -> float:
    """Order statistic of a sorted sample at a rank from 1 to n, linear between neighbours."""
    below = math.floor(rank)
    share = rank - below
    value = float(ordered[below - 1])
    return value if share == 0 else float(between(value, float(ordered[below]), share))


def _cross_fitted(ordered: Floats, fpr: float, rule: str) -> float | None:
    """Share of negatives above the threshold that the other negatives set."""
    size = ordered.size
    rank = threshold_rank(size - 1, fpr, rule) if size > 1 else None
    if rank is None:
        return None
    below, places = math.floor(rank), np.arange(size)

    def without_self(position: int) -> Floats:
        """The order statistic at a 1-based position among the others, for each one left out."""
        return np.where(places < position, ordered[min(position, size - 1)], ordered[position - 1])

    cut = without_self(below)
    if rank > below:
        cut = between(cut, without_self(below + 1), rank - below)
    return float((ordered > cut).mean())


def true_fpr_range(n0: int, rank: float, level: float = 0.90) -> Interval:
    """Range of the true false positive rate of a threshold at a given rank: Beta(n0 + 1 − rank, rank), no ties assumed.

    Args:
        n0: number of negatives, at least 1.
        rank: of the threshold, 1 to n0; a fractional one (rule "paper") gives an approximation.
        level: confidence level.

    >>> [round(bound, 2) for bound in true_fpr_range(50, 46)]
    [0.04, 0.17]
    """
    size, level = as_count(n0, "n0", 1), as_level(level)
    place = as_number(rank, "rank")
    if not 1 <= place <= size:
        raise UserError(f"rank: expected 1 to n0 = {size}; found {rank!r}; pass the rank of the threshold")
    tail = (1.0 - level) / 2.0
    low, high = sps.beta.ppf([tail, 1.0 - tail], size + 1 - place, place)
    mean = 1.0 - place / (size + 1)
    detail = None if place == int(place) else "approximate: the threshold lies between two negatives"
    return Interval(float(low), float(high), level, "beta", mean, None, detail)


def _undefined(low: Floats, high: Floats, target: float, rule: str, level: float, reason: str) -> DetectionRate:
    return DetectionRate(
        value=None,
        count=None,
        n=high.size,
        target_fpr=target,
        threshold=None,
        rule=rule,
        interval=no_interval(level, "clopper-pearson", reason),
        n0=low.size,
        rank=None,
        false_positives=None,
        expected_fpr=None,
        cross_fitted_fpr=None,
        fpr_range=no_interval(level, "beta", reason),
        reason=reason,
    )
