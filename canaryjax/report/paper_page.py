"""The section of a sweep's page that sets its cells beside the paper's tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canaryjax.report import paper_tables
from canaryjax.report.figures import Plot
from canaryjax.report.paper_figures import paper_figures
from canaryjax.report.paper_tables import Stand, stands
from canaryjax.report.setting import Differences
from canaryjax.report.tables import Table

UNSAID = (
    "The paper does not say which of its two base models, of its two optimisers and of its three canary families its "
    "Tables 1, 2 and 6 are of, nor how many documents went into reward models and policies: in these points any choice "
    "of its own counts as its setting here."
)
COMPARED = (
    "What canaries cost, with intervals and a test of equivalence, is told of cells that are otherwise alike in the "
    "section on utility."
)
LEVELS = (
    "The caption of the paper's Table 6 calls its brackets 5 to 95 %, which is 90 %; the text of its Appendix I calls "
    "the same ones 95 %."
)


@dataclass(frozen=True)
class Setting:
    """How a row's setting differs from the paper's: sentences, and a list of training values to fold away."""

    name: str
    texts: Sequence[str]
    training_title: str
    training: Sequence[str]


@dataclass(frozen=True)
class Part:
    """One table of the paper with what belongs to it."""

    anchor: str
    title: str
    table: Table
    notes: Sequence[str] = ()
    settings: Sequence[Setting] = ()
    plots: Sequence[Plot] = ()


def paper_parts(sweep: Mapping[str, Any]) -> list[Part]:
    """Tables 1, 2 and 6 with their figures, as far as cells of a `sweep.json` stand for their rows; else empty."""
    parts = []
    if first := stands(sweep, "Table 1"):
        notes = [*paper_tables.size_notes(first), *paper_tables.detection_notes(first)]
        plots = paper_figures(first)
        parts.append(
            Part("table1", "Table 1: detection", paper_tables.detection_table(first), notes, _settings(first), plots)
        )
        parts.append(Part("mechanism", "Appendix H: from reward model to policy", paper_tables.mechanism_table(first)))
    if second := stands(sweep, "Table 2"):
        notes = [*paper_tables.size_notes(second), *([COMPARED] if sweep.get("utility_comparison") else [])]
        parts.append(Part("table2", "Table 2: utility", paper_tables.utility_table(second), notes, _settings(second)))
    if sixth := stands(sweep, "Table 6"):
        mixed = [text for one in sixth if (text := paper_tables.mixed_sizes(one.row))]
        notes = [*paper_tables.size_notes(sixth), *paper_tables.detection_notes(sixth), *mixed, LEVELS]
        table = paper_tables.detection_table(sixth, test=True)
        parts.append(Part("table6", "Table 6: a textual canary as baseline", table, notes, _settings(sixth)))
    return parts


def _settings(rows: Sequence[Stand]) -> list[Setting]:
    """How the rows' settings differ; rows with the same differences together."""
    alike: dict[Differences, list[Stand]] = {}
    for one in rows:
        alike.setdefault(one.differences, []).append(one)
    return [_setting(found, group) for found, group in alike.items()]


def _setting(found: Differences, group: Sequence[Stand]) -> Setting:
    name = "; ".join(f"{one.row.label} (cell {one.cell['name']})" for one in group)
    if found.none:
        return Setting(name, ("The paper's setting, in all that it states.",), "", ())
    title = (
        f"{len(found.training)} of the {found.compared} training values of the paper's Tables 3 to 5 are others here"
        if found.training
        else ""
    )
    return Setting(name, found.setting, title, found.training)
