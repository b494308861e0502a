"""The permutation test of doses that were dealt by lot."""

import itertools
import math

import numpy as np
import pytest

from canaryjax import stats
from canaryjax.errors import UserError
from canaryjax.stats import permutation


def by_brute_force(doses, scores):
    observed = sum(d * s for d, s in zip(doses, scores, strict=True))
    sums = [sum(d * s for d, s in zip(dealt, scores, strict=True)) for dealt in itertools.permutations(doses)]
    return np.mean([total >= observed - 1e-9 for total in sums])


@pytest.mark.parametrize(
    ("doses", "scores"),
    [
        ([0, 1, 2, 2, 0, 1, 1], [0, 0, 1, 1, 0, 1, 0]),
        ([0, 1, 2, 2, 0, 1, 1], [0, 0.3, 0.1, 12, 7.5, 7.5, 0]),
        ([0, 1, 2, 2.477], [1, 2, 3, 4]),
        ([0, 1, 2, 2.477, 2.477], [4, 3, 2, 1, 0]),
        ([0.2, 0.7, 0.2, 0.1, 0.7], [0.7, 0.1, 0.1, 0.6, 0.2]),  # equal sums that differ in the last digit: 50, not 46
        ([-1, 2, 5, 5], [-3, 0, 2, -3]),
    ],
)
def test_exact_p_is_that_of_all_permutations(doses, scores):
    found = stats.dose_permutation(doses, scores)
    assert found.method == "exact"
    assert found.p_value == pytest.approx(by_brute_force(doses, scores), abs=1e-12)
    assert found.statistic == pytest.approx(float(np.dot(doses, scores)))


def test_two_hits_in_the_top_rung_by_hand():
    # Rungs of 3: both hits in the top one, 3 of C(12, 2) = 66 ways. Counting ways by table, not by unit, gives 1/10.
    doses = np.repeat([0, 1, 2, math.log10(300)], 3)
    found = stats.dose_permutation(doses, [0] * 9 + [1, 1, 0])
    assert found.p_value == pytest.approx(3 / 66)
    assert found.permutations == 10


def test_binary_doses_are_fishers_test():
    roles, hits = [1] * 9 + [0] * 20, [1, 1, 1] + [0] * 26
    assert stats.dose_permutation(roles, hits).p_value == pytest.approx(stats.fisher_greater(3, 9, 0, 20))


def test_many_units_stay_exact_where_few_differ():
    # 300 units; three hits in the top 100: C(100, 3)/C(300, 3).
    doses, hits = [0] * 200 + [1] * 100, [0] * 297 + [1] * 3
    found = stats.dose_permutation(doses, hits)
    assert found.method == "exact"
    assert found.p_value == pytest.approx(math.comb(100, 3) / math.comb(300, 3))


def test_random_allocations_agree_with_all_of_them(monkeypatch):
    doses = np.repeat([0, 1, 2, 2.5], 3)
    scores = np.array([0, 0, 1.5, 0, 3, 0, 2, 0, 5, 7, 0, 1.5])
    exact = stats.dose_permutation(doses, scores)
    monkeypatch.setattr(permutation, "EXACT_TABLES", 0)
    drawn = stats.dose_permutation(doses, scores, 39_999, seed=5)
    assert (drawn.method, drawn.permutations) == ("monte carlo", 39_999)
    spread = math.sqrt(exact.p_value * (1 - exact.p_value) / 40_000)
    assert drawn.p_value == pytest.approx(exact.p_value, abs=4 * spread)
    assert drawn == stats.dose_permutation(doses, scores, 39_999, seed=5)


def test_a_drawn_p_value_is_never_zero():
    doses, scores = np.arange(40.0), np.arange(40.0)
    assert stats.dose_permutation(doses, scores, 99).p_value == 1 / 100


def test_what_cannot_be_tested_says_why():
    assert stats.dose_permutation([], []).reason == "needs units of two doses, found no units"
    assert stats.dose_permutation([2, 2], [0, 1]).reason == "needs units of two doses, found one dose alone"
    assert stats.dose_permutation([1, 2], [5, 5]).p_value == 1.0
    with pytest.raises(UserError, match="as many as doses; found 1 and 2"):
        stats.dose_permutation([1, 2], [1])
    with pytest.raises(UserError, match="position 1"):
        stats.dose_permutation([1, 2], [1, float("nan")])


@pytest.mark.parametrize("method", ["exact", "monte carlo"])
def test_it_keeps_its_level(method):
    # Scores that have nothing to do with the doses: P(p <= a) <= a. Ties not counted, or no +1, would exceed it.
    rng = np.random.default_rng(3)
    doses = np.repeat([0, 1, 2, 2.5], 3)
    p_values = []
    for _ in range(500):
        scores = rng.integers(0, 2, 12) if method == "exact" else rng.normal(size=12)
        found = stats.dose_permutation(doses, scores, 19, rng)
        assert found.method == method or scores.min() == scores.max()
        p_values.append(found.p_value)
    for level in (0.05, 0.1, 0.3, 0.5):
        assert np.mean(np.array(p_values) <= level) <= level + 3 * math.sqrt(level * (1 - level) / 500)
    assert np.mean(np.array(p_values) <= 0.3) > 0.15  # a p of 1 always would keep any level
