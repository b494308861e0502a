"""p-values from a rank among null scores, and the family-wise correction of many p-values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from canaryjax.errors import UserError
from canaryjax.stats.sample import as_fraction, as_number, as_scores

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
