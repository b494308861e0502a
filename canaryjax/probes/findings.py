"""Everything that a report says, from what was read: the same for our runs and for scores from elsewhere."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from canaryjax.config.probes import ProbesConfig
from canaryjax.errors import UserError
from canaryjax.probes.accounting import INTERVAL_KINDS, account, below_zero
from canaryjax.probes.cell_table import CellTable, tabulate
from canaryjax.probes.decoy_table import decoy_rows, exposure_rows
from canaryjax.probes.failure import failure_rows
from canaryjax.probes.merged import compare
from canaryjax.probes.prose import limitations, reading, warnings
from canaryjax.probes.read import Read
from canaryjax.probes.records import SPANS, Canary, Cell, Reading, TargetTokens
from canaryjax.probes.selection import Candidate, screen
from canaryjax.probes.span import span_counts


def analyse(
    tokens: Sequence[TargetTokens],
    canaries: Sequence[Canary],
    cells: Sequence[Cell],
    readings: Sequence[Reading],
    config: ProbesConfig,
) -> dict[str, Any]:
    """The part of report.json that readings decide, as plain values; what is undefined is null with a reason.

    Raises:
      UserError: A cell was read whose baseline was not, or was for some of the cell's seeds only.
    """
    by_cell: dict[str, list[Reading]] = {cell.name: [] for cell in cells}
    for one in sorted(readings, key=lambda reading: reading.seed):
        by_cell[one.cell].append(_without_infinities(one))
    read = Read(canaries, tokens, [cell for cell in cells if by_cell[cell.name]], by_cell)
    _check_baselines(read)
    tables = {cell.name: tabulate(read, cell, config) for cell in read.cells}
    estimates = {cell.name: tables[cell.name].estimates for cell in read.cells if cell.kind in INTERVAL_KINDS}
    alpha = round(1 - config.statistics.level, 12)  # 1 - 0.9 is less than 0.1, and would pass over a p of 0.1
    report: dict[str, Any] = {
        "tokens": _tokens(tokens, config),
        "cells": [tables[cell.name].plain for cell in read.cells],
        "selection": screen(_candidates(read, tables), config.verdict),
        "accounting": account(read.cells, {name: len(own) for name, own in by_cell.items()}) | below_zero(estimates),
        "merged": _merged(read, config),
        "failures": [row for cell in read.cells for row in failure_rows(read, cell)],
        "decoys": [row for cell in read.cells for row in decoy_rows(read, cell)],
        "exposure": [row for cell in read.cells for row in exposure_rows(read, cell, alpha)],
        "not_finite": _not_finite(read),
        "without_outputs": _without_outputs(read),
    }
    report["reading"] = reading(report, config)
    report["warnings"] = warnings(report, config)
    report["limitations"] = limitations(report)
    return report


def _without_infinities(one: Reading) -> Reading:
    """NaN for every NLL that is infinite: either is left out and named, and NaN passes through sums in silence."""

    def of(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        return tuple(np.where(np.isfinite(row), row, np.nan) for row in rows)

    decoys = None if one.decoy_nll is None else {kind: of(rows) for kind, rows in one.decoy_nll.items()}
    window, merged = (None if rows is None else of(rows) for rows in (one.window_nll, one.merged_nll))
    return replace(one, nll=of(one.nll), window_nll=window, merged_nll=merged, decoy_nll=decoys)


def _check_baselines(read: Read) -> None:
    """A baseline is read once for all seeds, or for each: one seed's would be no baseline of another's."""
    for cell in read.cells:
        if cell.baseline is None:
            continue
        base = [one.seed for one in read.by_cell[cell.baseline]]
        missing = [one.seed for one in read.by_cell[cell.name] if one.seed not in base]
        if not base or (len(base) > 1 and missing):
            raise UserError(
                f"expected the baseline {cell.baseline!r} of cell {cell.name!r} read once or for each of its seeds, "
                f"found it for seeds {base} and none for {missing}; read it for those too"
            )


def _tokens(tokens: Sequence[TargetTokens], config: ProbesConfig) -> dict[str, Any]:
    """Table 1: where the spans lie, and how many of their tokens the window holds."""
    window = config.reading.window
    rows = []
    for span in SPANS:
        counts = [span_counts(one.owners).get(span, 0) for one in tokens]
        inside = [span_counts(one.owners, window).get(span, 0) for one in tokens]
        places = [place for one in tokens for place, owner in enumerate(one.owners) if owner == span]
        if any(counts):
            own = {"min": min(counts), "max": max(counts), "mean": float(np.mean(counts))}
            rows.append(
                {"span": span, "tokens": own, "first": min(places), "last": max(places),
                 "in_window_mean": float(np.mean(inside))}
            )  # fmt: skip
    lengths = [len(one.ids) for one in tokens]
    return {
        "window": window,
        "sweep": list(config.reading.sweep),
        "owner": config.canaries.owner,
        "positions": rows,
        "straddles": {
            "tokens": sum(len(one.straddles) for one in tokens),
            "canaries": sum(bool(one.straddles) for one in tokens),
        },
        "target_tokens": {"min": min(lengths), "max": max(lengths), "mean": float(np.mean(lengths))},
        "canaries": len(tokens),
    }


def _candidates(read: Read, tables: dict[str, CellTable]) -> list[Candidate]:
    found = []
    for cell in read.cells:
        table = tables[cell.name]
        if cell.kind == "sft":
            before = tables[cell.baseline].hit_rate if cell.baseline in tables else None
            share = table.shares.get("preamble")
            window, secret = table.estimates["window"], table.estimates["secret"]
            found.append(Candidate(cell.name, window, secret, share, before, table.hit_rate))
    return found


def _merged(read: Read, config: ProbesConfig) -> dict[str, Any] | None:
    rows = []
    spans = [span for span in SPANS if any(span in tokens.owners for tokens in read.tokens)]
    for cell in read.cells:
        own = [one for one in read.by_cell[cell.name] if one.merged_nll is not None]
        if cell.baseline is None or not own:
            continue
        bases = [read.baseline(cell, one.seed) for one in own]
        readings = (
            [nll for one in own for nll in one.nll],
            [nll for one in own for nll in one.merged_nll or ()],
            [nll for base in bases for nll in base.nll],
            [nll for base in bases for nll in base.merged_nll or base.nll],
        )
        owners = [tokens.owners for _ in own for tokens in read.tokens]
        rows += [{"cell": cell.name, "span": span, **compare(*readings, owners, span)} for span in spans]
    return {"dtype": config.controls.merged_dtype, "rows": rows} if rows else None


def _not_finite(read: Read) -> dict[str, Any]:
    """Which tokens of whole targets are not finite, and `beside` them which other numbers, by a score file's names."""
    where, beside = [], []
    for cell in read.cells:
        for one in read.by_cell[cell.name]:
            where += _places(read, one, one.nll)
            others = {"window_logps": one.window_nll, "merged_logps": one.merged_nll}
            others |= {f"decoys.{kind}": sums for kind, sums in (one.decoy_nll or {}).items()}
            for name, rows in others.items():
                beside += [] if rows is None else [{"part": name, **row} for row in _places(read, one, rows)]
    return {"tokens": sum(len(row["positions"]) for row in where), "where": where, "beside": beside}


def _places(read: Read, one: Reading, rows: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    """Positions of a model's numbers that are not finite, a row for a canary that has any."""
    found = []
    for tokens, row in zip(read.tokens, rows, strict=True):
        bad = np.flatnonzero(~np.isfinite(row)).tolist()
        if bad:
            found.append({"cell": one.cell, "seed": one.seed, "canary": tokens.canary, "positions": bad})
    return found


def _without_outputs(read: Read) -> list[dict[str, Any]]:
    """Models that said nothing, where others did: what they generated was not finite, or is not given."""
    own = [(cell.name, one.seed, bool(one.outputs)) for cell in read.cells for one in read.by_cell[cell.name]]
    if not any(said for _, _, said in own):
        return []
    return [{"cell": cell, "seed": seed} for cell, seed, said in own if not said]
