"""What the callers give: samples, counts and levels, checked once and turned into float64."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canaryjax.errors import UserError

Floats = NDArray[np.float64]


def as_scores(values: Any, name: str = "scores") -> Floats:
    """Turn any one-dimensional collection of numbers into a float64 array, refusing what is not finite.

    Args:
        values: list, tuple, array, series or generator of numbers, shape (n,), n >= 0.
        name: how the error calls it.

    Returns:
        A fresh float64 array of shape (n,).

    Raises:
        UserError: not one-dimensional, not numeric, or NaN, infinite or None (the position is named).

    >>> as_scores((1, 2.5)).tolist()
    [1.0, 2.5]
    >>> as_scores([0.5, None], "negatives")
    Traceback (most recent call last):
        ...
    canaryjax.errors.UserError: negatives: expected finite numbers; found None at position 1; drop and count invalid \
scores before the statistics
    """
    array, original = _as_array(values, name)
    if array.ndim != 1:
        raise UserError(
            f"{name}: expected a one-dimensional collection of numbers; found shape {array.shape}; pass one flat list"
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        where = int(bad[0])
        raise UserError(
            f"{name}: expected finite numbers; found {original[where]} at position {where}; "
            "drop and count invalid scores before the statistics"
        )
    return array


def _as_array(values: Any, name: str) -> tuple[Floats, Any]:
    """Return the float64 copy and the values as they were given (for the message)."""
    if isinstance(values, (str, bytes, Mapping)):
        raise UserError(f"{name}: expected numbers; found {type(values).__name__}; pass a list or an array of numbers")
    if not hasattr(values, "__array__") and isinstance(values, Iterable) and not isinstance(values, (list, tuple)):
        values = list(values)
    if isinstance(values, (list, tuple)):
        text = next((v for v in values if isinstance(v, (str, bytes))), None)
        if text is not None:
            raise UserError(f"{name}: expected numbers; found the text {text!r}; convert it to a number first")
    try:
        raw = np.asarray(values)
        if raw.dtype.kind not in "biufO":
            raise TypeError(raw.dtype)
        return np.array(values, dtype=np.float64), values if isinstance(values, (list, tuple)) else raw
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name}: expected real numbers; found {error}; pass one flat list of numbers") from error


def as_number(value: Any, name: str) -> float:
    """Turn one finite number (a Python or NumPy scalar, or an array of no dimension) into a float."""
    array, _ = _as_array(value, name) if not isinstance(value, (list, tuple)) else (np.zeros(1), value)
    if array.ndim != 0:
        raise UserError(f"{name}: expected one number; found {value!r}; pass a single score")
    number = float(array)
    if not math.isfinite(number):
        raise UserError(f"{name}: expected a finite number; found {value!r}; drop and count invalid scores first")
    return number


def as_count(value: Any, name: str, at_least: int = 0) -> int:
    """Turn a whole number (an int, a NumPy int or an integral float) into an int not below `at_least`."""
    number = as_number(value, name)
    if number != int(number) or number < at_least:
        raise UserError(f"{name}: expected a whole number of at least {at_least}; found {value!r}; pass a count")
    return int(number)


def as_hits(k: Any, n: Any) -> tuple[int, int]:
    """Check k successes out of n trials, 0 <= k <= n."""
    hits, trials = as_count(k, "k"), as_count(n, "n")
    if hits > trials:
        raise UserError(f"k: expected at most n = {trials} successes; found {hits}; check the order (k, n)")
    return hits, trials


def as_level(level: Any) -> float:
    """Check a confidence level, 0 < level < 1."""
    number = as_number(level, "level")
    if not 0.0 < number < 1.0:
        raise UserError(f"level: expected a fraction between 0 and 1; found {level!r}; write 0.95 for 95 %")
    return number


def as_fraction(value: Any, name: str) -> float:
    """Check a rate or probability, 0 <= value <= 1."""
    number = as_number(value, name)
    if not 0.0 <= number <= 1.0:
        raise UserError(f"{name}: expected a fraction from 0 to 1; found {value!r}; write 0.10 for 10 %")
    return number


def as_choice(value: str, name: str, allowed: tuple[str, ...]) -> str:
    """Check a named option."""
    if value not in allowed:
        raise UserError(f"{name}: expected one of {', '.join(allowed)}; found {value!r}; use a listed name")
    return value


def as_groups(groups: Any, at_least: int = 2) -> dict[str, Floats]:
    """Name and check the groups of a test: a mapping of name to scores, or a sequence (named "0", "1", ...)."""
    if isinstance(groups, (str, bytes)) or not isinstance(groups, Iterable):
        raise UserError(
            f"groups: expected a list or mapping of samples; found {type(groups).__name__}; pass [[...], ...]"
        )
    pairs = list(groups.items()) if isinstance(groups, Mapping) else list(enumerate(groups))
    if len(pairs) < at_least:
        raise UserError(f"groups: expected at least {at_least} groups; found {len(pairs)}; pass one sample per group")
    return {str(name): as_scores(values, f"group {name}") for name, values in pairs}


def variance(sample: Floats) -> float:
    """Unbiased variance of at least two values; exactly 0 for equal ones, where a rounded mean may leave 1e-33."""
    return 0.0 if np.ptp(sample) == 0 else float(sample.var(ddof=1))


def generator(seed: Any) -> np.random.Generator:
    """Return the random generator of a whole-number seed; a Generator is used as it is."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(as_count(seed, "seed"))


def exact_product(count: int, rate: float) -> Fraction:
    """Return count × rate with the rate read as the decimal that was written.

    In floating point 10 × (1 − 0.7) is 3.0000000000000004 and its ceiling 4; a rank must not hang on that.

    >>> exact_product(10, 1 - 0.7)
    Fraction(3, 1)
    """
    return count * Fraction(rate).limit_denominator(10**9)
