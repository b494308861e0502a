"""How many cells, runs and intervals an audit has, and which of them lie below zero (PA-14, PA-29, PA-30)."""

from collections.abc import Mapping, Sequence
from typing import Any

from canaryjax.probes.estimate import side
from canaryjax.probes.records import SPANS, Cell, Estimate

INTERVAL_KINDS = ("sft", "noise")  # rows that the paper counts intervals of; a baseline's differences are 0


def account(cells: Sequence[Cell], seeds: Mapping[str, int]) -> dict[str, Any]:
    """Cells and runs by kind, and the rows that carry intervals: those of one seed have none.

    Args:
      cells: All of an audit.
      seeds: Runs of each cell, by name.
    """
    kinds = [kind for kind in ("baseline", "sft", "noise", "reexposed") if any(cell.kind == kind for cell in cells)]
    rows = []
    for kind in kinds:
        own = [cell for cell in cells if cell.kind == kind]
        rows.append({"kind": kind, "cells": len(own), "runs": sum(seeds[cell.name] for cell in own)})
    return {
        "rows": rows,
        "total_runs": sum(row["runs"] for row in rows if row["kind"] in INTERVAL_KINDS),
        "ci_rows": sum(cell.kind in INTERVAL_KINDS and seeds[cell.name] > 1 for cell in cells),
    }


def below_zero(estimates: Mapping[str, Mapping[str, Estimate]]) -> dict[str, Any]:
    """Where the secret's change is negative, by interval and by point, and the largest spreads between seeds.

    Args:
      estimates: By cell, of `window`, `secret` and other spans; cells with intervals only.

    Returns:
      `secret_below_zero`, `negative_points`, and `largest_spread` of the window and of each span, with its cell.
    """
    strictly = sum(side(e["secret"].nested) < 0 for e in estimates.values())
    points = [
        {"cell": name, "value": value}
        for name, e in estimates.items()
        if (value := e["secret"].value) is not None and value < 0
    ]
    widest: dict[str, Any] = {}
    for quantity in ("window", *SPANS):
        own = {name: e[quantity].spread for name, e in estimates.items() if quantity in e}
        spreads = {name: spread for name, spread in own.items() if spread is not None}
        cell = max(spreads, key=spreads.__getitem__, default=None)
        if own:
            widest[quantity] = None if cell is None else {"cell": cell, "value": spreads[cell]}
    return {"secret_below_zero": strictly, "negative_points": points, "largest_spread": widest}
