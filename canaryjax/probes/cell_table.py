"""One cell's numbers: changes with their uncertainty, recall, the window's parts, and the verdict."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from canaryjax.config.probes import ProbesConfig
from canaryjax.probes.decomposition import Decomposition, decompose
from canaryjax.probes.estimate import Table, estimate, leave_one_out
from canaryjax.probes.matrix import counterpart
from canaryjax.probes.read import Read
from canaryjax.probes.recall import hits, says
from canaryjax.probes.records import SPANS, Cell, Estimate, Reading, Recalled, TargetTokens
from canaryjax.probes.verdict import Evidence, judge, labels_of
from canaryjax.probes.window import NOTHING, mean_window, span_mean, span_positions


@dataclass(frozen=True, eq=False)
class CellTable:
    """A cell's numbers as other tables need them, and `plain` for the report.

    Attributes:
      estimates: Of the changes of `window`, `full`, each span and each `mean_K`; none for a baseline, whose changes are
        0 by construction.
      shares: Of the window's change, by span.
      hit_rate: Of hit@1; None where nothing was generated.
      plain: The cell's entry in the report.
    """

    estimates: dict[str, Estimate]
    shares: dict[str, float | None]
    hit_rate: float | None
    plain: dict[str, Any]


def tabulate(read: Read, cell: Cell, config: ProbesConfig) -> CellTable:
    """All numbers of one cell."""
    own = read.by_cell[cell.name]
    recalled = _recalled(read, own, config)
    plain: dict[str, Any] = {
        "name": cell.name,
        "regime": cell.regime,
        "source": cell.source,
        "kind": cell.kind,
        "steps": cell.steps,
        "baseline": cell.baseline,
        "counterpart": None if (beside := counterpart(read.cells, cell)) is None else beside.name,
        "seeds": [one.seed for one in own],
        "instances": sum(len(one.nll) for one in own),
        "level": _levels(read, own, config.reading.window),
        "hits": None if recalled is None else [one.to_dict() for one in recalled],
    }
    rate = _greedy_rate(recalled)
    profile = {"nll": _profile([nll for one in own for nll in one.nll]), "delta": None}
    if cell.baseline is None:
        empty = dict.fromkeys(("delta", "decomposition", "leave_one_out", "verdict"))
        return CellTable({}, {}, rate, plain | empty | {"profile": profile})
    deltas = _deltas(read, cell, own)
    found = _estimates(read, deltas, config)
    parts = _parts(read, cell, own, deltas, config)
    shares = {} if parts is None else {row.span: row.share for row in parts.rows}
    before = _greedy_rate(_recalled(read, read.by_cell[cell.baseline], config))
    rules = judge(_evidence(found, shares, before, rate), config.verdict)
    lost = leave_one_out(_table(deltas, read, partial(_mean_of_span, "secret")))
    profile["delta"] = _profile([delta for row in deltas.values() for delta in row])
    plain |= {
        "delta": {
            "window": found["window"].to_dict(),
            "secret": found["secret"].to_dict(),
            "full": found["full"].to_dict(),
            "spans": {span: found[span].to_dict() for span in SPANS if span in found},
            "sweep": {str(k): found[f"mean_{k}"].to_dict() for k in config.reading.sweep},
        },
        "decomposition": None if parts is None else parts.to_dict(),
        "leave_one_out": _left_out(lost),
        "verdict": {"labels": labels_of(rules), "rules": [rule.to_dict() for rule in rules]},
        "profile": profile,
    }
    return CellTable(found, shares, rate, plain)


def _deltas(read: Read, cell: Cell, own: list[Reading]) -> dict[int, list[np.ndarray]]:
    """By seed, per canary the change of every position's NLL to the baseline."""
    found = {}
    for one in own:
        base = read.baseline(cell, one.seed)
        found[one.seed] = [_finite(nll) - _finite(before) for nll, before in zip(one.nll, base.nll, strict=True)]
    return found


def _finite(values: np.ndarray) -> np.ndarray:
    """NaN for what is infinite too: the difference of two of them says nothing."""
    return np.where(np.isfinite(values), values, NOTHING)


def _mean_of_first(k: int, delta: np.ndarray, tokens: TargetTokens) -> float:
    return mean_window(delta, k)


def _mean_of_span(span: str, delta: np.ndarray, tokens: TargetTokens) -> float:
    return span_mean(delta, tokens.owners, span)


def _table(
    deltas: dict[int, list[np.ndarray]], read: Read, measure: Callable[[np.ndarray, TargetTokens], float]
) -> Table:
    return {
        seed: {tokens.canary: measure(delta, tokens) for tokens, delta in zip(read.tokens, row, strict=True)}
        for seed, row in deltas.items()
    }


def _estimates(read: Read, deltas: dict[int, list[np.ndarray]], config: ProbesConfig) -> dict[str, Estimate]:
    settings = config.statistics.level, config.statistics.resamples, config.statistics.seed

    def of(measure: Callable[[np.ndarray, TargetTokens], float]) -> Estimate:
        return estimate(_table(deltas, read, measure), *settings)

    window = config.reading.window
    found = {"window": of(partial(_mean_of_first, window)), "full": of(lambda d, t: float(np.mean(d)))}
    for k in config.reading.sweep:
        found[f"mean_{k}"] = of(partial(_mean_of_first, k))
    for span in SPANS:
        if any(span in tokens.owners for tokens in read.tokens):
            pooled = {}
            for seed, row in deltas.items():
                for tokens, delta in zip(read.tokens, row, strict=True):
                    values = delta[span_positions(tokens.owners, span)]
                    pooled[seed, tokens.canary] = (float(values.sum()), values.size)
            found[span] = estimate(_table(deltas, read, partial(_mean_of_span, span)), *settings, pooled=pooled)
    return found


def _parts(
    read: Read, cell: Cell, own: list[Reading], deltas: dict[int, list[np.ndarray]], config: ProbesConfig
) -> Decomposition | None:
    window, alone = config.reading.window, []
    for one in own:
        base = read.baseline(cell, one.seed)
        for i in range(len(read.tokens)):
            both = (one.window_nll, base.window_nll)
            means = [NOTHING if pair is None else mean_window(pair[i], window) for pair in both]
            alone.append(means[0] - means[1])
    flat = [delta for row in deltas.values() for delta in row]
    owners = [tokens.owners for _ in own for tokens in read.tokens]
    seeds = [one.seed for one in own for _ in read.tokens]
    spans = [span for span in SPANS if any(span in tokens.owners for tokens in read.tokens)]
    return decompose(flat, owners, seeds, spans, window, alone)


def _evidence(
    found: dict[str, Estimate], shares: dict[str, float | None], before: float | None, after: float | None
) -> Evidence:
    window, secret = found["window"], found["secret"]
    return Evidence(
        window=window.value,
        secret=secret.value,
        window_same_sign=window.same_sign,
        secret_same_sign=secret.same_sign,
        window_label=window.label,
        secret_label=secret.label,
        shares=shares,
        hits_before=before,
        hits_after=after,
    )


def _greedy_rate(recalled: list[Recalled] | None) -> float | None:
    """The rate of hit@1; None where nothing was generated."""
    return next((one.hits / one.n for one in recalled or () if one.k == 1), None)


def _recalled(read: Read, own: list[Reading], config: ProbesConfig) -> list[Recalled] | None:
    if any(one.outputs is None for one in own):
        return None
    found = {
        one.seed: [
            [says(output, canary.recall) for output in outputs]
            for canary, outputs in zip(read.canaries, one.outputs or (), strict=True)
        ]
        for one in own
    }
    fewest = min(len(outputs) for row in found.values() for outputs in row)
    asked = sorted({1, *config.reading.hits})  # the rules and the case screens need hit@1, whatever else is asked
    return [hits(found, k, config.statistics.level) for k in asked if k <= fewest] or None


def _levels(read: Read, own: list[Reading], window: int) -> dict[str, float | None]:
    """Mean NLLs themselves, nats a token."""

    def mean(values: list[float]) -> float | None:
        usable = [value for value in values if np.isfinite(value)]
        return float(np.mean(usable)) if usable else None

    pairs = [(nll, tokens) for one in own for nll, tokens in zip(one.nll, read.tokens, strict=True)]
    found = {"window": mean([mean_window(nll, window) for nll, _ in pairs])}
    found["full"] = mean([float(np.mean(nll)) for nll, _ in pairs])
    return found | {span: mean([span_mean(nll, tokens.owners, span) for nll, tokens in pairs]) for span in SPANS}


def _profile(rows: list[np.ndarray]) -> list[float | None]:
    """Mean by position over the instances that reach it and are finite there."""
    found: list[float | None] = []
    for place in range(max(map(len, rows), default=0)):
        values = [row[place] for row in rows if len(row) > place and np.isfinite(row[place])]
        found.append(float(np.mean(values)) if values else None)
    return found


def _left_out(values: list[tuple[int, float | None]]) -> dict[str, Any]:
    known = [value for _, value in values if value is not None]
    return {
        "quantity": "secret",
        "values": [{"canary": canary, "value": value} for canary, value in values],
        "low": min(known, default=None),
        "high": max(known, default=None),
    }
