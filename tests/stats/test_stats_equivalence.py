"""Two one-sided tests: by hand, against SciPy's one-sided t tests, and what is said where nothing can be tested."""

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats
from canaryjax.errors import UserError


def test_paired_by_hand():
    # Mean 1, standard deviation 1, standard error 1/sqrt(3): t = (1 + 2) sqrt(3) = 5.196 and (1 - 2) sqrt(3) = -1.732
    # at 2 degrees of freedom, where P(T < t) = 1/2 + t / (2 sqrt(2 + t^2)).
    found = stats.paired_equivalence([0, 1, 2], 2)
    assert (found.difference, found.n, found.design) == (1.0, 3, "paired")
    assert found.p_below == pytest.approx(0.5 - np.sqrt(27) / (2 * np.sqrt(29)))
    assert found.p_above == pytest.approx(0.5 - np.sqrt(3) / (2 * np.sqrt(5)))
    assert found.p_value == found.pvalue == found.p_above  # the smaller one would call any difference small
    # t(0.975, 2) = 4.3027.
    assert [round(bound, 3) for bound in found.interval] == [-1.484, 3.484]
    assert (found.equivalent, found.differs, found.verdict) == (False, False, "not shown equivalent")


@pytest.mark.parametrize("shift", [-0.03, 0.0, 0.011, 0.05])
def test_paired_equals_scipys_one_sided_tests(shift):
    values = np.random.default_rng(3).normal(shift, 0.04, 23)
    found = stats.paired_equivalence(values, 0.02)
    assert found.p_below == pytest.approx(sps.ttest_1samp(values, -0.02, alternative="greater").pvalue)
    assert found.p_above == pytest.approx(sps.ttest_1samp(values, 0.02, alternative="less").pvalue)
    assert tuple(found.interval) == pytest.approx(tuple(sps.ttest_1samp(values, 0).confidence_interval(0.95)))


@pytest.mark.parametrize("shift", [-0.03, 0.0, 0.05])
def test_welch_equals_scipys_one_sided_tests(shift):
    rng = np.random.default_rng(5)
    a, b = rng.normal(shift, 0.03, 17), rng.normal(0.0, 0.07, 11)
    found = stats.welch_equivalence(a, b, 0.02)
    # mean(a) - mean(b) above -0.02 is mean(a + 0.02) above mean(b).
    assert found.p_below == pytest.approx(sps.ttest_ind(a + 0.02, b, equal_var=False, alternative="greater").pvalue)
    assert found.p_above == pytest.approx(sps.ttest_ind(a - 0.02, b, equal_var=False, alternative="less").pvalue)
    own = sps.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert tuple(found.interval) == pytest.approx(tuple(own))
    assert found.n == (17, 11)


@pytest.mark.parametrize(
    ("centre", "spread", "verdict"),
    [
        (0.0, 0.01, "equivalent within 0.02"),
        (0.01, 0.01, "equivalent within 0.02, though not 0"),
        (0.05, 0.01, "differs"),
        (0.0, 0.2, "not shown equivalent"),  # a wide interval around 0 is no sameness
        (0.02, 0.2, "not shown equivalent"),
    ],
)
def test_four_verdicts(centre, spread, verdict):
    values = centre + spread * np.tile([-1.0, 1.0], 20)
    for found in (stats.paired_equivalence(values, 0.02), stats.welch_equivalence(values, np.tile(0.0, 20), 0.02)):
        assert found.verdict == verdict
        # The two tests at 5 % are the 90 % interval within the margin.
        own = stats.mean_interval(values, 0.90)
        low, high = own if found.design == "paired" else stats.welch(values, np.tile(0.0, 20), 0.90).interval
        assert found.equivalent == (low >= -0.02 and high <= 0.02)


def test_equivalence_is_claimed_wrongly_in_at_most_one_of_twenty():
    # At the margin itself: with the smaller of the two p-values it would be claimed nearly always.
    rng = np.random.default_rng(11)
    claims = [stats.paired_equivalence(rng.normal(0.02, 0.03, 40), 0.02).equivalent for _ in range(1000)]
    assert 0.03 < np.mean(claims) < 0.07


@pytest.mark.parametrize(
    ("found", "difference", "reason"),
    [
        (stats.paired_equivalence([], 0.02), None, "needs at least 2 units, found 0"),
        (stats.paired_equivalence([0.1], 0.02), 0.1, "needs at least 2 units, found 1"),
        (stats.paired_equivalence([0.0] * 9, 0.02), 0.0, "all 9 differences are 0: without spread there is no test"),
        # 0.7 - 0.6 and 0.4 - 0.3 are equal but for rounding, which would give a p-value of 1e-15.
        (stats.paired_equivalence([0.7 - 0.6, 0.4 - 0.3], 0.2), 0.1, "all 2 differences are 0.1: without spread"),
        (stats.welch_equivalence([0.5, 0.5], [0.5, 0.5], 0.02), 0.0, "both samples are constant"),
        (stats.welch_equivalence([0.5, 0.6], [], 0.02), None, "found 2 and 0"),
    ],
)
def test_where_nothing_can_be_tested_nothing_is_claimed(found, difference, reason):
    assert found.difference == (None if difference is None else pytest.approx(difference))
    assert (found.p_value, found.equivalent, found.differs) == (None, None, None)
    assert found.verdict == "not shown equivalent"
    assert reason in found.reason
    assert found.to_dict()["interval"]["low"] is None


@pytest.mark.parametrize("margin", [0, -0.02, float("nan")])
def test_a_margin_is_positive(margin):
    with pytest.raises(UserError, match="margin: expected a"):
        stats.paired_equivalence([0.0, 0.1], margin)
    with pytest.raises(UserError, match="margin: expected a"):
        stats.welch_equivalence([0.0, 0.1], [0.0, 0.2], margin)
