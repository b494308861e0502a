"""The mean of a quantity over canaries and seeds, and what can be said of its uncertainty (PA-22, PA-25 to PA-29)."""

from collections.abc import Mapping, Sequence

import numpy as np

from canaryjax.probes.records import Estimate, Label
from canaryjax.stats.proportion import mean_interval
from canaryjax.stats.resampling import hierarchical_bootstrap
from canaryjax.stats.result import Interval, no_interval

Table = Mapping[int, Mapping[int, float]]  # seed -> canary -> value of that instance, NaN where it has none


def estimate(
    table: Table,
    level: float,
    resamples: int,
    seed: int,
    pooled: Mapping[tuple[int, int], tuple[float, int]] | None = None,
) -> Estimate:
    """Averages a quantity over the canaries of each seed, then over seeds, with both families of intervals.

    Args:
      table: Value of each instance by seed and canary; NaN is left out and counted.
      level: Of the intervals.
      resamples: Of each bootstrap.
      seed: Of the bootstraps.
      pooled: By (seed, canary) the sum over tokens and their number, where the quantity is a mean over tokens.
    """
    rows = {one: {canary: value for canary, value in row.items() if np.isfinite(value)} for one, row in table.items()}
    asked = sum(len(row) for row in table.values())
    instances = sum(len(row) for row in rows.values())
    whole = [list(row.values()) for row in rows.values()]
    means = tuple(float(np.mean(row)) for row in whole if row)
    if not instances or not all(whole):
        nothing = no_interval(
            level, "bootstrap", "a seed without a finite instance" if instances else "no finite instance"
        )
        t = no_interval(level, "student-t", str(nothing.reason))
        return Estimate(
            None, None, means, None, None, None, nothing, nothing, t, "neither", 0, instances, asked - instances
        )
    nested = hierarchical_bootstrap(whole, "nested", level, resamples, seed)
    crossed = _crossed(list(rows.values()), level, resamples, seed)
    student = mean_interval(means, level)
    label, direction = label_of(nested, student)
    signs = {int(np.sign(mean)) for mean in means}
    same = None if len(means) < 2 else len(signs) == 1 and 0 not in signs
    return Estimate(
        value=float(np.mean(means)),
        micro=_pooled(pooled, rows),
        per_seed=means,
        spread=max(means) - min(means),
        same_sign=same,
        sign_p=2.0 ** (1 - len(means)) if same else None,
        nested=nested,
        crossed=crossed,
        student=student,
        label=label,
        direction=direction,
        instances=instances,
        excluded=asked - instances,
    )


def side(interval: Interval) -> int:
    """Which side of 0 an interval lies on: -1, 1, or 0 where it holds 0, has no bounds, or is a point.

    Equal values give a point: they say nothing of how far others would lie from them.
    """
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return 0
    return int(interval.low > 0) - int(interval.high < 0)


def label_of(nested: Interval, student: Interval) -> tuple[Label, int]:
    """Which of the two families exclude 0, and on which side; on opposite sides neither counts (PA-27, PA-A9).

    >>> low = Interval(0.1, 0.3, 0.95, "bootstrap"); wide = Interval(-1.0, 2.0, 0.95, "student")
    >>> label_of(low, wide)
    ('hb-only', 1)
    """
    first, second = side(nested), side(student)
    if first * second < 0 or not (first or second):
        return "neither", 0
    if first and second:
        return "both", first
    return ("hb-only", first) if first else ("t-only", second)


def leave_one_out(table: Table) -> list[tuple[int, float | None]]:
    """The mean without each canary in turn, by canary: None where nothing finite is left (PA-44).

    >>> leave_one_out({0: {0: 3.0, 1: 1.0, 2: 2.0}})
    [(0, 1.5), (1, 2.5), (2, 2.0)]
    """
    canaries = sorted({canary for row in table.values() for canary in row})
    found: list[tuple[int, float | None]] = []
    for out in canaries:
        rows = [[v for c, v in row.items() if c != out and np.isfinite(v)] for row in table.values()]
        found.append((out, float(np.mean([np.mean(row) for row in rows])) if all(rows) else None))
    return found


def _crossed(rows: Sequence[Mapping[int, float]], level: float, resamples: int, seed: int) -> Interval:
    """One draw of canaries for all seeds, over the canaries that every seed has."""
    common = sorted(set.intersection(*(set(row) for row in rows)))
    if not common:
        return no_interval(level, "bootstrap", "no canary that every seed has")
    return hierarchical_bootstrap([[row[c] for c in common] for row in rows], "crossed", level, resamples, seed)


def _pooled(
    pooled: Mapping[tuple[int, int], tuple[float, int]] | None, rows: Mapping[int, Mapping[int, float]]
) -> float | None:
    """Mean over all tokens of a seed, then over seeds."""
    if pooled is None:
        return None
    means = []
    for seed, row in rows.items():
        parts = [pooled[seed, canary] for canary in row]
        tokens = sum(count for _, count in parts)
        if not tokens:
            return None
        means.append(sum(total for total, _ in parts) / tokens)
    return float(np.mean(means))
