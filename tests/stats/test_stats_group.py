"""Tests over several groups, and Holm."""

import itertools

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats


@pytest.mark.parametrize("seed", range(3))
def test_kruskal_equals_scipy_with_ties(seed):
    rng = np.random.default_rng(seed)
    groups = [rng.integers(0, 9, 7), rng.integers(1, 9, 11), rng.integers(2, 12, 5)]
    ours, oracle = stats.kruskal_with_pairwise(groups), sps.kruskal(*groups)
    assert (ours.statistic, ours.p_value) == pytest.approx((oracle.statistic, oracle.pvalue))
    assert ours.df == 2


def test_dunn_by_hand():
    # Mean ranks 2, 5, 8 of nine scores without ties: z = 3/sqrt(9 · 10/12 · 2/3) = 3/sqrt(5), and twice that.
    pairs = stats.kruskal_with_pairwise({"a": [1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}).pairs
    assert [(p.first, p.second) for p in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [p.statistic for p in pairs] == pytest.approx([-3 / 5**0.5, -6 / 5**0.5, -3 / 5**0.5])
    raw = [2 * sps.norm.sf(3 / 5**0.5), 2 * sps.norm.sf(6 / 5**0.5)]
    assert [p.p_value for p in pairs] == pytest.approx([raw[0], raw[1], raw[0]])
    assert [p.adjusted_p for p in pairs] == pytest.approx([2 * raw[0], 3 * raw[1], 2 * raw[0]])


def test_dunn_corrects_for_ties():
    # Two groups: Dunn's z² with the tie correction is exactly the tie-corrected H. Without it they differ.
    groups = [[1, 1, 2, 3, 3], [2, 3, 3, 4]]
    result = stats.kruskal_with_pairwise(groups)
    assert result.pairs[0].statistic ** 2 == pytest.approx(result.statistic)
    assert result.pairs[0].p_value == pytest.approx(result.p_value)


def test_mann_whitney_pairs_equal_scipy():
    groups = {"a": [1.0, 2.5, 3.5], "b": [2.0, 4.0, 6.0, 7.0], "c": [1.5, 8.0, 9.0]}
    result = stats.kruskal_with_pairwise(groups, method="mannwhitney")
    for pair in result.pairs:
        oracle = sps.mannwhitneyu(groups[pair.first], groups[pair.second])
        assert (pair.statistic, pair.p_value) == pytest.approx((oracle.statistic, oracle.pvalue))
    assert [p.adjusted_p for p in result.pairs] == stats.holm([p.p_value for p in result.pairs])


def test_a_pair_without_a_test_leaves_the_family():
    result = stats.kruskal_with_pairwise([[1, 1, 1], [1, 1], [5, 6, 7, 8, 9, 10]], method="mannwhitney")
    first, second, third = result.pairs
    assert (first.p_value, first.adjusted_p) == (None, None)
    assert first.reason == "all scores of the pair are equal"
    smaller = min(second.p_value, third.p_value)
    assert min(second.adjusted_p, third.adjusted_p) == pytest.approx(2 * smaller)  # 3 × with the null one counted


def test_kruskal_edge_cases():
    equal = stats.kruskal_with_pairwise([[1, 1], [1, 1, 1]])
    assert (equal.statistic, equal.p_value, equal.reason) == (None, None, "all scores are equal")
    empty = stats.kruskal_with_pairwise([[1, 2], [], [3]])
    assert (empty.p_value, empty.reason) == (None, "group 1 is empty")
    assert stats.kruskal_with_pairwise([[1], [2], [3]]).p_value is not None


@pytest.mark.parametrize(
    ("raw", "adjusted"),
    [
        ([0.01, float("nan"), 0.011], [0.02, None, 0.02]),  # known fault 53: 0.011 alone would be less than 0.02
        ([0.01, None, 0.011], [0.02, None, 0.02]),
        ([0.04, 0.01, 0.03], [0.06, 0.03, 0.06]),
        ([0.5, 0.6, 0.9], [1.0, 1.0, 1.0]),
        ([0.0, 1.0], [0.0, 1.0]),
        ([0.02], [0.02]),
        ([], []),
        ([None], [None]),
        (np.array([0.02, np.nan]), [0.02, None]),
    ],
)
def test_holm(raw, adjusted):
    result = stats.holm(raw)
    assert [p is None for p in result] == [p is None for p in adjusted]
    assert [p for p in result if p is not None] == pytest.approx([p for p in adjusted if p is not None])


def slow_j(groups):
    return sum(
        (x < y) + 0.5 * (x == y) for a, b in itertools.combinations(groups, 2) for x, y in itertools.product(a, b)
    )


def test_trend_statistic_equals_the_double_loop():
    rng = np.random.default_rng(4)
    groups = [rng.integers(0, 7, n) for n in (5, 3, 7, 2)]
    result = stats.jonckheere_terpstra(groups)
    assert result.statistic == slow_j(groups)
    # Two groups: J is Mann-Whitney's U of the second.
    assert stats.jonckheere_terpstra(groups[:2]).statistic == sps.mannwhitneyu(groups[1], groups[0]).statistic


@pytest.mark.parametrize("groups", [[[1, 2], [3, 4], [5, 6]], [[1, 1, 2], [1, 2], [2, 3]], [[4], [4, 4, 1], [2, 2]]])
def test_trend_moments_equal_the_full_permutation_law(groups):
    sizes = np.cumsum([len(g) for g in groups])[:-1]
    pooled = [x for g in groups for x in g]
    law = [slow_j(np.split(np.array(order), sizes)) for order in itertools.permutations(pooled)]
    result = stats.jonckheere_terpstra(groups)
    assert result.expected == pytest.approx(np.mean(law))
    assert result.variance == pytest.approx(np.var(law))  # the untied formula is too large here
    extreme = np.mean(np.abs(np.array(law) - result.expected) >= abs(result.statistic - result.expected) - 1e-9)
    drawn = stats.jonckheere_terpstra(groups, method="permutation", resamples=20_000, seed=3)
    assert drawn.p_value == pytest.approx(extreme, abs=0.012)
    assert drawn.method == "permutation"


def test_trend_by_hand():
    # All 12 pairs in order; E = (36 − 12)/4 = 6; Var = (36 · 15 − 3 · 4 · 7)/72 = 19/3.
    result = stats.jonckheere_terpstra([[1, 2], [3, 4], [5, 6]])
    assert (result.statistic, result.expected) == (12, 6)
    assert result.variance == pytest.approx(19 / 3)
    assert result.p_value == pytest.approx(2 * sps.norm.sf(6 / (19 / 3) ** 0.5))


def test_trend_direction():
    rising = [[1, 2, 3], [2, 3, 4], [4, 5, 6]]
    up = stats.jonckheere_terpstra(rising, alternative="increasing")
    down = stats.jonckheere_terpstra(rising, alternative="decreasing")
    assert up.z > 0
    assert up.p_value < 0.05 < down.p_value
    assert up.p_value + down.p_value == pytest.approx(1)
    assert stats.jonckheere_terpstra(rising[::-1]).z == pytest.approx(-up.z)
    drawn = stats.jonckheere_terpstra(rising[::-1], "decreasing", "permutation")
    assert drawn.p_value == pytest.approx(up.p_value, abs=0.02)
    wrong = stats.jonckheere_terpstra(rising[::-1], "increasing", "permutation")
    assert wrong.p_value > 0.9


def test_trend_is_monotone_not_linear():
    # Scores may be stretched by any rising function.
    groups = [[0.1, 0.4], [0.3, 0.7, 0.9], [0.8, 1.5]]
    bent = [np.exp(5 * np.array(g)) for g in groups]
    assert stats.jonckheere_terpstra(groups).p_value == stats.jonckheere_terpstra(bent).p_value


def test_trend_permutation_never_gives_zero():
    result = stats.jonckheere_terpstra([range(9), range(10, 19), range(20, 29)], method="permutation", resamples=99)
    assert result.p_value == 1 / 100


def test_trend_edge_cases():
    assert stats.jonckheere_terpstra([[1, 1], [1]]).reason == "all scores are equal"
    assert stats.jonckheere_terpstra([[], [1, 2]]).reason == "group 0 is empty"
    assert stats.jonckheere_terpstra([[1], [2]]).variance == pytest.approx(0.25)
