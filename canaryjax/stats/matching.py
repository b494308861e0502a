"""Matching: pairs of two groups that are alike in one positive covariate, as many as there can be."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from canaryjax.errors import UserError
from canaryjax.stats.result import Result
from canaryjax.stats.sample import Floats, as_measures, as_number, variance


@dataclasses.dataclass(frozen=True)
class CaliperMatch(Result):
    """Result of `caliper_match`.

    Attributes:
        pairs: positions (in a, in b), in the order of a.
        width: the largest difference within a pair, in the covariate's unit; None where there were too few to
            match.
        pooled_sd: root of the mean of both variances.
        gap_before, gap_after: mean(b) − mean(a) of all and of the matched, in `pooled_sd` (the standardised
            difference); None where undefined.
        reason: why nothing was matched.
    """

    pairs: tuple[tuple[int, int], ...]
    width: float | None
    pooled_sd: float | None
    gap_before: float | None
    gap_after: float | None
    reason: str | None = None


def caliper_match(a: Any, b: Any, caliper: Any) -> CaliperMatch:
    """Match two groups one to one by a covariate: as many pairs as the caliper allows, and among those the closest.

    Args:
        a, b: the covariate of each unit, shape (n,) each, at least two; any unit, a logarithm where it is a ratio that
            counts.
        caliper: > 0, the largest difference within a pair, in pooled standard deviations.

    Returns:
        A CaliperMatch, whose pairs have the least sum of differences among all matchings of the largest size.

    Raises:
        UserError: a NaN or infinite value (position named), a caliper that is not positive.

    Source: Rosenbaum and Rubin, American Statistician 39 (1985), for calipers in standard deviations; Austin,
    Pharmaceutical Statistics 10 (2011), for a width of 0.2; Rosenbaum, JASA 84 (1989), for optimal instead of greedy
    pairs.

    >>> caliper_match([0.0, 1.0, 2.0], [1.1, 2.1, 9.0], 0.5).pairs
    ((1, 0), (2, 1))
    """
    first, second, limit = as_measures(a, "a"), as_measures(b, "b"), as_number(caliper, "caliper")
    if limit <= 0:
        raise UserError(f"caliper: expected a positive number; found {caliper!r}; 0.2 is usual")
    if min(first.size, second.size) < 2:
        reason = f"needs at least 2 units in each group, found {first.size} and {second.size}"
        return CaliperMatch((), None, None, None, None, reason)
    spread = math.sqrt((variance(first) + variance(second)) / 2)
    width = limit * spread
    gaps = np.abs(first[:, None] - second[None, :])
    allowed = gaps <= width
    # One pair more is worth more than all that closeness can save, so the matching is of the largest size.
    forbidden = (min(gaps.shape) + 1) * max(width, 1.0)
    rows, columns = linear_sum_assignment(np.where(allowed, gaps, forbidden))
    pairs = tuple((int(i), int(j)) for i, j in zip(rows, columns, strict=True) if allowed[i, j])
    kept = [list(side) for side in zip(*pairs, strict=True)] or [[], []]
    after = _gap(first[kept[0]], second[kept[1]], spread)
    return CaliperMatch(pairs, width, spread, _gap(first, second, spread), after)


def _gap(first: Floats, second: Floats, spread: float) -> float | None:
    return float(second.mean() - first.mean()) / spread if first.size and spread > 0 else None
