"""Statistics for trials that two or more cells share: sign flips, Page's trend, and the check that says so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from scipy import stats as sps

from canaryjax.errors import UserError
from canaryjax.stats.result import PValue
from canaryjax.stats.sample import as_count, as_measures, as_scores, generator

RESAMPLES = 10_000
CELLS = 2_000_000  # largest permutations × scores block held at once: 16 MB an array


def require_independent(ids: Mapping[str, Iterable[Hashable]], test: str) -> None:
    """Refuse a test of independent groups on groups that share trial ids.

    Args:
        ids: group name to the ids of its trials.
        test: name of the test, for the message.

    Raises:
        UserError: two groups share an id (both are named), or a group lists one twice.

    >>> require_independent({"a": [1, 2], "b": [3]}, "welch")
    >>> require_independent({"a": [1, 2], "b": [2]}, "welch")
    Traceback (most recent call last):
        ...
    canaryjax.errors.UserError: welch: expected independent groups; found trial 2 in both a and b; use sign_flip_test \
or page_trend on shared trials
    """
    seen: dict[Hashable, str] = {}
    for group, members in ids.items():
        for member in members:
            if member in seen:
                where = f"twice in {group}" if seen[member] == group else f"in both {seen[member]} and {group}"
                raise UserError(
                    f"{test}: expected independent groups; found trial {member} {where}; "
                    "use sign_flip_test or page_trend on shared trials"
                )
            seen[member] = group


@dataclasses.dataclass(frozen=True)
class SignFlipTest(PValue):
    """Result of `sign_flip_test`: mean difference, two-sided p-value, and how many sign patterns were looked at."""

    statistic: float | None
    p_value: float | None
    n: int
    permutations: int
    exact: bool
    reason: str | None = None


def sign_flip_test(differences: Any, resamples: int = RESAMPLES, seed: Any = 0) -> SignFlipTest:
    """Two-sided permutation test that paired differences are symmetric about 0, for trials that two cells share.

    Args:
        differences: one difference per trial id, shape (n,); none gives a null with a reason.
        resamples: random sign patterns when there are more than 2^14; all are enumerated otherwise.
        seed: whole number, or a NumPy Generator.

    >>> sign_flip_test([1, 2, 3]).p_value
    0.25
    """
    sample, count = as_measures(differences, "differences"), as_count(resamples, "resamples", 1)
    if not sample.size:
        return SignFlipTest(None, None, 0, 0, False, "no differences")
    exact = sample.size <= 14
    floor = abs(sample.sum()) - 1e-9 * np.abs(sample).sum()
    if exact:
        bits = (np.arange(2**sample.size)[:, None] >> np.arange(sample.size)) & 1
        sums = (1 - 2 * bits) @ sample
    else:
        rng, block = generator(seed), max(1, CELLS // sample.size)
        sizes = [min(block, count - start) for start in range(0, count, block)]
        sums = np.concatenate([(2 * rng.integers(0, 2, (rows, sample.size)) - 1) @ sample for rows in sizes])
    hits = int((np.abs(sums) >= floor).sum())
    p_value = hits / sums.size if exact else (1 + hits) / (1 + sums.size)
    return SignFlipTest(float(sample.mean()), p_value, sample.size, sums.size, exact)


@dataclasses.dataclass(frozen=True)
class PageTest(PValue):
    """Result of `page_trend`: L, its z (positive for rising), two-sided permutation p-value, trials, permutations."""

    statistic: float | None
    z: float | None
    p_value: float | None
    n: int
    permutations: int
    reason: str | None = None


def page_trend(table: Any, resamples: int = RESAMPLES, seed: Any = 0) -> PageTest:
    """Page's test for a monotone trend over ordered cells that share their trials, two-sided.

    Args:
        table: scores, shape (trials, cells), cells in the order of the dose; at least two cells.
        resamples: permutations of the cells within each trial; p = (1 + hits)/(1 + resamples).
        seed: whole number, or a NumPy Generator.

    Returns:
        A PageTest; no trials, or every trial constant, gives a null test with a reason.

    Raises:
        UserError: a NaN or infinite score (trial and position named), rows of unequal length, fewer than two cells.

    Source: Page, JASA 58 (1963).

    >>> result = page_trend([[1, 2, 3], [1, 3, 2], [2, 4, 9]])
    >>> result.statistic
    41.0
    """
    if isinstance(table, (str, bytes, Mapping)) or not isinstance(table, Iterable):
        raise UserError(f"table: expected one row a trial; found {type(table).__name__}; pass [[...], ...]")
    rows = [as_scores(row, f"table, trial {index}") for index, row in enumerate(table)]
    draws = as_count(resamples, "resamples", 1)
    if not rows:
        return PageTest(None, None, None, 0, 0, "no trials")
    widths = {row.size for row in rows}
    if len(widths) > 1 or min(widths) < 2:
        raise UserError(f"table: expected rows of one length, at least 2; found lengths {sorted(widths)}; complete it")
    ranks = np.stack([sps.rankdata(row) for row in rows])
    trials, cells = ranks.shape
    if np.ptp(ranks) == 0:
        return PageTest(None, None, None, trials, 0, "every trial is constant over the cells")
    # Twice a centred weight times twice a rank is a whole number: equal statistics compare equal.
    weights = 2 * np.arange(1, cells + 1) - (cells + 1)
    doubled = np.rint(2 * ranks).astype(np.int64)
    observed = int((doubled @ weights).sum())
    rng, hits, block = generator(seed), 0, max(1, CELLS // ranks.size)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        shuffled = rng.permuted(np.tile(doubled, (size, 1)), axis=1)
        hits += int((np.abs((shuffled @ weights).reshape(size, trials).sum(axis=1)) >= abs(observed)).sum())
    # Given its ranks, a trial's L varies by Σ(weight)² Σ(rank − mean)²/(cells − 1), ties included.
    spread = float((weights**2).sum() / 4 * ranks.var(axis=1, ddof=1).sum())
    statistic = float((ranks @ np.arange(1, cells + 1)).sum())
    return PageTest(statistic, observed / 4 / math.sqrt(spread), (1 + hits) / (1 + draws), trials, draws)
