"""A rate between two control rates, and what a count weighs between them."""

import math

import numpy as np
import pytest

from canaryjax import stats
from canaryjax.errors import UserError


def test_rogan_gladen_by_hand():
    # Sensitivity 0.8 and specificity 0.9: an apparent 0.31 is (0.31 - 0.1)/(0.8 - 0.1).
    assert stats.rogan_gladen(0.31, 0.1, 0.8).raw == pytest.approx(0.3)
    assert stats.rogan_gladen(0.1, 0.1, 0.8).raw == 0.0  # divided by the ceiling alone it would be 0.125
    assert stats.rogan_gladen(0.8, 0.1, 0.8).raw == pytest.approx(1.0)


@pytest.mark.parametrize(("rate", "raw", "clipped"), [(0.0, -0.25, 0.0), (1.0, 1.25, 1.0), (0.6, 0.65, 0.65)])
def test_what_lies_outside_is_kept_and_clipped_apart(rate, raw, clipped):
    floor, ceiling = 1 / 6, 5 / 6  # width 2/3
    found = stats.rogan_gladen(rate, floor, ceiling)
    assert found.raw == pytest.approx((rate - floor) / (2 / 3))
    assert found.raw == pytest.approx(raw)
    assert found.clipped == pytest.approx(clipped)


def test_controls_that_do_not_differ_give_a_reason():
    assert stats.rogan_gladen(0.5, 0.25, 0.25).to_dict() == {
        "raw": None,
        "clipped": None,
        "reason": "the ceiling 0.25 is not above the floor 0.25",
    }
    assert stats.rogan_gladen(0.5, 0.25, 0.125).raw is None
    assert stats.rogan_gladen(0.5, None, None).reason == "no floor and no ceiling"
    with pytest.raises(UserError, match="floor"):
        stats.rogan_gladen(0.5, -0.1, 0.4)


def test_jeffreys_rates():
    assert stats.jeffreys_rate(5, 8) == pytest.approx(5.5 / 9)
    assert stats.jeffreys_rate(0, 20) == pytest.approx(0.5 / 21)


@pytest.mark.parametrize(("k", "n"), [(0, 9), (1, 9), (4, 9), (9, 9), (0, 1), (37, 300)])
def test_bayes_factor_is_the_ratio_of_integrals(k, n):
    # Oracle: the binomial likelihood integrated over each posterior on a grid of its log odds.
    odds = np.linspace(-60, 60, 240_001)
    p = 1 / (1 + np.exp(-odds))
    q = 1 / (1 + np.exp(odds))

    def marginal(hits, trials):
        a, b = hits + 0.5, trials - hits + 0.5
        log_density = a * np.log(p) + b * np.log(q)  # the change of variables adds one power of each
        weight = np.exp(log_density - log_density.max())
        return (weight * p**k * q ** (n - k)).sum() / weight.sum()

    expected = marginal(5, 8) / marginal(0, 20)
    assert stats.beta_binomial_ratio(k, n, 5, 8, 0, 20) == pytest.approx(expected, rel=1e-6)


def test_integrating_is_more_careful_than_plugging_in():
    # Twelve hits of twelve: plugged-in rates would claim 25.67^12 = 8e16.
    factor = stats.beta_binomial_ratio(12, 12, 5, 8, 0, 20)
    assert 1 < factor < 25.67**12 / 1e3
    assert math.isfinite(stats.beta_binomial_ratio(5000, 5000, 5, 8, 0, 20))
