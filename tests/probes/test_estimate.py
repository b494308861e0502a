"""Means over canaries and seeds, both families of intervals, and what is left out."""

import math

import numpy as np
import pytest

from canaryjax.probes.estimate import estimate, label_of, leave_one_out
from canaryjax.stats.proportion import mean_interval
from canaryjax.stats.result import Interval

NAN = float("nan")


def table(rows):
    return {seed: dict(enumerate(row)) for seed, row in enumerate(rows)}


# Seed means whose standard deviation gives the document's intervals (PA-28), with 4.3027 = t(0.975, 2 df).
@pytest.mark.parametrize(
    ("means", "low", "high"),
    [
        # The largest spread between seeds is 0.0049 (PA-29).
        ([0.0133 + 0.00131, 0.0133 - 0.000655 - 0.00245, 0.0133 - 0.000655 + 0.00245], 0.0066, 0.0200),
        ([0.01504 - 0.00179, 0.01504, 0.01504 + 0.00179], 0.0106, 0.0195),
        ([-0.00703 - 0.00103, -0.00703, -0.00703 + 0.00103], -0.0096, -0.0045),
        ([0.00755 - 0.00195, 0.00755, 0.00755 + 0.00195], 0.0027, 0.0124),
    ],
)
def test_students_interval_over_three_seeds(means, low, high):
    found = mean_interval(means, 0.95)
    # A normal interval (1.96) would be less than half as wide.
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)
    half = 4.302652729911275 * np.std(means, ddof=1) / math.sqrt(3)
    assert found.high - found.low == pytest.approx(2 * half, rel=1e-12)


def test_one_seed_has_no_interval():
    found = mean_interval([0.5], 0.95)
    assert (found.low, found.estimate, found.reason) == (None, 0.5, "needs at least 2 values, found 1")


def test_macro_and_micro_weigh_canaries_and_tokens():
    # Two canaries of 1 and 3 tokens: the mean of means is 2, over tokens (1 * 3 + 3 * 1) / 4.
    rows = table([[3.0, 1.0], [3.0, 1.0]])
    pooled = {(seed, canary): (3.0, 1 + 2 * canary) for seed in (0, 1) for canary in (0, 1)}
    found = estimate(rows, 0.95, 200, 0, pooled)
    assert found.value == 2.0
    assert found.micro == pytest.approx(6 / 4)


def test_what_is_not_finite_is_left_out_and_counted():
    found = estimate(table([[1.0, NAN, 3.0], [2.0, 4.0, NAN], [5.0, 1.0, 3.0]]), 0.95, 200, 0)
    assert found.per_seed == (2.0, 3.0, 3.0)
    assert found.value == pytest.approx(8 / 3)
    assert (found.instances, found.excluded) == (7, 2)
    assert found.crossed.estimate == pytest.approx(8 / 3)  # canary 0 alone is in every seed: 1, 2, 5


def test_a_seed_without_a_value_leaves_no_mean():
    found = estimate(table([[NAN, NAN], [1.0, 2.0]]), 0.95, 200, 0)
    assert found.value is None
    assert found.nested.reason == "a seed without a finite instance"
    assert found.label == "neither"


def test_signs_of_three_seeds():
    found = estimate(table([[1.0, 2.0], [1.0, 1.0], [3.0, 2.0]]), 0.95, 200, 0)
    assert found.same_sign
    assert found.sign_p == 0.25
    assert found.spread == 1.5
    mixed = estimate(table([[1.0, 2.0], [-1.0, -1.0], [3.0, 2.0]]), 0.95, 200, 0)
    assert (mixed.same_sign, mixed.sign_p) == (False, None)
    alone = estimate(table([[1.0, 2.0]]), 0.95, 200, 0)
    assert (alone.same_sign, alone.sign_p) == (None, None)  # a seed that agrees with itself shows nothing


def test_one_canary_that_all_seeds_share_widens_the_crossed_interval():
    # A canary that moves under every seed is one accident, not three: the nested draw takes it for three.
    rows = [[0.123, *[0.0] * 18, 0.01 * seed] for seed in range(3)]
    found = estimate(table(rows), 0.95, 4000, 7)
    nested, crossed = (one.high - one.low for one in (found.nested, found.crossed))
    assert crossed > 1.3 * nested


LOW, HIGH, WIDE = (Interval(*b, 0.95, "x") for b in ((-0.3, -0.1), (0.1, 0.3), (-1.0, 1.0)))


@pytest.mark.parametrize(
    ("nested", "student", "expected"),
    [
        (HIGH, HIGH, ("both", 1)),
        (LOW, LOW, ("both", -1)),
        (HIGH, WIDE, ("hb-only", 1)),
        (WIDE, LOW, ("t-only", -1)),
        (WIDE, WIDE, ("neither", 0)),
        (LOW, HIGH, ("neither", 0)),  # opposite sides support nothing
        (Interval(None, None, 0.95, "x"), HIGH, ("t-only", 1)),
        (HIGH, Interval(0.2, 0.2, 0.95, "x"), ("hb-only", 1)),  # a point excludes nothing
    ],
)
def test_labels(nested, student, expected):
    assert label_of(nested, student) == expected


def test_leaving_out_the_only_finite_canary_leaves_nothing():
    assert leave_one_out(table([[1.0, NAN], [2.0, 4.0]])) == [(0, None), (1, 1.5)]
    # Seeds weigh alike though one has fewer numbers: over all of them 13 / 3 would be left without canary 2.
    assert leave_one_out(table([[1.0, NAN, 3.0], [5.0, 7.0, 9.0]])) == [(0, 5.5), (1, 4.5), (2, 3.5)]
