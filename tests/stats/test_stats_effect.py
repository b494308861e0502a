"""Differences in standard deviations: by hand, against simulation, and where there are none."""

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats


def test_by_hand():
    # Means 1 and 3, pooled variance (2 + 2) / 4 = 1, so d = 2; four degrees of freedom, J = 0.79788 (Hedges' table).
    found = stats.hedges_g([0, 1, 2], [2, 3, 4])
    assert found.value == pytest.approx(2 * 0.79788, abs=1e-5)
    assert stats.hedges_g([2, 3, 4], [0, 1, 2]).value == pytest.approx(-found.value)
    low, high = stats.hedges_g([2, 3, 4], [0, 1, 2]).interval
    assert (-high, -low) == pytest.approx(tuple(found.interval), abs=1e-9)
    # Another unit and another zero are the same effect.
    moved = stats.hedges_g([5, 15, 25], [25, 35, 45])
    assert [moved.value, *moved.interval] == pytest.approx([found.value, *found.interval], abs=1e-9)


def test_bounds_are_the_effects_that_leave_a_tail():
    rng = np.random.default_rng(5)
    low, high = rng.normal(0, 1, 7), rng.normal(1, 1, 11)
    found = stats.hedges_g(low, high, level=0.90)
    scale = np.sqrt(1 / 7 + 1 / 11)
    freedom = 16
    spread = np.sqrt((low.var(ddof=1) * 6 + high.var(ddof=1) * 10) / freedom)
    observed = (high.mean() - low.mean()) / spread / scale
    # The law of t at each bound, drawn: its tail beyond what was observed is 5 %.
    normal, chi = rng.normal(size=400_000), np.sqrt(rng.chisquare(freedom, 400_000) / freedom)
    at_low = ((normal + found.interval.low / scale) / chi >= observed).mean()
    at_high = ((normal + found.interval.high / scale) / chi <= observed).mean()
    assert [at_low, at_high] == pytest.approx([0.05, 0.05], abs=0.0015)  # four standard errors


def test_small_samples_are_unbiased():
    # Cohen's d of 3 + 3 normal scores is too large by 1 / 0.798; the mean of Hedges' g is the true effect.
    rng = np.random.default_rng(6)
    values = [stats.hedges_g(rng.normal(0, 1, 3), rng.normal(1.5, 1, 3)).value for _ in range(1000)]
    assert np.mean(values) == pytest.approx(1.5, abs=4 * np.std(values) / np.sqrt(1000))


@pytest.mark.parametrize(
    ("low", "high", "reason"),
    [
        ([], [1.0, 2.0], "no negatives"),
        ([0.0], [1.0, 2.0], "at least 4 scores together, found 3"),
        ([1.0, 1.0], [2.0, 2.0], "no score differs"),
    ],
)
def test_without_a_spread_there_is_no_effect_but_a_reason(low, high, reason):
    found = stats.hedges_g(low, high)
    assert found.value is None
    assert found.interval.low is None
    assert reason in found.reason
    assert found.to_dict()["interval"]["reason"] == found.reason


def test_arms_far_apart_have_an_interval_too():
    # SciPy's noncentral t gives NaN at such distances.
    rng = np.random.default_rng(7)
    found = stats.hedges_g(rng.normal(0, 1e-3, 50), rng.normal(1, 1e-3, 50))
    assert found.value == pytest.approx(1000, rel=0.3)
    assert found.interval.low < found.value < found.interval.high
    # Far from 0 the spread of the effect is that of the pooled standard deviation: 1 / sqrt(2 * 98).
    assert (found.interval.high - found.interval.low) / found.value == pytest.approx(2 * 1.96 / 14, rel=0.02)


@pytest.mark.parametrize(("sizes", "shift"), [((2, 2), 0.0), ((3, 5), 1.0), ((50, 50), 0.5), ((10, 200), -1.0)])
def test_the_interval_is_that_of_scipys_law_where_it_has_one(sizes, shift):
    rng = np.random.default_rng(8)
    low, high = rng.normal(0, 1, sizes[0]), rng.normal(shift, 1, sizes[1])
    found = stats.hedges_g(low, high)
    scale = np.sqrt(1 / sizes[0] + 1 / sizes[1])
    observed = sps.ttest_ind(high, low).statistic
    tails = [sps.nct.cdf(observed, sum(sizes) - 2, bound / scale) for bound in found.interval]
    assert tails == pytest.approx([0.975, 0.025], abs=1e-5)
