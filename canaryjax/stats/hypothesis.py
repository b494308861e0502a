"""Tests of two independent arms: permuted Brunner-Munzel, Welch; and the verdict on a null control."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats as sps

from canaryjax.stats.detection import auroc, empty_arm_reason
from canaryjax.stats.effect import standardised_difference
from canaryjax.stats.result import Interval, PValue, no_interval
from canaryjax.stats.sample import (
    Floats,
    as_count,
    as_fraction,
    as_level,
    as_measures,
    as_scores,
    generator,
    welch_error,
)

RESAMPLES = 10_000
EXACT_SPLITS = 20_000  # enumerate all splits up to here: 8 against 8 has 12,870
CELLS = 2_000_000  # largest permutations × scores block held at once: 16 MB an array


@dataclasses.dataclass(frozen=True)
class PermutedBrunnerMunzel(PValue):
    """Result of `brunner_munzel_permuted`.

    Attributes:
        statistic: studentised difference, positive when the second sample is larger; None (not infinite) at perfect
            separation, where its variance is 0.
        p_value: two-sided, or None with a reason.
        effect: P(first < second) + P(equal)/2, or None.
        n0, n1: sample sizes.
        permutations: number of splits looked at.
        exact: all splits were enumerated.
        reason: why the p-value (or the statistic alone) is None.
    """

    statistic: float | None
    p_value: float | None
    effect: float | None
    n0: int
    n1: int
    permutations: int
    exact: bool
    reason: str | None = None


def brunner_munzel_permuted(
    negatives: Any, positives: Any, resamples: int = RESAMPLES, seed: Any = 0
) -> PermutedBrunnerMunzel:
    """Two-sided test that neither arm tends to score higher, valid when the arms differ in variance.

    Use it for null controls: Mann-Whitney and a plain permutation of means reject too often under unequal variances.

    Args:
        negatives, positives: shape (n0,) and (n1,), at least two each; ties are fine.
        resamples: random splits when there are more than 20,000 possible ones; all are enumerated otherwise.
        seed: whole number, or a NumPy Generator.

    Returns:
        p = share of all splits with |statistic| at least the observed one (exact), or (1 + hits)/(1 + resamples). All
        scores equal gives p = 1.

    Raises:
        UserError: a NaN or infinite score (position named).

    Source: Brunner and Munzel, Biometrical Journal 42 (2000); Neubert and Brunner, CSDA 51 (2007) for permuting.

    >>> result = brunner_munzel_permuted([1, 2, 3, 4], [5, 6, 7, 8])
    >>> round(result.p_value, 4), result.exact, result.permutations
    (0.0286, True, 70)
    """
    low, high = as_scores(negatives, "negatives"), as_scores(positives, "positives")
    count, sizes = as_count(resamples, "resamples", 1), (low.size, high.size)
    effect = auroc(low, high)
    if min(sizes) < 2:
        reason = empty_arm_reason(low, high) or f"needs at least 2 scores per arm, found {sizes[0]} and {sizes[1]}"
        return PermutedBrunnerMunzel(None, None, effect, *sizes, 0, False, reason)
    pooled = np.concatenate([low, high])
    order = np.argsort(pooled, kind="stable")
    pooled = pooled[order]
    # Ranks first .. end of each score's tie group, so that midranks come from cumulative counts.
    ties = (np.searchsorted(pooled, pooled, "left"), np.searchsorted(pooled, pooled, "right"))
    observed = float(_statistics((order >= low.size)[None, :], ties)[0])
    exact = math.comb(pooled.size, high.size) <= EXACT_SPLITS
    splits = _all_splits(*sizes) if exact else _random_splits(*sizes, count, generator(seed))
    # The tolerance keeps mirror-image splits, equal on paper, from differing by rounding.
    floor = abs(observed) * (1 - 1e-9)
    hits = total = 0
    for mask in splits:
        hits += int((np.abs(_statistics(mask, ties)) >= floor).sum())
        total += len(mask)
    p_value = hits / total if exact else (1 + hits) / (1 + total)
    finite = math.isfinite(observed)
    note = None if finite else "perfect separation: the statistic is infinite, the p-value stands"
    return PermutedBrunnerMunzel(observed if finite else None, p_value, effect, *sizes, total, exact, note)


def _statistics(mask: np.ndarray, ties: tuple[np.ndarray, np.ndarray]) -> Floats:
    """Studentised statistic of each split; mask (splits, n), in rising order of score, True = second sample.

    ±inf where the variance is 0 and the samples separate, 0 where all scores are equal.
    """
    start, end = ties
    size_b = int(mask[0].sum())
    size_a = mask.shape[1] - size_b
    upto = np.zeros((mask.shape[0], mask.shape[1] + 1), dtype=np.int64)
    np.cumsum(mask, axis=1, out=upto[:, 1:])
    twice_b = upto[:, start] + upto[:, end]  # twice the second sample's members below each score
    twice_a = (start + end)[None, :] - twice_b
    # Placements are whole numbers, so sums of squares are exact and a zero variance is exactly zero.
    in_b, in_a = np.where(mask, twice_a, 0), np.where(mask, 0, twice_b)
    sum_b, sum_a = in_b.sum(axis=1), in_a.sum(axis=1)
    square_b = size_b * (in_b * in_b).sum(axis=1) - sum_b * sum_b
    square_a = size_a * (in_a * in_a).sum(axis=1) - sum_a * sum_a
    # Var(effect) = S_b²/(n_b n_a²) + S_a²/(n_a n_b²), S² the variances of the placements.
    spread = square_b / (4.0 * size_b**2 * (size_b - 1) * size_a**2)
    spread += square_a / (4.0 * size_a**2 * (size_a - 1) * size_b**2)
    shift = (sum_b - size_a * size_b) / (2.0 * size_a * size_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(shift == 0, 0.0, shift / np.sqrt(spread))


def _all_splits(size_a: int, size_b: int) -> Iterator[np.ndarray]:
    chosen = np.array(list(itertools.combinations(range(size_a + size_b), size_b)))
    mask = np.zeros((len(chosen), size_a + size_b), dtype=bool)
    np.put_along_axis(mask, chosen, True, axis=1)
    yield from np.array_split(mask, max(1, -(-mask.size // CELLS)))


def _random_splits(size_a: int, size_b: int, count: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    size = size_a + size_b
    block = max(1, CELLS // size)
    for start in range(0, count, block):
        rows = min(block, count - start)
        places = np.argpartition(rng.random((rows, size)), size_b - 1, axis=1)[:, :size_b]
        mask = np.zeros((rows, size), dtype=bool)
        np.put_along_axis(mask, places, True, axis=1)
        yield mask


@dataclasses.dataclass(frozen=True)
class NullVerdict(PValue):
    """Whether a null control passed: True, False, or None with a reason when it could not be tested."""

    passed: bool | None
    p_value: float | None
    alpha: float
    n0: int
    n1: int
    reason: str | None = None


def null_verdict(negatives: Any, positives: Any, alpha: float = 0.01, seed: Any = 0) -> NullVerdict:
    """Judge a null control (p = 0, delta = 0, scrambled feedback): it passes when the arms do not differ.

    Args:
        negatives, positives: scores of the arms, as `brunner_munzel_permuted`.
        alpha: it passes when the two-sided p is above this.
        seed: of the permutations.

    Returns:
        `passed` is None where no test could reach alpha (too few policies), since such a control cannot fail.

    >>> null_verdict([1, 3, 5, 7, 9], [2, 4, 6, 8, 10]).passed
    True
    >>> null_verdict([1, 2], [3, 4]).reason
    'cannot fail: the smallest p-value that 2 and 2 policies can give is 0.333'
    """
    limit = as_fraction(alpha, "alpha")
    test = brunner_munzel_permuted(negatives, positives, seed=seed)
    if test.p_value is None:
        return NullVerdict(None, None, limit, test.n0, test.n1, test.reason)
    smallest = 2 / math.comb(test.n0 + test.n1, test.n0)
    if smallest > limit:
        reason = f"cannot fail: the smallest p-value that {test.n0} and {test.n1} policies can give is {smallest:.3f}"
        return NullVerdict(None, test.p_value, limit, test.n0, test.n1, reason)
    return NullVerdict(test.p_value > limit, test.p_value, limit, test.n0, test.n1)


@dataclasses.dataclass(frozen=True)
class WelchTest(PValue):
    """Result of `welch`.

    Attributes:
        statistic: t, positive when the first sample's mean is larger (`t` is the same number); None with a reason.
        df: Welch-Satterthwaite degrees of freedom.
        p_value: two-sided.
        difference: mean(first) − mean(second), in score units.
        effect: Hedges' g of the difference, as `hedges_g` has it.
        interval: of the difference.
        reason: why the test is None.
    """

    statistic: float | None
    df: float | None
    p_value: float | None
    difference: float | None
    effect: float | None
    interval: Interval
    reason: str | None = None

    @property
    def t(self) -> float | None:
        return self.statistic


def welch(a: Any, b: Any, level: float = 0.95) -> WelchTest:
    """Welch's t test of two means with unequal variances, two-sided.

    Args:
        a, b: independent samples, shape (n,) each; fewer than two values, or two constant samples, give a null test
            with a reason.
        level: confidence level of `interval`.

    Raises:
        UserError: a NaN or infinite value (position named).

    Source: Welch, Biometrika 34 (1947); Hedges, J. Educ. Stat. 6 (1981) for the effect size.

    >>> result = welch([1, 2, 3], [2, 4, 6])
    >>> round(result.t, 4), round(result.df, 4), round(result.p_value, 4)
    (-1.5492, 2.9412, 0.2209)
    """
    first, second, level = as_measures(a, "a"), as_measures(b, "b"), as_level(level)
    sizes = first.size, second.size
    difference = float(first.mean() - second.mean()) if min(sizes) else None
    reason = None
    if min(sizes) < 2 or difference is None:
        reason = f"needs at least 2 values per sample, found {sizes[0]} and {sizes[1]}"
    else:
        error, df = welch_error(first, second)
        if error == 0:
            reason = "both samples are constant, or as good as constant in float64: the standard error is 0"
    if reason is not None or difference is None:
        interval = no_interval(level, "welch", str(reason), difference)
        return WelchTest(None, None, None, difference, None, interval, reason)
    statistic = difference / error
    reach = float(sps.t.ppf(0.5 + level / 2, df)) * error
    interval = Interval(difference - reach, difference + reach, level, "welch", difference)
    effect = standardised_difference(second, first)
    p_value = float(2 * sps.t.sf(abs(statistic), df))
    return WelchTest(statistic, df, p_value, difference, effect[1] if effect else None, interval)
