"""The change of a window's mean as a sum over spans, exactly (PA-31 to PA-34)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from canaryjax.probes.window import ROUNDING
from canaryjax.stats.result import Result


@dataclass(frozen=True)
class Contribution(Result):
    """One span's part of a window's change.

    Attributes:
      span: Which.
      tokens: Its tokens inside the window, mean over instances.
      contribution: Its part of the change, mean over instances, nats a token of the window.
      share: `contribution` over the whole change; None where that is 0 to rounding.
    """

    span: str
    tokens: float
    contribution: float
    share: float | None


@dataclass(frozen=True)
class Decomposition(Result):
    """A window's change, part by part.

    Attributes:
      rows: Of every span, in the target's order.
      enumerated: Their sum: the window's change in the pass over the whole target.
      canonical: The same change from passes over the window alone; None unless all instances have one, since over
        fewer it would be another quantity.
      residual: canonical - enumerated: what a pass of another length changes; no free parameter.
      instances: (seed, canary) that went in.
    """

    rows: tuple[Contribution, ...]
    enumerated: float
    canonical: float | None
    residual: float | None
    instances: int


def decompose(
    deltas: Sequence[np.ndarray],
    owners: Sequence[Sequence[str]],
    seeds: Sequence[int],
    spans: Sequence[str],
    window: int,
    canonical: Sequence[float] | None = None,
) -> Decomposition | None:
    """Splits the mean change over a window by the spans its positions belong to.

    For an instance a span contributes n * (mean change of its n tokens inside the window) / K, nothing without tokens
    there; means are over the canaries of a seed, then over seeds, as the window's own: the parts add up to it.

    Args:
      deltas: Per instance the change of every position's NLL, float64 `[t]`, nats.
      owners: Per instance the span of every position.
      seeds: Of each instance.
      spans: In the target's order.
      window: K.
      canonical: Per instance the change of the window's mean in passes over the window alone.

    Returns:
      None where a seed has no instance that is as long as the window and finite in it: the window has no mean then.

    >>> owners = ("preamble", "secret", "secret")
    >>> found = decompose([np.array([0.2, 0.4, -0.1])], [owners], [0], ("preamble", "secret"), 2)
    >>> [round(row.contribution, 3) for row in found.rows], round(found.enumerated, 3)
    ([0.1, 0.2], 0.3)
    """
    usable = [i for i, delta in enumerate(deltas) if len(delta) >= window and np.isfinite(delta[:window]).all()]
    kept = [seeds[i] for i in usable]
    if not usable or set(kept) != set(seeds):
        return None
    weights = [1 / (len(set(kept)) * kept.count(seed)) for seed in kept]
    sums, counts = {}, {}
    for span in spans:
        inside = [deltas[i][:window][np.array(owners[i][:window]) == span] for i in usable]
        sums[span] = float(np.dot(weights, [part.sum() / window for part in inside]))
        counts[span] = float(np.dot(weights, [part.size for part in inside]))
    enumerated = float(sum(sums.values()))
    moved = abs(enumerated) >= ROUNDING
    rows = tuple(
        Contribution(span, counts[span], sums[span], sums[span] / enumerated if moved else None) for span in spans
    )
    if canonical is None or not np.isfinite([canonical[i] for i in usable]).all():
        return Decomposition(rows, enumerated, None, None, len(usable))
    alone = float(np.dot(weights, [canonical[i] for i in usable]))
    return Decomposition(rows, enumerated, alone, alone - enumerated, len(usable))
