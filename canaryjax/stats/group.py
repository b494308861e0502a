"""Tests over several groups: Kruskal-Wallis with pairwise follow-up, and the Jonckheere-Terpstra trend."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
from scipy import stats as sps

from canaryjax.stats.rank import holm
from canaryjax.stats.result import PValue
from canaryjax.stats.sample import Floats, all_equal, as_choice, as_count, as_groups, generator

RESAMPLES = 10_000
CELLS = 2_000_000  # largest permutations × scores block held at once: 16 MB an array


@dataclasses.dataclass(frozen=True)
class PairTest(PValue):
    """One pair of groups: Dunn's z or Mann-Whitney's U (of the first), raw and Holm-adjusted p-value, two-sided."""

    first: str
    second: str
    statistic: float | None
    p_value: float | None
    adjusted_p: float | None
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class KruskalTest(PValue):
    """Result of `kruskal_with_pairwise`.

    Attributes:
        statistic: tie-corrected H, or None with a reason.
        df: number of groups − 1.
        p_value: from chi-squared.
        sizes: group name to sample size.
        method: "dunn" or "mannwhitney".
        pairs: one PairTest per pair, in the order of the groups.
        reason: why the test is None.
    """

    statistic: float | None
    df: int
    p_value: float | None
    sizes: dict[str, int]
    method: str
    pairs: tuple[PairTest, ...]
    reason: str | None = None


def kruskal_with_pairwise(groups: Any, method: str = "dunn") -> KruskalTest:
    """Kruskal-Wallis test over independent groups, then every pair, Holm-adjusted.

    Args:
        groups: list of samples, or mapping of name to sample; at least two. Samples that share trials are not
            independent: do not use it on them.
        method: "dunn" compares mean ranks of the joint ranking (the ranks of the H test); "mannwhitney" ranks each pair
            anew (SciPy: exact without ties when a sample has at most 8 values, else normal).

    Returns:
        A KruskalTest; all scores equal, or an empty group, gives a null test with a reason.

    Raises:
        UserError: a NaN or infinite score (group and position named), fewer than two groups, unknown method.

    Source: Kruskal and Wallis, JASA 47 (1952); Dunn, Technometrics 6 (1964).

    >>> result = kruskal_with_pairwise([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    >>> round(result.statistic, 4), round(result.p_value, 4)
    (7.2, 0.0273)
    >>> [round(pair.adjusted_p, 4) for pair in result.pairs]
    [0.3594, 0.0219, 0.3594]
    """
    samples = as_groups(groups)
    as_choice(method, "method", ("dunn", "mannwhitney"))
    names, sizes = list(samples), {name: sample.size for name, sample in samples.items()}
    pooled = np.concatenate(list(samples.values()))
    empty = [name for name, size in sizes.items() if size == 0]
    reason = f"group {empty[0]} is empty" if empty else None
    if reason is None and all_equal(pooled):
        reason = "all scores are equal"
    if reason is not None:
        blank = tuple(PairTest(a, b, None, None, None, reason) for a, b in itertools.combinations(names, 2))
        return KruskalTest(None, len(names) - 1, None, sizes, method, blank, reason)
    statistic, p_value = sps.kruskal(*samples.values())
    compare = _dunn(samples, pooled) if method == "dunn" else _mann_whitney
    raw = [compare(a, b, samples) for a, b in itertools.combinations(names, 2)]
    adjusted = holm([pair.p_value for pair in raw])
    pairs = tuple(dataclasses.replace(pair, adjusted_p=p) for pair, p in zip(raw, adjusted, strict=True))
    return KruskalTest(float(statistic), len(names) - 1, float(p_value), sizes, method, pairs)


def _dunn(samples: dict[str, Floats], pooled: Floats) -> Any:
    """Return the pair comparison that uses the joint ranking and its tie-corrected variance."""
    ranks, total = sps.rankdata(pooled), pooled.size
    ends = np.cumsum([sample.size for sample in samples.values()])
    means = {name: float(part.mean()) for name, part in zip(samples, np.split(ranks, ends[:-1]), strict=True)}
    ties = np.unique(pooled, return_counts=True)[1].astype(np.float64)
    spread = total * (total + 1) / 12 - float((ties**3 - ties).sum()) / (12 * (total - 1))

    def compare(a: str, b: str, samples: dict[str, Floats]) -> PairTest:
        error = math.sqrt(spread * (1 / samples[a].size + 1 / samples[b].size))
        z = (means[a] - means[b]) / error
        return PairTest(a, b, z, float(2 * sps.norm.sf(abs(z))), None)

    return compare


def _mann_whitney(a: str, b: str, samples: dict[str, Floats]) -> PairTest:
    if all_equal(np.concatenate([samples[a], samples[b]])):
        return PairTest(a, b, None, None, None, "all scores of the pair are equal")
    statistic, p_value = sps.mannwhitneyu(samples[a], samples[b], alternative="two-sided")
    return PairTest(a, b, float(statistic), float(p_value), None)


@dataclasses.dataclass(frozen=True)
class TrendTest(PValue):
    """Result of `jonckheere_terpstra`.

    Attributes:
        statistic: J, the pairs in the order of the groups, ties one half; None with a reason.
        expected, variance: of J without a trend, the variance tie-corrected.
        z: (J − expected)/sqrt(variance), no continuity correction; positive for a rising trend.
        p_value: by `method`.
        alternative: two-sided, increasing or decreasing.
        method: normal or permutation.
        resamples: permutations drawn; 0 for normal.
        reason: why the test is None.
    """

    statistic: float | None
    expected: float | None
    variance: float | None
    z: float | None
    p_value: float | None
    alternative: str
    method: str
    resamples: int
    reason: str | None = None


def jonckheere_terpstra(
    groups: Any, alternative: str = "two-sided", method: str = "normal", resamples: int = RESAMPLES, seed: Any = 0
) -> TrendTest:
    """Test for a monotone (not: linear) trend over ordered, independent groups, such as rising injection rates.

    Args:
        groups: list of samples, or mapping of name to sample, in the order of the dose; at least two.
        alternative: "two-sided", "increasing" or "decreasing".
        method: "normal" uses z; "permutation" shuffles the scores over the groups, p = (1 + hits)/(1 + resamples).
        resamples, seed: of the permutations.

    Returns:
        A TrendTest; all scores equal, or an empty group, gives a null test with a reason.

    Raises:
        UserError: a NaN or infinite score (group and position named), fewer than two groups, an unknown option.

    Source: Jonckheere, Biometrika 41 (1954); Hollander, Wolfe and Chicken, 3rd ed., eq. 6.19, for the variance.

    >>> result = jonckheere_terpstra([[1, 2], [3, 4], [5, 6]])
    >>> result.statistic, result.expected, round(result.variance, 4), round(result.p_value, 4)
    (12.0, 6.0, 6.3333, 0.0171)
    """
    samples = as_groups(groups)
    as_choice(alternative, "alternative", ("two-sided", "increasing", "decreasing"))
    as_choice(method, "method", ("normal", "permutation"))
    draws = as_count(resamples, "resamples", 1) if method == "permutation" else 0
    pooled = np.concatenate(list(samples.values()))
    sizes = np.array([sample.size for sample in samples.values()], dtype=np.float64)
    empty = [name for name, sample in samples.items() if sample.size == 0]
    reason = f"group {empty[0]} is empty" if empty else None
    if reason is None and all_equal(pooled):
        reason = "all scores are equal"
    if reason is not None:
        return TrendTest(None, None, None, None, None, alternative, method, draws, reason)
    order = np.argsort(pooled, kind="stable")
    labels = np.repeat(np.arange(sizes.size), sizes.astype(int))[order]
    ordered = pooled[order]
    ties = (np.searchsorted(ordered, ordered, "left"), np.searchsorted(ordered, ordered, "right"))
    twice = int(_twice_j(labels[None, :], ties, sizes.size)[0])
    expected = (pooled.size**2 - float((sizes**2).sum())) / 4
    variance = _trend_variance(sizes, np.unique(pooled, return_counts=True)[1].astype(np.float64))
    z = (twice / 2 - expected) / math.sqrt(variance)
    if method == "normal":
        tail = {"two-sided": 2 * sps.norm.sf(abs(z)), "increasing": sps.norm.sf(z), "decreasing": sps.norm.cdf(z)}
        p_value = float(tail[alternative])
    else:
        p_value = _trend_permutation(labels, ties, twice, round(4 * expected), alternative, draws, seed)
    return TrendTest(twice / 2, expected, variance, z, p_value, alternative, method, draws)


def _twice_j(labels: np.ndarray, ties: tuple[np.ndarray, np.ndarray], groups: int) -> np.ndarray:
    """Twice J for each row of labels (rows, n), in rising order of score: whole numbers, so equality is exact."""
    start, end = ties
    twice = np.zeros(len(labels), dtype=np.int64)
    upto = np.zeros((len(labels), labels.shape[1] + 1), dtype=np.int64)
    for group in range(1, groups):
        np.cumsum(labels < group, axis=1, out=upto[:, 1:])
        twice += np.where(labels == group, upto[:, start] + upto[:, end], 0).sum(axis=1)
    return twice


def _trend_variance(sizes: Floats, ties: Floats) -> float:
    total = float(sizes.sum())

    def first(n: Any) -> float:
        return float(np.sum(n * (n - 1) * (2 * n + 5)))

    def second(n: Floats) -> float:
        return float((n * (n - 1) * (n - 2)).sum())

    def third(n: Floats) -> float:
        return float((n * (n - 1)).sum())

    variance = (first(total) - first(sizes) - first(ties)) / 72
    if total > 2:
        variance += second(sizes) * second(ties) / (36 * total * (total - 1) * (total - 2))
    return variance + third(sizes) * third(ties) / (8 * total * (total - 1))


def _trend_permutation(
    labels: np.ndarray,
    ties: tuple[np.ndarray, np.ndarray],
    observed: int,
    centre: int,
    alternative: str,
    draws: int,
    seed: Any,
) -> float:
    """Share of shuffles at least as extreme; `observed` is 2 J and `centre` 4 E[J], which is a whole number."""
    rng, hits = generator(seed), 0
    block = max(1, CELLS // labels.size)

    def distance(twice: Any) -> Any:
        moved = 2 * twice - centre
        if alternative == "two-sided":
            return np.abs(moved)
        return moved if alternative == "increasing" else -moved

    for start in range(0, draws, block):
        rows = min(block, draws - start)
        shuffled = rng.permuted(np.tile(labels, (rows, 1)), axis=1)
        drawn = _twice_j(shuffled, ties, int(labels.max()) + 1)
        hits += int((distance(drawn) >= distance(observed)).sum())
    return (1 + hits) / (1 + draws)
