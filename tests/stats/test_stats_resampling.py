"""The bootstrap of the detection rate and the hierarchical bootstrap."""

import itertools

import numpy as np
import pytest

from canaryjax import stats
from canaryjax.stats import resampling


@pytest.mark.parametrize("rule", ["conformal", "paper"])
def test_blocks_count_what_a_direct_resample_gives(rule):
    # Rebuild each resample from its counts and ask the plain function.
    rng = np.random.default_rng(2)
    low, high = rng.integers(0, 25, 17).astype(float), rng.integers(9, 33, 13).astype(float)
    ranks = {n: resampling.threshold_rank(n, 0.10, rule) for n in range(1, 31)}
    for scheme in ("stratified", "pooled"):
        block = next(resampling.resampled_counts(low, high, 60, 5, scheme))
        fast = resampling._block_tprs(block, ranks)
        slow = []
        for zeros, ones in zip(block.negatives, block.positives, strict=True):
            rate = stats.tpr_at_fpr(np.repeat(block.values, zeros), np.repeat(block.values, ones), 0.10, rule)
            if rate.value is not None:
                slow.append(rate.value)
        assert fast == pytest.approx(slow)
        areas = [
            stats.auroc(np.repeat(block.values, z), np.repeat(block.values, o))
            for z, o in zip(block.negatives, block.positives, strict=True)
        ]
        drawn = resampling.bootstrap_aurocs(low, high, 60, 5, scheme)
        assert drawn == pytest.approx(areas, abs=1e-14)


def test_resamples_keep_or_vary_the_arm_sizes():
    low, high = np.arange(7.0), np.arange(3.0, 14.0)
    block = next(resampling.resampled_counts(low, high, 200, 0, "stratified"))
    assert set(block.negatives.sum(axis=1)) == {7}
    assert set(block.positives.sum(axis=1)) == {11}
    # Values 3 .. 6 stand in both arms and must not be mixed up.
    assert block.negatives[:, 7:].sum() == 0
    assert block.positives[:, :3].sum() == 0
    pooled = next(resampling.resampled_counts(low, high, 200, 0, "pooled"))
    assert len(set(pooled.negatives.sum(axis=1))) > 3
    assert set((pooled.negatives + pooled.positives).sum(axis=1)) == {18}


def test_threshold_is_estimated_again():
    # With the threshold fixed, positives that all score the same would give 0 or 1 in every resample.
    low, high = np.arange(50.0), np.full(50, 45.5)
    interval = stats.tpr_bootstrap_interval(low, high)
    assert (interval.low, interval.high) == (0.0, 1.0)
    assert interval.level == 0.90


def test_unattainable_rate_has_no_bootstrap():
    assert "at least 9 negatives" in stats.tpr_bootstrap_interval(range(8), range(9)).reason
    pooled = stats.tpr_bootstrap_interval(range(9), range(9), scheme="pooled")
    assert "skipped" in pooled.detail  # resamples with 8 negatives or fewer


@pytest.mark.parametrize("design", ["nested", "crossed"])
def test_hierarchical_bootstrap_equals_full_enumeration(design):
    table = np.array([[0.0, 1.0], [3.0, 7.0]])
    law = []
    for rows in itertools.product(range(2), repeat=2):
        picks = list(itertools.product(range(2), repeat=2))
        if design == "crossed":
            law += [np.mean([table[r][list(p)].mean() for r in rows]) for p in picks for _ in picks]
        else:
            law += [
                np.mean([table[rows[0]][list(p)].mean(), table[rows[1]][list(q)].mean()]) for p in picks for q in picks
            ]
    for tail in (6.5 / 64, 14.5 / 64):  # between the steps of a law of 64 outcomes
        level = 1 - 2 * tail
        interval = stats.hierarchical_bootstrap(table, design, level, resamples=40_000, seed=1)
        assert list(interval) == pytest.approx(
            np.quantile(law, [tail, 1 - tail], method="inverted_cdf").tolist(), abs=1e-12
        )
    assert interval.estimate == 2.75


def test_crossed_is_wider_when_canaries_differ_and_seeds_agree():
    # Three seeds that see the same canary effects: nested treats 60 numbers as independent, crossed only 20.
    effect = np.random.default_rng(0).normal(size=20)
    table = np.tile(effect, (3, 1))
    width = {d: np.diff(list(stats.hierarchical_bootstrap(table, d)))[0] for d in ("nested", "crossed")}
    assert width["crossed"] / width["nested"] == pytest.approx(3**0.5, rel=0.05)


def test_hierarchical_bootstrap_edges():
    assert stats.hierarchical_bootstrap([]).reason == "no values"
    assert stats.hierarchical_bootstrap([[1], []]).reason == "a seed without values"
    alone = stats.hierarchical_bootstrap([[1.0, 3.0]])
    assert (alone.low, alone.estimate, alone.reason) == (None, 2.0, "needs at least 2 seeds, found 1")
    assert "degenerate" in stats.hierarchical_bootstrap(np.full((3, 7), 0.1), "crossed").reason
    assert "degenerate" in stats.hierarchical_bootstrap(np.full((3, 7), 0.1), "nested").reason


def test_unequal_rows_are_drawn_within_themselves():
    # The row of one value must never borrow its neighbour's: means are 10, 5, 0 or between 0 and 1 mixed with 10.
    interval = stats.hierarchical_bootstrap([[10.0], [0.0, 0.0, 0.0]], level=0.999)
    assert list(interval) == [0.0, 10.0]
    assert interval.estimate == 5.0
    assert list(stats.hierarchical_bootstrap([[10.0], [0.0, 0.0, 0.0]], level=0.2)) == [5.0, 5.0]
