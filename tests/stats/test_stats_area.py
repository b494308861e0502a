"""Intervals of the AUROC."""

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats


@pytest.mark.parametrize(
    ("size", "level", "low"),
    # At A = 1: (1 − t) = z² t [1 + 7 ((1 − t)/(2 − t) + t/(1 + t))]/64.
    # By hand at t = 0.7556, z² = 3.84146: the bracket is 1 + 7 (0.19637 + 0.43041) = 5.3875, the right side 0.2443, the
    # left 0.2444. At t = 0.8191, z² = 2.70554: both 0.1809.
    [(8, 0.95, 0.7556), (8, 0.90, 0.8191)],
)
def test_newcombe_at_perfect_separation(size, level, low):
    interval = stats.auroc_interval(range(size), range(size, 2 * size), level, method="newcombe")
    assert interval.low == pytest.approx(low, abs=1e-4)
    assert interval.high == 1.0
    mirrored = stats.auroc_interval(range(size, 2 * size), range(size), level)
    assert (mirrored.low, mirrored.high) == (0.0, pytest.approx(1 - interval.low, abs=1e-12))


@pytest.mark.parametrize(("n0", "n1", "seed"), [(11, 7, 0), (50, 50, 1), (30, 3, 2), (5, 31, 3)])
def test_newcombe_bounds_solve_the_equation(n0, n1, seed):
    rng = np.random.default_rng(seed)
    low, high = rng.normal(size=n0), rng.normal(0.7, 1, n1)
    area = stats.auroc(low, high)
    interval = stats.auroc_interval(low, high, 0.9)
    z = 1.6448536269514722
    for t in interval:
        # Hanley and McNeil's variance in its own form, with both sample sizes replaced by their mean.
        q1, q2, m = t / (2 - t), 2 * t * t / (1 + t), (n0 + n1) / 2
        variance = (t * (1 - t) + (m - 1) * (q1 - t * t + q2 - t * t)) / (n0 * n1)
        assert abs(t - area) == pytest.approx(z * np.sqrt(variance), rel=1e-9)
    assert interval.low < area < interval.high


def test_newcombe_with_one_policy_an_arm():
    # N = 1: V = t(1 − t), so 1 − t = z² t: t = 1/(1 + z²) = 0.2066.
    assert stats.auroc_interval([0], [1], 0.95).low == pytest.approx(1 / (1 + 1.959963984540054**2))


def slow_delong(low, high, level):
    """DeLong by explicit double loops."""

    def psi(x, y):
        return 1.0 if y > x else 0.5 if y == x else 0.0

    v10 = [sum(psi(x, y) for x in low) / len(low) for y in high]
    v01 = [sum(psi(x, y) for y in high) / len(high) for x in low]
    area = sum(v10) / len(v10)
    s10 = sum((v - area) ** 2 for v in v10) / (len(v10) - 1)
    s01 = sum((v - area) ** 2 for v in v01) / (len(v01) - 1)
    reach = sps.norm.ppf(0.5 + level / 2) * (s10 / len(v10) + s01 / len(v01)) ** 0.5
    return area - reach, area + reach


@pytest.mark.parametrize("seed", range(4))
def test_delong_equals_the_double_loop(seed):
    rng = np.random.default_rng(seed)
    low, high = rng.integers(0, 8, 19), rng.integers(1, 10, 13)
    # Swapping the two sample sizes is the usual mistake; they differ here.
    assert list(stats.auroc_interval(low, high, 0.9, "delong")) == pytest.approx(slow_delong(low, high, 0.9))


def test_delong_stays_within_0_and_1():
    low, high = [0, 1, 2, 3, 4.5], [4, 5, 6]
    assert slow_delong(low, high, 0.95)[1] > 1
    assert stats.auroc_interval(low, high, 0.95, "delong").high == 1.0


@pytest.mark.parametrize(
    ("low", "high", "area"), [([0], range(1, 51), 1.0), (range(5), range(5, 9), 1.0), ([1, 1], [1, 1], 0.5)]
)
def test_delong_without_variance_is_null(low, high, area):
    # Known fault 44: a division by n − 1 = 0, or an interval of zero width.
    interval = stats.auroc_interval(low, high, 0.95, "delong")
    assert (interval.low, interval.high, interval.estimate) == (None, None, area)
    assert interval.reason


@pytest.mark.parametrize("scheme", ["stratified", "pooled"])
def test_bootstrap_equals_a_slow_bootstrap_in_law(scheme):
    rng = np.random.default_rng(11)
    low, high = rng.integers(0, 30, 31), rng.integers(6, 36, 37)
    labels, pooled = np.repeat([0, 1], [31, 37]), np.concatenate([low, high])
    draws = []
    for _ in range(1000):
        if scheme == "stratified":
            draws.append(stats.auroc(rng.choice(low, 31), rng.choice(high, 37)))
        else:
            pick = rng.integers(0, 68, 68)
            draws.append(stats.auroc(pooled[pick][labels[pick] == 0], pooled[pick][labels[pick] == 1]))
    fast = stats.auroc_interval(low, high, 0.90, "bootstrap", scheme=scheme, seed=4)
    assert list(fast) == pytest.approx(np.quantile(draws, [0.05, 0.95]).tolist(), abs=0.015)
    assert fast.detail.startswith(scheme)


def test_bootstrap_of_two_and_one_by_enumeration():
    # Negatives 0, 2 against 1: areas 1 (1/4), 1/2 (1/2), 0 (1/4). At level 0.4 the 30 and 70 % points are both 1/2.
    assert list(stats.auroc_interval([0, 2], [1], 0.4, "bootstrap")) == [0.5, 0.5]
    assert list(stats.auroc_interval([0, 2], [1], 0.6, "bootstrap")) == [0.0, 1.0]


def test_bootstrap_is_reproducible_and_seeded():
    rng = np.random.default_rng(0)
    low, high = rng.normal(size=31), rng.normal(size=37)
    a, b, c = (stats.auroc_interval(low, high, 0.9, "bootstrap", seed=s).low for s in (1, 1, 2))
    assert a == b
    assert a != c


def test_bootstrap_over_several_blocks(monkeypatch):
    from canaryjax.stats import resampling

    monkeypatch.setattr(resampling, "CELLS", 1000)
    draws = resampling.bootstrap_aurocs(np.arange(7.0), np.arange(3.0, 8.0), 997, 0, "stratified")
    assert draws.shape == (997,)  # the last block is shorter


def test_degenerate_bootstrap_says_so():
    # Known fault 40.
    interval = stats.auroc_interval(range(31), range(40, 77), 0.9, "bootstrap")
    assert (interval.low, interval.high) == (1.0, 1.0)
    assert "degenerate" in interval.reason


def test_pooled_bootstrap_skips_resamples_without_an_arm():
    interval = stats.auroc_interval([0, 1], [2], 0.9, "bootstrap", scheme="pooled")
    # (2/3)³ + (1/3)³ = 1/3 of resamples lack an arm.
    skipped = int(interval.detail.split(",")[2].split()[0])
    assert skipped == pytest.approx(10_000 / 3, abs=250)


def test_auto_follows_the_rule():
    rng = np.random.default_rng(0)
    low, high = rng.normal(size=30), rng.normal(size=30)
    assert stats.auroc_interval(low, high, 0.9, "auto").method == "bootstrap"
    assert stats.auroc_interval(low[:29], high, 0.9, "auto").method == "newcombe"
    assert stats.auroc_interval(range(30), range(30, 60), 0.9, "auto").method == "newcombe"


@pytest.mark.parametrize("method", ["newcombe", "bootstrap", "delong", "auto"])
def test_empty_arm_is_null(method):
    interval = stats.auroc_interval([], [1, 2], 0.9, method)
    assert (interval.low, interval.high, interval.reason) == (None, None, "no negatives")


def test_published_half_widths_reveal_the_sample_sizes():
    # BC-A1: 0.537 ± 0.123 is what 30 and 30 give at 90 %, from Hanley and McNeil at the estimate.
    t, n = 0.537, 30
    variance = t * (1 - t) * (1 + (n - 1) * ((1 - t) / (2 - t) + t / (1 + t))) / n**2
    assert 1.645 * variance**0.5 == pytest.approx(0.123, abs=0.002)
