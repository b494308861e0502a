"""Rank p-values."""

import numpy as np
import pytest

from canaryjax import stats
from canaryjax.errors import UserError


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


def test_distance_of_ranks_by_hand():
    # Of 4 grid points; ranks 1, 1, 3 give shares 2/3, 2/3, 1, 1 against 1/4, 1/2, 3/4, 1: farthest at the first, 5/12.
    found = stats.rank_uniformity([1, 1, 3], [3, 3, 3])
    assert found.statistic == pytest.approx(5 / 12)
    # All 64 studies of three ranks, each as likely: the p-value is the share that lies as far or farther.
    far = 0
    for study in np.ndindex(4, 4, 4):
        shares = [np.mean([rank <= k for rank in study]) for k in range(4)]
        far += max(abs(share - (k + 1) / 4) for k, share in enumerate(shares)) >= 5 / 12 - 1e-9
    assert found.p_value == pytest.approx(far / 64, abs=4 * 0.5 / 100)  # four standard errors of 10,000 draws
    assert (found.n, found.resamples) == (3, 10_000)


def test_uniform_ranks_are_seldom_far_and_others_are():
    rng = np.random.default_rng(2)
    sizes = [31] * 12 + [19] * 8  # policies of unlike grids
    p_values = np.array(
        [
            stats.rank_uniformity([rng.integers(1, n + 2) for n in sizes], sizes, resamples=400, seed=k).p_value
            for k in range(400)
        ]
    )
    # Valid at every level; the continuous law would reject too seldom on so coarse a grid.
    assert np.mean(p_values <= 0.05) == pytest.approx(0.05, abs=4 * 0.011)
    assert np.mean(p_values <= 0.3) == pytest.approx(0.3, abs=4 * 0.023)
    # The real one always among the upper third, as where the canary was learnt; and in the middle, which a mean misses.
    assert stats.rank_uniformity([1 + k % 10 for k in range(20)], [31] * 20).p_value < 0.001
    assert stats.rank_uniformity([14 + k % 5 for k in range(20)], [31] * 20).p_value < 0.001


@pytest.mark.parametrize(
    ("ranks", "decoys", "message"),
    [
        ([0], [3], "found 0 of 4 at position 0"),
        ([2, 5], [3, 3], "found 5 of 4 at position 1"),
        ([1.5], [3], "found 1.5 of 4"),
        ([1], [0], "found 1 of 1"),
        ([1, 2], [3], "found 2 and 1"),
    ],
)
def test_a_rank_outside_of_its_grid_is_refused(ranks, decoys, message):
    with pytest.raises(UserError, match=message):
        stats.rank_uniformity(ranks, decoys)


def test_without_ranks_there_is_no_test():
    found = stats.rank_uniformity([], [])
    assert (found.p_value, found.reason) == (None, "no ranks")
