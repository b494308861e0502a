"""Rank p-values."""

import numpy as np
import pytest

from canaryjax import stats


@pytest.mark.parametrize("p_value", [stats.conformal_p_value, stats.placebo_rank_p_value])
def test_rank_p_values_count_ties_and_add_one(p_value):
    assert p_value(5, [1, 2, 3]) == 1 / 4  # best rank: never 0 (known fault 41)
    assert p_value(3, [1, 3, 3, 4, 0]) == 4 / 6  # strict ties would give 2/6
    assert p_value(2, [2, 2, 2]) == 1.0
    assert p_value(0, [1, 2, 3]) == 1.0
    assert p_value(0, []) == 1.0
    assert isinstance(p_value(np.float32(1), np.arange(4)), float)


def test_nineteen_placebos_reach_five_percent():
    assert stats.placebo_rank_p_value(20, range(19)) == 0.05
    assert stats.placebo_rank_p_value(40, range(31)) == 1 / 32


def test_rank_p_values_are_uniform_on_their_grid():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4000, 10))
    p = np.array([stats.conformal_p_value(row[0], row[1:]) for row in draws])
    shares = np.bincount(np.rint(p * 10).astype(int), minlength=11)[1:] / 4000
    assert shares == pytest.approx(np.full(10, 0.1), abs=0.02)  # standard error 0.005
