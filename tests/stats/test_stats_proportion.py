"""Intervals of counts and means, with published vectors."""

import pytest
from scipy import stats as sps

from canaryjax import stats
from canaryjax.errors import UserError


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0), (5, 8, 0.3057, 0.8632), (0, 8, 0.0, 0.3244)],
)
def test_wilson_vectors(k, n, low, high):
    # Known fault 39: the Wald interval has width 0 at 0/20. z in float32 or 1.96 changes 5/8 in the fifth digit only.
    assert list(stats.wilson_interval(k, n)) == pytest.approx([low, high], abs=5e-5)


@pytest.mark.parametrize("n", [1, 3, 20, 1000])
def test_ends_are_exact(n):
    for method in (stats.wilson_interval, stats.clopper_pearson):
        assert method(0, n, 0.95).low == 0.0
        assert method(n, n, 0.95).high == 1.0
        assert 0 < method(0, n, 0.95).high < 1
        assert method(0, n, 0.95).high == pytest.approx(1 - method(n, n, 0.95).low)


@pytest.mark.parametrize(("k", "n", "level"), [(1, 7, 0.95), (34, 50, 0.90), (5, 5, 0.99), (0, 11, 0.8)])
def test_clopper_pearson_inverts_the_binomial(k, n, level):
    low, high = stats.clopper_pearson(k, n, level)
    tail = (1 - level) / 2
    if k:
        assert sps.binom.sf(k - 1, n, low) == pytest.approx(tail)
    if k < n:
        assert sps.binom.cdf(k, n, high) == pytest.approx(tail)
    oracle = sps.binomtest(k, n).proportion_ci(level, "exact")
    assert (low, high) == pytest.approx((oracle.low, oracle.high))
    wilson = sps.binomtest(k, n).proportion_ci(level, "wilson")
    assert list(stats.wilson_interval(k, n, level)) == pytest.approx([wilson.low, wilson.high])


def test_clopper_pearson_by_hand():
    # 0 of n: high = 1 − (tail)^(1/n).
    assert stats.clopper_pearson(0, 10, 0.95).high == pytest.approx(1 - 0.025**0.1)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    # Newcombe 1998, table II, method 10; and the site detector's 3/9 against 0/20.
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((10, 10, 0, 20), 0.6791, 1.0),
        ((0, 10, 0, 20), -0.1611, 0.2775),
        ((3, 9, 0, 20), 0.0665, 0.6458),
    ],
)
def test_newcombe_difference_vectors(counts, low, high):
    assert list(stats.newcombe_interval(*counts)) == pytest.approx([low, high], abs=5e-5)


def test_newcombe_difference_is_antisymmetric():
    low, high = stats.newcombe_interval(3, 9, 5, 20)
    assert list(stats.newcombe_interval(5, 20, 3, 9)) == pytest.approx([-high, -low])


def test_no_trials_is_null_with_a_reason():
    for interval in (
        stats.clopper_pearson(0, 0, 0.95),
        stats.wilson_interval(0, 0),
        stats.newcombe_interval(0, 0, 1, 2),
        stats.newcombe_interval(1, 2, 0, 0),
    ):
        assert (interval.low, interval.high, interval.estimate) == (None, None, None)
        assert interval.reason == "no trials: n = 0"


def test_level_and_method_are_carried():
    assert stats.clopper_pearson(1, 5, 0.9).to_dict() == {
        "low": pytest.approx(0.01020622, abs=1e-8),
        "high": pytest.approx(0.6574083),
        "level": 0.9,
        "method": "clopper-pearson",
        "estimate": 0.2,
        "reason": None,
        "detail": None,
    }


def test_mean_interval_over_three_seeds():
    # t with 2 degrees of freedom: 4.3027 (PA-26). The normal 1.96 would give less than half the width.
    low, high = stats.mean_interval([1.0, 2.0, 4.0])
    sd = (7 / 3) ** 0.5
    assert [low, high] == pytest.approx([7 / 3 - 4.302653 * sd / 3**0.5, 7 / 3 + 4.302653 * sd / 3**0.5], rel=1e-6)
    assert "degenerate" in stats.mean_interval([0.1, 0.1, 0.1]).reason
    assert stats.mean_interval([]).estimate is None
    assert stats.mean_interval([3]).estimate == 3.0


@pytest.mark.parametrize(("n", "c", "k", "value"), [(5, 2, 2, 0.7), (5, 0, 3, 0.0), (5, 3, 3, 1.0), (16, 1, 16, 1.0)])
def test_pass_at_k(n, c, k, value):
    # 1 − C(3, 2)/C(5, 2) = 1 − 3/10.
    assert stats.pass_at_k(n, c, k) == pytest.approx(value)


def test_min_k_keeps_at_least_one_token():
    # Known fault 55: 20 % of 4 tokens is 0.8, and the mean of no token is NaN.
    assert stats.min_k_mean([-1, -9, -2, -3], 0.2) == -9.0
    assert stats.min_k_mean([-1.0] * 8 + [-5.0, -7.0], 0.2) == -6.0
    # 10 × 0.3 is 3 tokens; 0.1 + 0.2 in floats must not make it 4, nor 0.29 of 100 make 28.
    assert stats.min_k_mean(range(-100, 0), 0.29) == -86.0
    assert stats.min_k_mean([]) is None


def test_min_k_keeps_at_least_its_share_where_asked():
    # 20 % of 24 tokens is 4.8: the four lowest, or the five lowest.
    logps = [-float(x) for x in range(24)]
    assert stats.min_k_mean(logps, 0.2) == -21.5
    assert stats.min_k_mean(logps, 0.2, "ceil") == -21.0
    assert stats.min_k_mean(logps[:20], 0.2, "ceil") == -17.5  # 4 of 20, not 5
    assert stats.min_k_mean([-3.0, -1.0], 0.0, "ceil") == -3.0
    with pytest.raises(UserError, match="rounding"):
        stats.min_k_mean(logps, 0.2, "up")


def test_ratio_guard():
    # Known fault 54, BC-59: 0.08/0.48.
    assert stats.guarded_ratio(0.08, 0.48).value == pytest.approx(0.16667, abs=1e-5)
    assert stats.guarded_ratio(0.08, 0.0).value is None
    assert stats.guarded_ratio(0.08, -1e-12).reason
    near_zero = stats.ratio_of_means([0.1, 0.1, 0.2], [1e-3, -1e-3, 2e-3])
    assert near_zero.value is None
    assert "not distinguishable from 0" in near_zero.reason
    assert stats.ratio_of_means([0.1], [0.5]).value is None
    assert stats.ratio_of_means([], []).reason == "no policies"


def test_fieller_bounds_are_where_the_t_test_turns():
    top, bottom = [0.05, 0.12, 0.07, 0.09, 0.11], [0.4, 0.6, 0.45, 0.5, 0.47]
    ratio = stats.ratio_of_means(top, bottom, 0.9)
    for bound in ratio.interval:
        residual = [a - bound * b for a, b in zip(top, bottom, strict=True)]
        assert sps.ttest_1samp(residual, 0).pvalue == pytest.approx(0.1)
    assert ratio.interval.low < ratio.value < ratio.interval.high
    exact = stats.ratio_of_means([1.0, 2.0], [2.0, 2.0])
    assert exact.value == 0.75
