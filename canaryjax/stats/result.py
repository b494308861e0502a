"""What every statistic hands back: a frozen record that turns into plain JSON values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Turn a result into dicts, lists, floats, ints, strings and None; infinity and NaN become None.

    >>> plain((1.0, float("inf"), np.float64(2)))
    [1.0, None, 2.0]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclasses.dataclass(frozen=True)
class Result:
    """A frozen record of one statistic."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values (no NaN, no infinity)."""
        return plain(self)


@dataclasses.dataclass(frozen=True)
class Interval(Result):
    """A confidence interval; `low, high = interval` and `interval[0]` work too.

    Attributes:
        low: lower bound, or None when the interval is undefined.
        high: upper bound, or None.
        level: confidence level, 0.95 for 95 %.
        method: short name of the method.
        estimate: the point it belongs to, or None.
        reason: why the bounds are None, or "degenerate: ..." where they are a single point.
        detail: how it was computed, where the method's name does not say all.
    """

    low: float | None
    high: float | None
    level: float
    method: str
    estimate: float | None = None
    reason: str | None = None
    detail: str | None = None

    def __iter__(self) -> Iterator[float | None]:
        return iter((self.low, self.high))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> float | None:
        return (self.low, self.high)[index]

    def __contains__(self, value: object) -> bool:
        """Say whether a number lies within the bounds (not whether it equals one of them)."""
        if self.low is None or self.high is None or not isinstance(value, (int, float)):
            return False
        return self.low <= value <= self.high


def no_interval(level: float, method: str, reason: str, estimate: float | None = None) -> Interval:
    """Return an undefined interval with its reason."""
    return Interval(None, None, level, method, estimate, reason)


@dataclasses.dataclass(frozen=True)
class PValue(Result):
    """A record with a `p_value`; `pvalue`, SciPy's spelling, is the same number."""

    @property
    def pvalue(self) -> float | None:
        return self.p_value  # type: ignore[attr-defined,no-any-return]
