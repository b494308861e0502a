"""The threshold, the rate above it, and what the true false positive rate may be."""

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats
from canaryjax.stats.threshold import threshold_rank


@pytest.mark.parametrize(
    ("n0", "fpr", "rank"),
    [(50, 0.10, 46), (9, 0.10, 9), (8, 0.10, None), (19, 0.10, 18), (29, 0.10, 27), (19, 0.05, 19), (9, 0.3, 7)],
)
def test_conformal_rank(n0, fpr, rank):
    # BC-A10: ceil((n0 + 1)(1 − fpr)). In floats 10 × (1 − 0.3) is 7.000...01 or 6.999...; a ceiling must not see it.
    assert threshold_rank(n0, fpr, "conformal") == rank


def test_tolerance_rank_needs_29():
    assert threshold_rank(28, 0.10, "tolerance") is None
    assert threshold_rank(29, 0.10, "tolerance") == 29
    # Smallest rank of 50 whose true rate is at most 10 % with 95 % confidence, from the binomial side.
    rank = next(k for k in range(1, 51) if sps.binom.cdf(50 - k, 50, 0.10) <= 0.05)
    assert threshold_rank(50, 0.10, "tolerance") == rank == 49


def test_conformal_threshold_is_the_order_statistic_and_strict():
    rate = stats.tpr_at_fpr(list(range(1, 51)), [46, 46.5, 47, 100], fpr=0.10)
    assert rate.threshold == 46
    # The 46 itself is not above the threshold: >= would count 4.
    assert (rate.count, rate.n, rate.value) == (3, 4, 0.75)
    assert rate.false_positives == 4
    assert rate.expected_fpr == pytest.approx(5 / 51)
    assert list(rate.interval) == list(stats.clopper_pearson(3, 4, 0.90))


def test_paper_threshold_is_numpys_linear_quantile():
    rng = np.random.default_rng(1)
    low, high = rng.normal(size=37), rng.normal(1, 1, 29)
    rate = stats.tpr_at_fpr(low, high, rule="paper")
    assert rate.threshold == pytest.approx(np.quantile(low, 0.9), rel=1e-14)
    assert rate.count == int((high > np.quantile(low, 0.9)).sum())


@pytest.mark.parametrize(("n0", "in_sample"), [(12, 2 / 12), (15, 2 / 15), (53, 6 / 53)])
def test_paper_rule_exceeds_its_target_in_sample(n0, in_sample):
    # BC-A10: 16.7 %, 13.3 % and 11.3 %.
    rate = stats.tpr_at_fpr(range(n0), [0], rule="paper")
    assert rate.false_positives / n0 == pytest.approx(in_sample)


def test_expected_false_positive_rate_of_both_rules():
    # BC-A10: for a new compliant policy 11.6 % at 50, 12.6 % at 30 (paper); 9.8 % (conformal).
    assert round(stats.tpr_at_fpr(range(50), [0], rule="paper").expected_fpr, 3) == 0.116
    assert round(stats.tpr_at_fpr(range(30), [0], rule="paper").expected_fpr, 3) == 0.126
    assert round(stats.tpr_at_fpr(range(50), [0]).expected_fpr, 3) == 0.098


@pytest.mark.parametrize("rule", ["conformal", "paper"])
def test_expected_rate_is_what_fresh_policies_show(rule):
    rng = np.random.default_rng(7)
    rates = []
    for _ in range(200):
        cut = stats.tpr_at_fpr(rng.normal(size=50), [0], rule=rule).threshold
        rates.append(sps.norm.sf(cut))
    expected = stats.tpr_at_fpr(range(50), [0], rule=rule).expected_fpr
    assert np.mean(rates) == pytest.approx(expected, abs=0.01)  # standard error 0.003


def test_true_rate_range_at_50_is_4_to_17_percent():
    rate = stats.tpr_at_fpr(range(50), [1, 60])
    assert [round(bound, 2) for bound in rate.fpr_range] == [0.04, 0.17]
    assert rate.fpr_range.level == 0.90
    # Independent route: P(true rate <= x) is the binomial chance that at most 4 of 50 exceed it.
    assert sps.binom.cdf(4, 50, rate.fpr_range.low) == pytest.approx(0.95)
    assert sps.binom.cdf(4, 50, rate.fpr_range.high) == pytest.approx(0.05)


@pytest.mark.parametrize("rule", ["conformal", "paper"])
def test_cross_fitted_rate_equals_the_loop(rule):
    rng = np.random.default_rng(5)
    low = rng.integers(0, 40, 31).astype(float)  # ties
    above = [low[i] > stats.tpr_at_fpr(np.delete(low, i), [0], rule=rule).threshold for i in range(31)]
    assert stats.tpr_at_fpr(low, [0], rule=rule).cross_fitted_fpr == pytest.approx(np.mean(above))


@pytest.mark.parametrize("rule", ["conformal", "tolerance"])
def test_too_few_negatives_give_null_and_the_number_needed(rule):
    need = {"conformal": 9, "tolerance": 29}[rule]
    rate = stats.tpr_at_fpr(range(need - 1), [99, 100], rule=rule)
    assert (rate.value, rate.count, rate.threshold, rate.interval.low) == (None, None, None, None)
    assert f"at least {need} negatives, found {need - 1}" in rate.reason
    assert stats.tpr_at_fpr(range(need), [99, 100], rule=rule).value == 1.0


def test_one_percent_is_unattainable_at_50():
    assert "at least 99 negatives, found 50" in stats.tpr_at_fpr(range(50), [1], fpr=0.01).reason
    assert "cannot promise" in stats.tpr_at_fpr(range(50), [1], fpr=0).reason
    assert stats.tpr_at_fpr(range(50), [1], fpr=1e-12).value is None


def test_ties_and_empty_arms():
    # All equal: nothing lies strictly above, whatever the quantile says.
    assert stats.tpr_at_fpr([2] * 12, [2] * 5).value == 0.0
    assert stats.tpr_at_fpr([], [1]).reason == "no negatives"
    nobody = stats.tpr_at_fpr(range(20), [])
    assert (nobody.value, nobody.n, nobody.threshold, nobody.reason) == (None, 0, 18.0, "no positives")
    assert stats.tpr_at_fpr([3], [4, 2], rule="paper").value == 0.5


def test_the_rate_is_a_multiple_of_one_over_n():
    # BC-A2: 0.670 of 50 is impossible; an interpolated ROC would give such numbers.
    rng = np.random.default_rng(2)
    rate = stats.tpr_at_fpr(rng.normal(size=50), rng.normal(1, 1, 50))
    assert rate.value == rate.count / 50
