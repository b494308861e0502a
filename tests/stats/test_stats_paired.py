"""Tests for trials that cells share."""

import itertools

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats
from canaryjax.errors import UserError


def test_shared_trials_are_refused_by_name():
    stats.require_independent({"a": [1, 2], "b": [3]}, "kruskal")
    with pytest.raises(UserError, match="trial 2 in both a and c"):
        stats.require_independent({"a": [1, 2], "b": [3], "c": [4, 2]}, "kruskal")
    with pytest.raises(UserError, match="trial x twice in a"):
        stats.require_independent({"a": ["x", "x"]}, "welch")


@pytest.mark.parametrize("values", [[1, 2, 3], [1, -2, 4, 4], [0, 0, 1], [0.1, 0.2, 0.3, -0.6]])
def test_sign_flips_equal_the_slow_enumeration(values):
    signs = itertools.product([1, -1], repeat=len(values))
    sums = [abs(sum(s * v for s, v in zip(pattern, values, strict=True))) for pattern in signs]
    result = stats.sign_flip_test(values)
    assert result.exact
    assert result.p_value == np.mean([s >= abs(sum(values)) - 1e-12 for s in sums])


def test_sign_flips_drawn():
    rng = np.random.default_rng(0)
    assert stats.sign_flip_test(np.full(30, 2.0), resamples=99).p_value == 1 / 100
    assert stats.sign_flip_test(np.zeros(30)).p_value == 1.0
    values = rng.normal(0.3, 1, 40)
    assert stats.sign_flip_test(values).p_value == pytest.approx(sps.ttest_1samp(values, 0).pvalue, abs=0.02)
    assert stats.sign_flip_test([]).reason == "no differences"


def test_page_equals_scipy():
    rng = np.random.default_rng(1)
    table = rng.normal(size=(13, 4)) + 0.25 * np.arange(4)
    ours, oracle = stats.page_trend(table, resamples=20_000), sps.page_trend_test(table, method="asymptotic")
    assert ours.statistic == oracle.statistic
    assert sps.norm.sf(ours.z) == pytest.approx(oracle.pvalue)
    exact = sps.page_trend_test(table, method="exact").pvalue
    assert ours.p_value == pytest.approx(2 * exact, abs=0.012)
    assert stats.page_trend(-table).z == pytest.approx(-ours.z)


def test_page_variance_counts_ties():
    # Full law over the permutations of two tied trials.
    table = [[1, 1, 2], [3, 5, 5]]
    ranks = [[1.5, 1.5, 3], [1, 2.5, 2.5]]
    law = [
        sum(w * (a + b) for w, a, b in zip((1, 2, 3), first, second, strict=True))
        for first in itertools.permutations(ranks[0])
        for second in itertools.permutations(ranks[1])
    ]
    result = stats.page_trend(table)
    assert result.statistic == 1.5 + 3 + 9 + 1 + 5 + 7.5
    assert result.z == pytest.approx((result.statistic - np.mean(law)) / np.std(law))


def test_page_edges():
    assert stats.page_trend([]).reason == "no trials"
    assert stats.page_trend([[1, 1], [2, 2]]).reason == "every trial is constant over the cells"
    assert stats.page_trend([[1, 2, 3]] * 9, resamples=99).p_value == 1 / 100
