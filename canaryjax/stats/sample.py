"""What the callers give: samples, counts and levels, checked once and turned into float64."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canaryjax.errors import UserError

Floats = NDArray[np.float64]

LARGEST_COUNT = 2**53  # beyond it float64 skips whole numbers, and the beta quantiles with it
LARGEST_MOMENT = 1e70  # fourth powers of it, which the intervals of means multiply, stay below float64's 1.8e308


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


def as_measures(values: Any, name: str) -> Floats:
    """`as_scores` for statistics that square what they are given: sizes up to 1e70, whose squares can be summed.

    >>> as_measures([1, 5e307], "a")
    Traceback (most recent call last):
        ...
    canaryjax.errors.UserError: a: expected sizes of at most 1e+70; found 5e+307 at position 1; use a larger unit
    """
    array = as_scores(values, name)
    large = np.flatnonzero(np.abs(array) > LARGEST_MOMENT)
    if large.size:
        where = int(large[0])
        raise UserError(
            f"{name}: expected sizes of at most {LARGEST_MOMENT:g}; found {array[where]:g} at position {where}; "
            "use a larger unit"
        )
    return array


def _as_array(values: Any, name: str) -> tuple[Floats, Any]:
    """Return the float64 copy and the values as they were given (for the message)."""
    masked = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else np.zeros(0, dtype=bool)
    if masked.any():  # its data would count what the mask leaves out
        raise UserError(
            f"{name}: expected numbers; found a masked value at position {int(np.flatnonzero(masked)[0])}; "
            "pass values.compressed()"
        )
    if isinstance(values, (str, bytes, Mapping)):
        raise UserError(f"{name}: expected numbers; found {type(values).__name__}; pass a list or an array of numbers")
    if not hasattr(values, "__array__") and isinstance(values, Iterable) and not isinstance(values, (list, tuple)):
        values = list(values)
    if isinstance(values, (list, tuple)):
        _refuse_text(values, name)
        values = [math.nan if v is np.ma.masked else v for v in values]  # NumPy warns, and does the same
    try:
        raw = np.asarray(values)
        if raw.dtype.kind not in "biufO":
            raise TypeError(raw.dtype)
        if raw.dtype.kind == "O":  # NumPy reads "3" in an array of objects as 3
            _refuse_text(raw.flat, name)
        return np.array(raw, dtype=np.float64), values if isinstance(values, list) else raw
    except UserError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name}: expected real numbers; found {error}; pass one flat list of numbers") from error


def _refuse_text(values: Iterable[Any], name: str) -> None:
    text = next((v for v in values if isinstance(v, (str, bytes))), None)
    if text is not None:
        raise UserError(f"{name}: expected numbers; found the text {text!r}; convert it to a number first")


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
    """Turn a whole number (an int, a NumPy int or an integral float) into an int from `at_least` to 2**53."""
    number = as_number(value, name)
    if number != int(number) or not at_least <= number <= LARGEST_COUNT:
        raise UserError(
            f"{name}: expected a whole number from {at_least} to {LARGEST_COUNT}; found {value!r}; pass a count"
        )
    return int(number)


def as_hits(k: Any, n: Any) -> tuple[int, int]:
    """Check k successes out of n trials, 0 <= k <= n."""
    hits, trials = as_count(k, "k"), as_count(n, "n")
    if hits > trials:
        raise UserError(f"k: expected at most n = {trials} successes; found {hits}; check the order (k, n)")
    return hits, trials


def as_level(level: Any) -> float:
    """Check a confidence level, 0 < level < 1, and that its upper quantile can be told from 1."""
    number = as_number(level, "level")
    if not (number > 0.0 and 0.5 + number / 2 < 1.0):
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
    if not isinstance(value, str) or value not in allowed:  # an array would be compared entry by entry
        raise UserError(f"{name}: expected one of {', '.join(allowed)}; found {value!r}; use a listed name")
    return value


def as_groups(groups: Any, at_least: int = 2) -> dict[str, Floats]:
    """Name and check the groups of a test: a mapping of name to scores, or a sequence (named "0", "1", ...)."""
    if isinstance(groups, (str, bytes, Set)) or not isinstance(groups, Iterable):
        raise UserError(
            f"groups: expected a list or mapping of samples; found {type(groups).__name__}; pass [[...], ...]"
        )
    pairs = list(groups.items()) if isinstance(groups, Mapping) else list(enumerate(groups))
    if len(pairs) < at_least:
        raise UserError(f"groups: expected at least {at_least} groups; found {len(pairs)}; pass one sample per group")
    named: dict[str, Floats] = {}
    for name, values in pairs:
        if str(name) in named:
            raise UserError(f"groups: expected a name each; found {str(name)!r} twice, as text; rename one group")
        named[str(name)] = as_scores(values, f"group {name}")
    return named


def all_equal(sample: Floats) -> bool:
    """Say whether at least one value is given and all are the same; unlike their range it cannot overflow."""
    return bool(sample.min() == sample.max())


def between(below: Any, above: Any, share: Any) -> Floats:
    """Point at a share of the way from one number to another, also where their difference exceeds float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        straight = below + share * (above - below)
    return np.where(np.isfinite(straight), straight, (1 - share) * below + share * above)


def variance(sample: Floats) -> float:
    """Unbiased variance of at least two values; exactly 0 for equal ones, where a rounded mean may leave 1e-33."""
    return 0.0 if all_equal(sample) else float(sample.var(ddof=1))


def welch_error(first: Floats, second: Floats) -> tuple[float, float]:
    """Standard error of a difference of means, two values each or more, and Welch-Satterthwaite's degrees of freedom.

    Where both samples are constant these are 0 and infinity.
    """
    parts = variance(first) / first.size, variance(second) / second.size
    if sum(parts) == 0:
        return 0.0, math.inf
    share = parts[0] / sum(parts)  # of the first sample in the squared error: a square of that may underflow
    return math.sqrt(sum(parts)), 1 / (share**2 / (first.size - 1) + (1 - share) ** 2 / (second.size - 1))


def generator(seed: Any) -> np.random.Generator:
    """Return the random generator of a whole-number seed; a Generator is used as it is."""
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, (int, np.integer)) and seed >= 0:  # of any size, where a count would have to be a float
        return np.random.default_rng(int(seed))
    return np.random.default_rng(as_count(seed, "seed"))


def exact_product(count: int, rate: float) -> Fraction:
    """Return count × rate with the rate read as the decimal that was written.

    In floating point 10 × (1 − 0.7) is 3.0000000000000004 and its ceiling 4; a rank must not hang on that.

    >>> exact_product(10, 1 - 0.7)
    Fraction(3, 1)
    """
    return count * Fraction(rate).limit_denominator(10**9)
