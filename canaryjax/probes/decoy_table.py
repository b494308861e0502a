"""True secrets beside decoys, cell by cell (PA-49)."""

from typing import Any

import numpy as np

from canaryjax.probes.decoy import exposure
from canaryjax.probes.read import Read
from canaryjax.probes.records import Cell, Reading
from canaryjax.probes.window import span_positions


def decoy_rows(read: Read, cell: Cell) -> list[dict[str, Any]]:
    """By kind, how much less likely decoys are than the true secret: nats over the secret span (PA-49)."""
    kinds = [kind for one in read.by_cell[cell.name] for kind in one.decoy_nll or ()]
    rows = []
    for kind in dict.fromkeys(kinds):
        per_seed, count = [], 0
        for one in read.by_cell[cell.name]:
            sums = (one.decoy_nll or {}).get(kind, ())
            gaps = [float(np.mean(s)) - true for s, true in zip(sums, _secret_sums(read, one), strict=False) if len(s)]
            gaps = [gap for gap in gaps if np.isfinite(gap)]
            count += len(gaps)
            if gaps:
                per_seed.append(float(np.mean(gaps)))
        if per_seed:
            gap = float(np.mean(per_seed))
            rows.append({"cell": cell.name, "kind": kind, "gap": gap, "per_seed": per_seed, "n": count})
    return rows


def exposure_rows(read: Read, cell: Cell, alpha: float) -> list[dict[str, Any]]:
    """Where true secrets stand among freshly drawn ones: a row for a cell that has such decoys."""
    found = [
        exposure(true, sums)
        for one in read.by_cell[cell.name]
        for sums, true in zip((one.decoy_nll or {}).get("wrong", ()), _secret_sums(read, one), strict=False)
    ]
    known = [one for one in found if one is not None]
    if not known:
        return []
    return [
        {
            "cell": cell.name,
            "mean_bits": float(np.mean([one.bits for one in known])),
            "most_bits": float(np.log2(known[0].n + 1)),
            "median_rank": float(np.median([one.rank for one in known])),
            "below": sum(one.p_value <= alpha for one in known),
            "alpha": alpha,
            "n": len(known),
            "decoys": known[0].n,
        }
    ]


def _secret_sums(read: Read, one: Reading) -> list[float]:
    return [
        float(nll[span_positions(tokens.owners, "secret")].sum())
        for nll, tokens in zip(one.nll, read.tokens, strict=True)
    ]
