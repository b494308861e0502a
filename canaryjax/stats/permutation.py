"""One-sided permutation test that scores rise with the dose that was dealt to each unit by lot."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from canaryjax.errors import UserError
from canaryjax.stats.result import PValue
from canaryjax.stats.sample import Floats, as_count, as_measures, generator

RESAMPLES = 99_999
EXACT_TABLES = 20_000  # enumerate all tables of scores by doses up to here: 100 ms or so
CELLS = 2_000_000  # largest permutations x units block held at once: 16 MB an array


@dataclasses.dataclass(frozen=True)
class DoseTest(PValue):
    """Result of `dose_permutation`.

    Attributes:
        statistic: sum over units of dose x score, or None.
        p_value: one-sided, or None with a reason.
        n: units.
        method: "exact" (every allocation of doses counted), "monte carlo" (random ones, the +1 rule) or None.
        permutations: distinct tables of scores by doses that were counted, or random allocations drawn.
        reason: why the p-value is None.
    """

    statistic: float | None
    p_value: float | None
    n: int
    method: str | None
    permutations: int
    reason: str | None = None


def dose_permutation(doses: Any, scores: Any, resamples: int = RESAMPLES, seed: Any = 0) -> DoseTest:
    """Test that high scores go with high doses, exact where a random permutation dealt the doses.

    Nothing is assumed of the scores' law; ties are fine. Doses of 0 and 1 make it the two-sample test of sums.

    Args:
        doses: of each unit, shape (n,), any unit; at least two different ones, or the result is null with a reason.
        scores: of the same units, shape (n,), fixed before the doses are looked at.
        resamples: random allocations where there are more than 20,000 tables; all are enumerated otherwise.
        seed: whole number, or a NumPy Generator.

    Returns:
        p = share of all allocations with a statistic at least the observed one, or (1 + hits)/(1 + resamples).

    Raises:
        UserError: a NaN or infinite number (position named), or other lengths.

    >>> dose_permutation([0, 0, 0, 1, 1], [0, 0, 0, 1, 1]).p_value
    0.1
    >>> dose_permutation([0, 0, 0, 1, 1], [0, 0, 0, 0, 0]).p_value
    1.0
    """
    dealt, own = as_measures(doses, "doses"), as_measures(scores, "scores")
    count = as_count(resamples, "resamples", 1)
    if dealt.shape != own.shape:
        raise UserError(f"scores: expected as many as doses; found {own.size} and {dealt.size}; pass one a unit")
    if not own.size or dealt.min() == dealt.max():
        found = "no units" if not own.size else "one dose alone"
        return DoseTest(None, None, own.size, None, 0, f"needs units of two doses, found {found}")
    observed = float(dealt @ own)
    # Sums of the same numbers in another order differ in the last digits; equal allocations must count as equal.
    least = observed - 1e-9 * float(np.abs(dealt) @ np.abs(own))
    if _tables(dealt, own) <= EXACT_TABLES:
        ways, above, tables = _enumerate(dealt, own, least)
        return DoseTest(observed, above / ways, own.size, "exact", tables)
    hits = _draw(dealt, own, least, count, generator(seed))
    return DoseTest(observed, (1 + hits) / (1 + count), own.size, "monte carlo", count)


def _classes(scores: Floats) -> list[tuple[float, int]]:
    """Distinct scores with their counts; the most frequent one comes last, since its places follow from the others."""
    return sorted(Counter(scores.tolist()).items(), key=lambda item: (item[1], item[0]))


def _tables(doses: Floats, scores: Floats) -> int:
    """Upper bound of the number of tables of scores by doses."""
    kinds = np.unique(doses).size
    return math.prod(math.comb(number + kinds - 1, kinds - 1) for _, number in _classes(scores)[:-1])


def _enumerate(doses: Floats, scores: Floats, least: float) -> tuple[int, int, int]:
    """Number of allocations (of tied units as if unlike), of those that reach `least`, and of distinct tables."""
    values, sizes = np.unique(doses, return_counts=True)
    classes = _classes(scores)
    ways = above = tables = 0

    def place(index: int, left: tuple[int, ...], total: float, number: int) -> None:
        nonlocal ways, above, tables
        score, members = classes[index]
        last = index == len(classes) - 1
        for taken in [left] if last else _splits(members, left):
            reached = total + score * sum(d * t for d, t in zip(values.tolist(), taken, strict=True))
            product = number * math.prod(math.comb(room, t) for room, t in zip(left, taken, strict=True))
            if not last:
                rest = tuple(room - t for room, t in zip(left, taken, strict=True))
                place(index + 1, rest, reached, product)
                continue
            ways, tables = ways + product, tables + 1
            above += product if reached >= least else 0

    place(0, tuple(sizes.tolist()), 0.0, 1)
    return ways, above, tables


def _splits(members: int, room: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield every way to put so many members into rooms of such sizes."""
    if len(room) == 1:
        if members <= room[0]:
            yield (members,)
        return
    for first in range(min(members, room[0]) + 1):
        for rest in _splits(members - first, room[1:]):
            yield (first, *rest)


def _draw(doses: Floats, scores: Floats, least: float, count: int, rng: np.random.Generator) -> int:
    """How many of so many random allocations reach `least`."""
    # A shift of all scores moves every allocation's sum alike; with the commonest at 0 its units need no draw's sum.
    common = _classes(scores)[-1][0]
    rare = scores[scores != common] - common
    bar = least - common * float(doses.sum())
    block, hits, left = max(1, CELLS // doses.size), 0, count
    while left:
        rows = min(block, left)
        dealt = rng.permuted(np.broadcast_to(doses, (rows, doses.size)), axis=1)
        hits += int((dealt[:, : rare.size] @ rare >= bar).sum())
        left -= rows
    return hits
