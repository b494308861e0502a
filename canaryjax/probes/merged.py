"""What of an adapter's effect is left when it is merged into the weights (PA-46, PA-47)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from canaryjax.probes.window import ROUNDING, span_positions


def compare(
    stacked: Sequence[np.ndarray],
    merged: Sequence[np.ndarray],
    baseline: Sequence[np.ndarray],
    rounded: Sequence[np.ndarray],
    owners: Sequence[Sequence[str]],
    span: str,
) -> dict[str, Any]:
    """One span's change under an adapter beside the weights and merged into them, each to the baseline as it is there.

    Args:
      stacked, merged, baseline: Per instance NLL of every position, float64 `[t]`.
      rounded: The baseline's, from weights of the precision of the merged ones: what is lost by rounding the base
        itself is no loss of the adapter's. The same as `baseline` where that is its precision.
      owners: Per instance the span of every position.
      span: Which.

    Returns:
      `stacked` and `merged` (means over instances of the change a token), their `ratio` (None with a `reason`), and
      `mean_abs_difference` of the two changes a token; how many `instances` went in and how many were `excluded`, not
      finite or without a token of the span. Read for ratios only: headline changes come from the cells' own passes.
    """
    rows = []
    for one, other, base, base_rounded, own in zip(stacked, merged, baseline, rounded, owners, strict=True):
        at = span_positions(own, span)
        if at.size and np.isfinite([one[at], other[at], base[at], base_rounded[at]]).all():
            first, second = one[at] - base[at], other[at] - base_rounded[at]
            rows.append([float(part.mean()) for part in (first, second, np.abs(first - second))])
    counts = {"instances": len(rows), "excluded": len(stacked) - len(rows)}
    if not rows:
        nothing = dict.fromkeys(("stacked", "merged", "ratio", "mean_abs_difference"))
        return {**nothing, "reason": "no finite token of it", **counts}
    beside, within, difference = (float(mean) for mean in np.mean(rows, axis=0))
    small = abs(beside) < ROUNDING
    return {
        "stacked": beside,
        "merged": within,
        "ratio": None if small else within / beside,
        "reason": f"the change is below {ROUNDING:g}" if small else None,
        "mean_abs_difference": difference,
        **counts,
    }
