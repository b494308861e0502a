"""What was said instead of a secret (PA-45)."""

from typing import Any

import numpy as np

from canaryjax.probes.read import Read
from canaryjax.probes.recall import first_difference, says
from canaryjax.probes.records import Cell

FOUND = 8  # characters of an output that are shown from its first wrong one on


def failure_rows(read: Read, cell: Cell) -> list[dict[str, Any]]:
    """Greedy outputs that do not hold their secret, where they leave the target, and how likely the right token was.

    The rank is of the target's token at that place, given the target before it, which the output has said too (PA-45).
    """
    rows = []
    for one in read.by_cell[cell.name]:
        for place, canary in enumerate(read.canaries):
            output = "" if one.outputs is None or not one.outputs[place] else one.outputs[place][0]
            if one.outputs is None or says(output, canary.recall):
                continue
            at = first_difference(canary.target, output)
            row: dict[str, Any] = {"cell": cell.name, "seed": one.seed, "canary": canary.index}
            row |= {"target": canary.target, "output": output, "position": None, "expected": None, "found": None}
            row["rank"] = None
            if at is not None:
                byte = len(canary.target[:at].encode())
                offsets = read.tokens[place].offsets
                # Behind the last token may stand bytes that no token covers: what they follow is the last one.
                position = next((i for i, (_, end) in enumerate(offsets) if end > byte), len(offsets) - 1)
                start, end = offsets[position]
                row["position"] = position
                row["expected"] = canary.target.encode()[start:end].decode("utf-8", "replace")
                row["found"] = output[at : at + FOUND]
                rank = np.nan if one.ranks is None else one.ranks[place][position]
                row["rank"] = int(rank) if np.isfinite(rank) else None
            rows.append(row)
    return rows
