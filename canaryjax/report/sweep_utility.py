"""The section on utility of a sweep's page: RL with canaries against RL without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canaryjax.report.run import ARMS
from canaryjax.report.tables import Table
from canaryjax.report.text import label, pick
from canaryjax.report.utility import NOT_FOUND_SHARES, QUALITIES, equivalence_caption, equivalence_words


@dataclass(frozen=True)
class UtilitySection:
    """What stands there: a table, None where nothing was compared, and lines that say why cells are missing."""

    table: Table | None
    notes: Sequence[str]


def utility_section(sweep: Mapping[str, Any]) -> UtilitySection | None:
    """The section of a `sweep.json`; None in one that was written without the comparison."""
    found = pick(sweep, "utility_comparison")
    if found is None:
        return None
    compared = [item for item in found["comparisons"] if item["arms"]]
    metrics = [name for name in (*QUALITIES, *NOT_FOUND_SHARES) if any(
        pick(item, f"arms.{arm}.{name}.difference") is not None for item in compared for arm in ARMS)]  # fmt: skip
    rows = [
        (
            f"{item['cell']}, {arm}",
            f"{item['without']} ({'same trials' if item['design'] == 'paired' else 'independent'})",
            *(equivalence_words(pick(item, f"arms.{arm}.{name}", {})) for name in metrics),
        )
        for item in compared
        for arm in ARMS
    ]
    notes = [f"Not compared: {found['reason']}."] if found["reason"] else []
    notes += [f"{item['cell']}: {item['reason']}." for item in found["comparisons"] if item["reason"]]
    caption = "RL with canaries minus RL without, of each policy's change against the base on the same questions. "
    margins = sorted({item["margin"] for item in compared})
    caption += equivalence_caption(margins[0] if len(margins) == 1 else None)
    shared = " One cell without canaries may stand in several rows, which are then not independent."
    head = ("cell, arm", "against", *map(label, metrics))
    return UtilitySection(Table(rows, head, caption + shared, numeric=False) if rows else None, notes)
