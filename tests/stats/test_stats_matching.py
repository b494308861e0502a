"""Matching within a caliper: by hand and against all matchings there are."""

import itertools

import numpy as np
import pytest

from canaryjax import stats
from canaryjax.errors import UserError


def test_pairs_and_gaps_by_hand():
    # Variances 4 and 16: pooled deviation sqrt(10) = 3.162, so that 0.5 of it is a caliper of 1.581.
    found = stats.caliper_match([0, 2, 4], [1, 5, 9], 0.5)
    assert found.pooled_sd == pytest.approx(np.sqrt(10))
    assert found.width == pytest.approx(0.5 * np.sqrt(10))
    # Greedy by order would give 0 to 1 and 4 to 5 too; 2 has nobody left within 1.581.
    assert found.pairs == ((0, 0), (2, 1))
    assert found.gap_before == pytest.approx((5 - 2) / np.sqrt(10))
    assert found.gap_after == pytest.approx((3 - 2) / np.sqrt(10))


def _best(a, b, width):
    """Size and cost of the best matching, by trying all."""
    short, long = (a, b) if len(a) <= len(b) else (b, a)
    results = []
    for chosen in itertools.permutations(range(len(long)), len(short)):
        gaps = np.abs(np.array(short) - np.array(long)[list(chosen)])
        results.append((-int((gaps <= width).sum()), float(gaps[gaps <= width].sum())))
    return min(results)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("caliper", [0.1, 0.4, 3.0])
def test_as_many_pairs_as_there_can_be_and_the_closest(seed, caliper):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 1, 4), rng.normal(0.7, 2, 6)
    found = stats.caliper_match(a, b, caliper)
    size, cost = _best(a.tolist(), b.tolist(), found.width)
    assert len(found.pairs) == -size
    assert sum(abs(a[i] - b[j]) for i, j in found.pairs) == pytest.approx(cost)
    for side in zip(*found.pairs, strict=True):  # nobody twice
        assert len(set(side)) == len(side)


def test_more_pairs_come_before_closer_ones():
    # 1 to 1.1 alone is closest, and would leave 0 and 2 without a partner.
    assert stats.caliper_match([0.0, 1.0], [1.0, 2.0], 2.0).pairs == ((0, 0), (1, 1))


def test_nothing_to_match():
    few = stats.caliper_match([1.0], [1.0, 2.0], 0.2)
    assert (few.pairs, few.width, few.gap_before) == ((), None, None)
    assert "found 1 and 2" in few.reason
    apart = stats.caliper_match([0.0, 0.1], [9.0, 9.1], 0.2)
    assert (apart.pairs, apart.gap_after, apart.reason) == ((), None, None)
    same = stats.caliper_match([2.0, 2.0], [2.0, 2.0, 2.0], 0.2)
    assert (len(same.pairs), same.width, same.gap_before) == (2, 0.0, None)
    with pytest.raises(UserError, match="caliper: expected a positive number"):
        stats.caliper_match([0.0, 1.0], [0.0, 1.0], 0)
