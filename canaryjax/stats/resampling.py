"""Bootstraps: of two arms of policies, and of canaries within seeds. Vectorised over resamples by counting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from canaryjax.errors import UserError
from canaryjax.stats.result import Interval, no_interval
from canaryjax.stats.sample import Floats, as_choice, as_count, as_level, as_measures, as_scores, between, generator
from canaryjax.stats.threshold import RULES, as_target, threshold_rank, tpr_at_fpr

RESAMPLES = 10_000  # BC-63
SCHEMES = ("stratified", "pooled")
CELLS = 2_000_000  # largest resamples × values block held at once: 16 MB an array


@dataclasses.dataclass(frozen=True)
class ArmCounts:
    """How often each distinct value was drawn, for a block of resamples.

    Attributes:
        values: distinct scores of both arms, rising, float64 (u,).
        negatives: draws of each value from the negatives, int64 (resamples, u).
        positives: the same from the positives.
    """

    values: Floats
    negatives: np.ndarray
    positives: np.ndarray


def resampled_counts(low: Floats, high: Floats, resamples: int, seed: Any, scheme: str) -> Iterator[ArmCounts]:
    """Yield blocks of bootstrap resamples of two arms; `pooled` blocks lack the resamples with an empty arm."""
    rng = generator(seed)
    values, codes = np.unique(np.concatenate([low, high]), return_inverse=True)
    arms = [codes[: low.size], codes[low.size :] + values.size]
    strata = arms if scheme == "stratified" else [np.concatenate(arms)]
    width = 2 * values.size
    block = max(1, CELLS // (low.size + high.size))
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = np.concatenate([s[rng.integers(0, s.size, (rows, s.size))] for s in strata], axis=1)
        drawn += width * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * width).reshape(rows, 2, values.size)
        full = (counts.sum(axis=2) > 0).all(axis=1)
        yield ArmCounts(values, counts[full, 0], counts[full, 1])


def bootstrap_aurocs(low: Floats, high: Floats, resamples: int, seed: Any, scheme: str) -> Floats:
    """Area in each resample, float64 (at most `resamples`,)."""

    def areas(block: ArmCounts) -> Floats:
        upto = block.negatives.cumsum(axis=1)
        # Twice the wins: negatives strictly below count 2, ties 1; that is C(before) + C(upto).
        twice = (block.positives * (2 * upto - block.negatives)).sum(axis=1)
        return twice / (2.0 * upto[:, -1] * block.positives.sum(axis=1))

    return np.concatenate([areas(block) for block in resampled_counts(low, high, resamples, seed, scheme)])


def percentile_interval(draws: Floats, level: float, estimate: float | None, detail: str) -> Interval:
    """Percentile interval of bootstrap draws; all draws equal is a point that says so."""
    if not draws.size:
        return no_interval(level, "bootstrap", "no usable resample", estimate)
    tail = (1.0 - level) / 2.0
    # Means of equal numbers may differ in the last digits with the order of summation; that is no spread.
    if np.ptp(draws) <= 1e-12 * np.abs(draws).max():
        point = float(draws[0]) if estimate is None else estimate
        reason = f"degenerate: all {draws.size} resamples are equal"
        return Interval(point, point, level, "bootstrap", estimate, reason, detail)
    low, high = (float(q) for q in np.quantile(draws, [tail, 1.0 - tail]))
    return Interval(low, high, level, "bootstrap", estimate, None, detail)


def describe(scheme: str, asked: int, used: int) -> str:
    """Say how a bootstrap was made."""
    skipped = f", {asked - used} skipped" if used < asked else ""
    return f"{scheme} percentile bootstrap over policies, {asked} resamples{skipped}"


def tpr_bootstrap_interval(
    negatives: Any,
    positives: Any,
    fpr: float = 0.10,
    rule: str = "conformal",
    level: float = 0.90,
    resamples: int = RESAMPLES,
    seed: Any = 0,
    scheme: str = "stratified",
) -> Interval:
    """Percentile bootstrap of the true positive rate, the threshold estimated again in each resample.

    It shows the spread over both arms; `tpr_at_fpr(...).interval` holds the threshold fixed.

    Args:
        negatives, positives, fpr, rule, level: as `tpr_at_fpr`.
        resamples: number of resamples, at least 1.
        seed: whole number, or a NumPy Generator.
        scheme: "stratified" (each arm keeps its size) or "pooled" (arm sizes vary; resamples with an empty arm, or one
            too small for the rule, are skipped and counted in `detail`).

    Returns:
        An Interval; null with a reason where `tpr_at_fpr` is.

    >>> tpr_bootstrap_interval(range(20), range(30, 40), resamples=99).reason
    'degenerate: all 99 resamples are equal'
    """
    low, high = as_scores(negatives, "negatives"), as_scores(positives, "positives")
    target, level = as_target(fpr), as_level(level)
    as_choice(rule, "rule", RULES)
    as_choice(scheme, "scheme", SCHEMES)
    count = as_count(resamples, "resamples", 1)
    rate = tpr_at_fpr(low, high, target, rule, level)
    if rate.value is None:
        return no_interval(level, "bootstrap", str(rate.reason))
    ranks = {size: threshold_rank(size, target, rule) for size in range(1, low.size + high.size)}
    draws = np.concatenate([_block_tprs(block, ranks) for block in resampled_counts(low, high, count, seed, scheme)])
    return percentile_interval(draws, level, rate.value, describe(scheme, count, draws.size))


def _block_tprs(block: ArmCounts, ranks: dict[int, float | None]) -> Floats:
    upto = block.negatives.cumsum(axis=1)
    wanted = [ranks[int(size)] for size in upto[:, -1]]
    keep = np.array([rank is not None for rank in wanted], dtype=bool)
    if not keep.any():
        return np.zeros(0)
    upto, hits = upto[keep], block.positives[keep].cumsum(axis=1)
    rank = np.array([r for r in wanted if r is not None], dtype=np.float64)
    below = np.floor(rank)
    at = (upto >= below[:, None]).argmax(axis=1)
    cut = block.values[at]
    share = rank - below
    if (share > 0).any():
        above = (upto >= np.minimum(below + 1, upto[:, -1])[:, None]).argmax(axis=1)
        cut = between(cut, block.values[above], share)
        at = np.searchsorted(block.values, cut, "right") - 1
    rows = np.arange(rank.size)
    return (hits[:, -1] - hits[rows, at]) / hits[:, -1]


def hierarchical_bootstrap(
    values: Any, design: str = "nested", level: float = 0.95, resamples: int = RESAMPLES, seed: Any = 0
) -> Interval:
    """Percentile bootstrap of the mean of canaries measured under several training seeds.

    Seeds (rows) are drawn with replacement; then canaries within them.

    Args:
        values: one row per seed, one column per canary, shape (seeds, canaries), any unit. Rows of unequal length are
            allowed for "nested"; the estimate is then the mean of the row means.
        design: "nested" draws canaries afresh in each drawn seed; "crossed" draws one set of canaries for all of them,
            which is right when the same canaries are used under every seed.
        level: confidence level.
        resamples: number of resamples, at least 1.
        seed: whole number, or a NumPy Generator.

    Returns:
        An Interval with `estimate`. One seed alone, or no value, gives a null with a reason.

    Raises:
        UserError: not two-dimensional, a NaN or infinite value (row and position named), unequal rows when crossed.

    >>> hierarchical_bootstrap([[1, 1], [1, 1], [1, 1]]).reason
    'degenerate: all 10000 resamples are equal'
    >>> low, high = hierarchical_bootstrap([[0, 1, 2], [1, 2, 3]], design="crossed", seed=3)
    >>> 0 <= low < 1.5 < high <= 3
    True
    """
    as_choice(design, "design", ("nested", "crossed"))
    level, count = as_level(level), as_count(resamples, "resamples", 1)
    rows = _as_rows(values)
    if len(rows) == 0 or any(row.size == 0 for row in rows):
        return no_interval(level, "bootstrap", "no values" if not rows else "a seed without values")
    estimate = float(np.mean([row.mean() for row in rows]))
    if len(rows) < 2:
        return no_interval(level, "bootstrap", "needs at least 2 seeds, found 1", estimate)
    if design == "crossed" and len({row.size for row in rows}) > 1:
        raise UserError(
            f"values: expected the same canaries under every seed in a crossed design; found rows of "
            f"{sorted({row.size for row in rows})} values; use design='nested' or complete the table"
        )
    draw = _nested_means if design == "nested" else _crossed_means
    draws = _in_blocks(draw, rows, count, generator(seed))
    return percentile_interval(draws, level, estimate, f"{design} bootstrap, {len(rows)} seeds, {count} resamples")


def _as_rows(values: Any) -> list[Floats]:
    if isinstance(values, np.ndarray) and values.ndim != 2:
        raise UserError(f"values: expected shape (seeds, canaries); found {values.shape}; pass one row per seed")
    if not isinstance(values, (np.ndarray, Sequence)) or isinstance(values, (str, bytes)):
        raise UserError(f"values: expected one list per seed; found {type(values).__name__}; pass [[...], [...]]")
    return [as_measures(row, f"values, row {index}") for index, row in enumerate(values)]


def _in_blocks(
    draw: Callable[[list[Floats], int, np.random.Generator], Floats],
    rows: list[Floats],
    count: int,
    rng: np.random.Generator,
) -> Floats:
    block = max(1, CELLS // sum(row.size for row in rows))
    sizes = [min(block, count - start) for start in range(0, count, block)]
    return np.concatenate([draw(rows, size, rng) for size in sizes])


def _nested_means(rows: list[Floats], count: int, rng: np.random.Generator) -> Floats:
    lengths = np.array([row.size for row in rows])
    starts = np.concatenate([[0], lengths.cumsum()[:-1]])
    flat = np.concatenate(rows)
    total = np.zeros(count)
    for _ in rows:
        chosen = rng.integers(0, len(rows), count)
        size, widest = lengths[chosen], int(lengths.max())
        inner = (rng.random((count, widest)) * size[:, None]).astype(np.int64)
        valid = np.arange(widest) < size[:, None]
        drawn = flat[starts[chosen][:, None] + np.minimum(inner, size[:, None] - 1)]
        total += (drawn * valid).sum(axis=1) / size
    return total / len(rows)


def _crossed_means(rows: list[Floats], count: int, rng: np.random.Generator) -> Floats:
    table = np.stack(rows)
    seeds = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), count)
    width = table.shape[1]
    canaries = rng.multinomial(width, np.full(width, 1 / width), count)
    return ((seeds @ table) * canaries).sum(axis=1) / (len(rows) * width)
