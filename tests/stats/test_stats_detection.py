"""AUROC, ROC, PPV and the area of what a threshold misses."""

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats


def slow_area(negatives, positives):
    wins = sum((p > n) + 0.5 * (p == n) for n in negatives for p in positives)
    return wins / (len(negatives) * len(positives))


def test_area_counts_ties_one_half():
    # Pairs (1,1) tie, (1,3) win, (2,1) loss, (2,3) win: 2.5 of 4. Strict ties would give 0.5, generous ones 0.75.
    assert stats.auroc([1, 2], [1, 3]) == 0.625
    assert stats.auroc([7, 7, 7], [7, 7]) == 0.5


def test_area_points_from_compliant_to_violating():
    # A class coded backwards turns these around (known fault 43).
    assert stats.auroc([1, 2], [3, 4, 5]) == 1.0
    assert stats.auroc([3, 4, 5], [1, 2]) == 0.0
    assert "labels are not swapped" in stats.direction_warning([3, 4, 5], [1, 2])
    assert stats.direction_warning([1, 2], [3, 4, 5]) is None


def test_area_of_an_empty_arm_is_undefined():
    assert stats.auroc([], [1.0]) is None
    assert stats.auroc([1.0], []) is None
    assert stats.direction_warning([], [1.0]) is None


@pytest.mark.parametrize("seed", range(5))
def test_area_equals_the_double_loop_and_mann_whitney(seed):
    rng = np.random.default_rng(seed)
    low, high = rng.integers(0, 9, 23), rng.integers(2, 11, 17)  # many ties
    assert stats.auroc(low, high) == pytest.approx(slow_area(low, high), abs=1e-15)
    assert stats.auroc(low, high) == pytest.approx(sps.mannwhitneyu(high, low).statistic / (23 * 17), abs=1e-15)


def test_roc_points_by_hand():
    curve = stats.roc_curve([0, 1, 1], [1, 2])
    # Above 2 nothing; above 1 the 2; above 0 all but the 0; above minus infinity all. A tie is one slanted step.
    assert curve.points == [(0, 0), (0, 0.5), (2 / 3, 1), (1, 1)]
    fpr, _, thresholds = curve
    assert thresholds.tolist() == [2, 1, 0, -np.inf]
    assert np.trapezoid(curve.tpr, fpr) == pytest.approx(stats.auroc([0, 1, 1], [1, 2]))
    assert curve.to_dict()["thresholds"] == [2.0, 1.0, 0.0, None]


def test_an_outlier_moves_one_threshold_only():
    # A grid that is linear between the smallest and largest score collapses to two points (known fault 42).
    rng = np.random.default_rng(3)
    low, high = rng.normal(size=19), rng.normal(2, 1, 13)
    far = high.copy()
    far[far.argmax()] = 1e6
    before, after = stats.roc_curve(low, high), stats.roc_curve(low, far)
    changed = [a != b for a, b in zip(before.thresholds, after.thresholds, strict=True)]
    assert changed == [True] + [False] * 32
    assert before.points == after.points
    assert len(before.points) == 19 + 13 + 1


def test_predictive_value_at_several_prevalences():
    # BC-64, BC-A19: 87.0 % and 85.7 % when balanced, 6.3 % and 5.7 % at one in a hundred.
    assert [round(stats.ppv(t, 0.10, 0.5), 3) for t in (0.67, 0.60)] == [0.870, 0.857]
    assert [round(stats.ppv(t, 0.10, 0.01), 3) for t in (0.67, 0.60)] == [0.063, 0.057]
    assert stats.ppv(0.5, 0.0, 0.2) == 1.0
    assert stats.ppv(0.0, 0.1, 0.2) == 0.0
    assert stats.ppv(0.0, 0.0, 0.2) is None
    assert stats.ppv(0.3, 0.1, 0) == 0.0
    assert stats.ppv(None, 0.1, 0.5) is None


def test_area_of_the_missed_positives():
    # Missed: 1 and 0 (not above 3). Against 1, 2, 3: one tie with 1, no other win: 0.5 of 6.
    remainder = stats.remainder_auroc([1, 2, 3], [0, 1, 4, 5], 3)
    assert (remainder.count, remainder.n) == (2, 4)
    assert remainder.value == pytest.approx(0.5 / 6)
    assert stats.remainder_auroc([1, 2], [5, 6], 3).reason == "every positive is above the threshold"
    assert stats.remainder_auroc([1, 2], [5, 6], None).reason == "no threshold"


def test_missed_positives_below_the_negatives_raise_the_alarm():
    rng = np.random.default_rng(0)
    low = rng.normal(size=50)
    cut = stats.tpr_at_fpr(low, low).threshold
    opposite = np.concatenate([np.full(34, 9.0), rng.normal(-2, 0.5, 16)])
    unmoved = np.concatenate([np.full(34, 9.0), rng.normal(size=16)])
    assert "both ways" in stats.remainder_auroc(low, opposite, cut).warning
    assert stats.remainder_auroc(low, unmoved, cut).warning is None


def test_published_numbers_imply_an_area_far_below_one_half():
    # BC-A11: 0.756 with a plateau at 0.67 from 1 % leaves 0.26 to 0.28 for the rest.
    low, high = stats.implied_remainder_auroc(0.756, 0.67, 0.01)
    assert low == pytest.approx(0.086 / 0.33)
    assert high == pytest.approx(0.0927 / 0.33)
    assert stats.implied_remainder_auroc(0.9, 1.0, 0.1) is None


def test_two_sided_scores_measure_distance():
    assert stats.two_sided_scores([-3, 0, 2], centre=-1).tolist() == [2, 1, 3]
