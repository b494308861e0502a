"""p-values from a rank among null scores, and the family-wise correction of many p-values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from canaryjax.errors import UserError
from canaryjax.stats.result import PValue
from canaryjax.stats.sample import as_count, as_fraction, as_number, as_scores, generator

RESAMPLES = 10_000
_FLOATS = (float, np.floating)  # np.float32 is no Python float


def conformal_p_value(score: Any, null_scores: Any) -> float:
    """One-sided p-value of a score among exchangeable null scores, (1 + #{null >= score})/(n + 1).

    High scores are evidence. Ties count against the score; it is never 0 (the best rank of n gives 1/(n + 1)), and is 1
    with no null scores at all, since nothing was shown.

    Args:
        score: one finite number.
        null_scores: shape (n,), same unit.

    Raises:
        UserError: a NaN or infinite score (position named).

    >>> conformal_p_value(3, [1, 2, 2.5, 4])
    0.4
    >>> conformal_p_value(1, [1, 1, 1])
    1.0
    """
    return _rank_p(as_number(score, "score"), as_scores(null_scores, "null_scores"))


def placebo_rank_p_value(real: Any, placebos: Any) -> float:
    """Rank p-value of the real canary or trigger among its own placebos or decoys, by the same rule.

    It is valid over the random draw of the real one by the code that drew the placebos, never for a hand-picked one. 19
    placebos can give 0.05 at best, 31 decoys 0.031.

    Args:
        real: score of the real one, a finite number.
        placebos: scores of the others, shape (n,).

    Raises:
        UserError: a NaN or infinite score (position named).

    >>> placebo_rank_p_value(10, range(9))
    0.1
    """
    return _rank_p(as_number(real, "real"), as_scores(placebos, "placebos"))


def _rank_p(score: float, null: Any) -> float:
    return (1 + int((null >= score).sum())) / (null.size + 1)


@dataclasses.dataclass(frozen=True)
class RankUniformity(PValue):
    """Result of `rank_uniformity`.

    Attributes:
        statistic: largest distance of the ranks' distribution from the uniform one, in [0, 1], or None.
        p_value: by simulation, or None with a reason.
        n: number of ranks.
        resamples: draws of as many uniform ranks.
        reason: why the p-value is None.
    """

    statistic: float | None
    p_value: float | None
    n: int
    resamples: int
    reason: str | None = None


def rank_uniformity(ranks: Any, decoys: Any, resamples: int = RESAMPLES, seed: Any = 0) -> RankUniformity:
    """Tests that ranks are uniform, each on its own grid, as where nothing tells the real one from its decoys.

    The statistic is Kolmogorov's, of rank / (decoys + 1). Its usual law is for values without a grid; on one it is too
    cautious, so the law is simulated.

    Args:
        ranks: rank of the real one in each policy, 1 the highest score, shape (n,).
        decoys: how many decoys each had, at least 1, shape (n,).
        resamples: simulated studies.
        seed: whole number, or a NumPy Generator.

    Returns:
        p = (1 + #{simulated >= observed})/(1 + resamples); null with a reason without ranks.

    Raises:
        UserError: a rank outside of its grid, or other lengths.

    >>> rank_uniformity([1, 1, 1, 1], [19, 19, 19, 19]).p_value < 0.001
    True
    >>> rank_uniformity([2, 7, 12, 17], [19, 19, 19, 19]).statistic
    0.15
    """
    own, sizes = as_scores(ranks, "ranks"), as_scores(decoys, "decoys") + 1
    count = as_count(resamples, "resamples", 1)
    if own.shape != sizes.shape:
        raise UserError(
            f"ranks: expected as many as decoys; found {own.size} and {sizes.size}; pass one of each a policy"
        )
    if not own.size:
        return RankUniformity(None, None, 0, 0, "no ranks")
    wrong = np.flatnonzero((sizes < 2) | (own < 1) | (own > sizes) | (own % 1 != 0) | (sizes % 1 != 0))
    if wrong.size:
        where = int(wrong[0])
        raise UserError(
            f"ranks: expected whole numbers from 1 to the number of decoys + 1; found {own[where]:g} of "
            f"{sizes[where]:g} at position {where}; count the real one among them"
        )
    points = np.unique(np.concatenate([np.arange(1, size + 1) / size for size in np.unique(sizes)]))
    # Share of uniform ranks at or below each point. The tolerance keeps 3 * (1/3) from falling below 1.
    expected = np.mean([np.floor(points * size + 1e-9) / size for size in sizes], axis=0)

    def distance(places: np.ndarray) -> np.ndarray:
        """Of studies (rows) of ranks as shares, float64 (studies, n)."""
        at = np.searchsorted(points, places - 1e-12)
        rows = at + len(points) * np.arange(len(at))[:, None]
        counts = np.bincount(rows.ravel(), minlength=len(points) * len(at)).reshape(len(at), -1)
        return np.abs(counts.cumsum(axis=1) / places.shape[1] - expected).max(axis=1)

    observed = float(distance((own / sizes)[None])[0])
    rng, hits, left = generator(seed), 0, count
    block = max(1, 2_000_000 // own.size)
    while left:
        drawn = rng.integers(1, sizes.astype(np.int64) + 1, size=(min(block, left), own.size)) / sizes
        hits += int((distance(drawn) >= observed - 1e-12).sum())
        left -= len(drawn)
    return RankUniformity(round(observed, 12), (1 + hits) / (1 + count), own.size, count)


def holm(p_values: Any) -> list[float | None]:
    """Holm's step-down adjustment, in the order given; a missing p-value stays missing and leaves the family.

    Args:
        p_values: numbers in [0, 1]; None or NaN marks a test that could not be done.

    Returns:
        Adjusted p-values, at most 1, rising with the raw ones.

    Raises:
        UserError: a value outside [0, 1] (position named), or not a flat collection.

    Source: Holm, Scand. J. Stat. 6 (1979).

    >>> holm([0.01, float("nan"), 0.011])
    [0.02, None, 0.02]
    """
    if isinstance(p_values, (str, bytes, Mapping)) or not isinstance(p_values, Iterable):
        raise UserError(f"p_values: expected a list of p-values; found {type(p_values).__name__}; pass a flat list")
    given = list(p_values)
    present = {
        place: as_fraction(value, f"p-value at position {place}")
        for place, value in enumerate(given)
        if value is not None and value is not np.ma.masked and not (isinstance(value, _FLOATS) and math.isnan(value))
    }
    adjusted: list[float | None] = [None] * len(given)
    highest = 0.0
    for step, place in enumerate(sorted(present, key=present.__getitem__)):
        highest = max(highest, min(1.0, (len(present) - step) * present[place]))
        adjusted[place] = highest
    return adjusted
