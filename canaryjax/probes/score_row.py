"""What was read of a model as rows of a score file, the form in which scores from elsewhere come too."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from canaryjax.probes.reader import Material
from canaryjax.probes.records import Cell, Reading


def score_rows(material: Material, cell: Cell, reading: Reading) -> Iterator[dict[str, Any]]:
    """One plain row a canary; see `external.read_scores` for their keys. Log-probs are natural logarithms."""
    for place, (canary, tokens) in enumerate(zip(material.canaries, material.tokens, strict=True)):
        row = {
            "cell": cell.name,
            "kind": cell.kind,
            "regime": cell.regime,
            "source": cell.source,
            "steps": cell.steps,
            "baseline": cell.baseline,
            "seed": reading.seed,
            "canary": canary.index,
            "prompt": canary.prompt,
            "text": canary.target,
            "offset_unit": "bytes",
            "segments": [{"name": s.name, "start": s.start, "end": s.end} for s in canary.segments],
            "ids": list(tokens.ids),
            "offsets": [list(pair) for pair in tokens.offsets],
            "logps": _negated(reading.nll[place]),
        }
        if reading.ranks is not None:
            row["ranks"] = reading.ranks[place].tolist()
        for key, given in (("window_logps", reading.window_nll), ("merged_logps", reading.merged_nll)):
            if given is not None:
                row[key] = _negated(given[place])
        if reading.outputs is not None:
            row["outputs"] = list(reading.outputs[place])
        if reading.decoy_nll is not None:
            row["decoys"] = {kind: sums[place].tolist() for kind, sums in reading.decoy_nll.items()}
        yield row


def _negated(nll: np.ndarray) -> list[float]:
    return (-nll).tolist()
