"""Two-arm tests and the null verdict."""

import itertools

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats


@pytest.mark.parametrize("seed", range(5))
def test_statistic_equals_scipy(seed):
    rng = np.random.default_rng(seed)
    low, high = rng.integers(0, 12, 13), rng.integers(1, 20, 11)  # ties, unequal sizes and variances
    ours = stats.brunner_munzel_permuted(low, high, resamples=19)
    assert ours.statistic == pytest.approx(sps.brunnermunzel(low, high).statistic, rel=1e-12)
    assert ours.effect == stats.auroc(low, high)


@pytest.mark.parametrize(("low", "high"), [([1, 5, 5, 7], [2, 5, 8]), ([1, 4, 6], [2, 3, 9, 9, 11]), ([1, 2], [3, 5])])
def test_exact_p_equals_the_slow_enumeration(low, high):
    pooled = np.array([*low, *high], dtype=float)

    def size(chosen):
        b = pooled[list(chosen)]
        a = np.delete(pooled, list(chosen))
        # SciPy divides by 0 where the samples separate: the statistic is infinite there.
        area = stats.auroc(a, b)
        return np.inf if area in (0.0, 1.0) else abs(sps.brunnermunzel(a, b).statistic)

    splits = list(itertools.combinations(range(len(pooled)), len(high)))
    observed = size(range(len(low), len(pooled)))
    expected = np.mean([size(split) >= observed - 1e-9 for split in splits])
    result = stats.brunner_munzel_permuted(low, high)
    assert result.exact
    assert result.permutations == len(splits)
    assert result.p_value == pytest.approx(expected)


def test_perfect_separation_has_the_smallest_p():
    # Two of C(8, 4) = 70 splits separate. A strict comparison gives 0, a one-sided one 1/70 (known fault 41).
    for pair in (([1, 2, 3, 4], [5, 6, 7, 8]), ([5, 6, 7, 8], [1, 2, 3, 4])):
        result = stats.brunner_munzel_permuted(*pair)
        assert result.p_value == 2 / 70
        assert result.statistic is None
        assert "perfect separation" in result.reason


def test_best_monte_carlo_rank_is_one_over_b_plus_one():
    result = stats.brunner_munzel_permuted(range(50), range(50, 100), resamples=999)
    assert not result.exact
    assert result.p_value == 1 / 1000


@pytest.mark.parametrize("size", [3, 40])
def test_all_equal_gives_one(size):
    result = stats.brunner_munzel_permuted([2.5] * size, [2.5] * (size + 1), resamples=99)
    assert (result.p_value, result.statistic) == (1.0, 0.0)


def test_monte_carlo_agrees_with_enumeration():
    low, high = [0.1, 1.3, 2.2, 0.4, 1.9, 0.8, 2.7, 1.1, 3.0], [1.0, 2.5, 3.1, 2.9, 0.9, 3.3, 2.0, 4.0, 1.7]
    exact = stats.brunner_munzel_permuted([*low, 0.5], high, seed=1)  # C(19, 9) = 92,378: drawn
    assert not exact.exact
    assert exact.p_value == pytest.approx(sps.brunnermunzel([*low, 0.5], high).pvalue, abs=0.02)
    assert exact.p_value == stats.brunner_munzel_permuted([*low, 0.5], high, seed=1).p_value


def test_unequal_variances_do_not_reject_too_often():
    # The reason for this test (DECIDED): with sd 1 at n = 24 and sd 5 at n = 8 Mann-Whitney rejects well above 5 %.
    rng = np.random.default_rng(12)
    ours, plain = [], []
    for _ in range(200):
        low, high = rng.normal(size=24), rng.normal(0, 5, 8)
        ours.append(stats.brunner_munzel_permuted(low, high, resamples=199, seed=rng).p_value <= 0.05)
        plain.append(sps.mannwhitneyu(low, high).pvalue <= 0.05)
    assert np.mean(ours) <= 0.09
    assert np.mean(plain) > np.mean(ours)


@pytest.mark.parametrize(("low", "high"), [([], [1, 2]), ([1], [2, 3]), ([1, 2], [3])])
def test_too_few_scores_are_null(low, high):
    result = stats.brunner_munzel_permuted(low, high)
    assert result.p_value is None
    assert result.reason


def test_null_verdict_passes_fails_and_abstains():
    rng = np.random.default_rng(0)
    low = rng.normal(size=12)
    assert stats.null_verdict(low, rng.normal(size=12)).passed is True
    assert stats.null_verdict(low, rng.normal(3, 1, 12)).passed is False
    abstain = stats.null_verdict([1, 2, 3], [4, 5, 6])
    assert abstain.passed is None  # smallest p is 2/20: such a control cannot fail
    assert "0.100" in abstain.reason
    assert stats.null_verdict([1], [2]).passed is None


@pytest.mark.parametrize("seed", range(3))
def test_welch_equals_scipy(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=7), rng.normal(1, 3, 11)
    ours, oracle = stats.welch(a, b, 0.9), sps.ttest_ind(a, b, equal_var=False)
    assert (ours.t, ours.df, ours.pvalue) == pytest.approx((oracle.statistic, oracle.df, oracle.pvalue))
    interval = oracle.confidence_interval(0.9)
    assert list(ours.interval) == pytest.approx([interval.low, interval.high])


def test_welch_by_hand():
    # Means 2 and 4, variances 1 and 4: t = −2/sqrt(1/3 + 4/3), df = (5/3)²/((1/9 + 16/9)/2) = 50/17. The pooled test
    # would have df = 4.
    result = stats.welch([1, 2, 3], [2, 4, 6])
    assert result.statistic == pytest.approx(-2 / (5 / 3) ** 0.5)
    assert result.df == pytest.approx(50 / 17)
    # Hedges: −2/sqrt(2.5) × J(4), which his approximation 1 − 3/15 = 0.8 would miss in the third digit.
    assert result.effect == pytest.approx(-2 / 2.5**0.5 * 0.79788, abs=1e-5)
    assert result.effect == stats.hedges_g([2, 4, 6], [1, 2, 3]).value


def test_welch_edge_cases():
    # Three times 0.1 has a rounded mean and a variance of 1e-34: t would be 1e16.
    constant = stats.welch([0.1, 0.1, 0.1], [0.3, 0.3, 0.3])
    assert (constant.statistic, constant.p_value) == (None, None)
    assert "constant" in constant.reason
    assert constant.difference == pytest.approx(-0.2)
    assert stats.welch([1, 1, 1], [0, 1, 5]).df == pytest.approx(2)  # one constant sample is fine
    assert stats.welch([1], [2, 3]).reason
    assert stats.welch([], [2, 3]).difference is None
