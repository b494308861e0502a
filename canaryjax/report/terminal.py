"""The summary a terminal shows at the end of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from canaryjax.report import prose, tables
from canaryjax.report.provider import KINDS, curated, provider_facts, provider_steps
from canaryjax.report.run import ARMS
from canaryjax.report.text import label, number, percent, pick
from canaryjax.report.utility import exact_match_against_base
from canaryjax.report.verdict import judge

BORDER = {"separated": "blue", "null": "green", "blocked": "red", "reversed": "red"}


def terminal_summary(report: Mapping[str, Any]) -> RenderableType:
    """Verdict, arms, detection, controls and warnings of a `report.json`, as something rich can print."""
    verdict = judge(report)
    body = Text.assemble((verdict.headline, "bold"), *(f"\n• {text}" for text in verdict.qualifiers))
    parts: list[RenderableType] = [
        Panel(body, title=Text(str(report.get("name") or "audit")), border_style=BORDER.get(verdict.kind, "yellow")),
        _arms(report),
        _facts("Detection", tables.detection(report).rows),
        _facts("Controls", tables.controls(report).rows),
    ]
    if (memory := tables.memory(report)) is not None:
        parts.append(_facts("Recall of the string where it stood", memory.rows))
    if curated(report):
        steps = [(name, ", ".join(f"{kind} {n}" for kind, n in zip(KINDS, cells, strict=True)))
                 for name, *cells in provider_steps(report).rows]  # fmt: skip
        parts.append(_facts("Provider curation", [*provider_facts(report).rows, *steps]))
    if pick(report, "model.dtype") == "bfloat16":
        parts.append(Text(prose.precision(report)))
    warnings = [str(text) for text in report.get("warnings") or ()]
    if warnings:
        parts.append(Text("\n".join(["Warnings", *(f"• {text}" for text in warnings)]), style="yellow"))
    seconds = pick(report, "timings.total")
    if isinstance(seconds, (int, float)):
        parts.append(Text(f"{seconds:.0f} s in all", style="dim"))
    return Group(*parts)


def _arms(report: Mapping[str, Any]) -> Table:
    table = Table(title="Arms", title_justify="left", title_style="bold", pad_edge=False, box=None)
    table.add_column("")
    for arm in ARMS:
        table.add_column(arm, justify="right")
    rows: list[tuple[str, list[str]]] = [
        (
            "policies (invalid)",
            [f"{number(_arm(report, a).get('n'))} ({number(_arm(report, a).get('n_invalid'))})" for a in ARMS],
        ),
        ("mean score (nats)", [number(pick(report, f"mechanism.{arm}.amplification")) for arm in ARMS]),
        ("reward-model bias", [number(pick(report, f"mechanism.{arm}.rm_bias")) for arm in ARMS]),
        ("exact match", [percent(pick(report, f"utility.{arm}.exact_match"), 1) for arm in ARMS]),
    ]
    against = exact_match_against_base(report)
    rows += [("exact match against the base", against)] if against else []
    for name, cells in rows:
        table.add_row(name, *cells)
    primary = label(pick(report, "statistic.primary", "not recorded"))
    table.caption = (
        f"Primary score: {primary}. Exact match of the base: {percent(pick(report, 'utility.base.exact_match'), 1)}"
    )
    table.caption_justify = "left"
    return table


def _arm(report: Mapping[str, Any], arm: str) -> Mapping[str, Any]:
    return pick(report, f"arms.{arm}", {})


def _facts(title: str, rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False, box=None)
    table.add_column(ratio=2, style="dim")
    table.add_column(ratio=3)
    for row in rows:
        # Text, not markup: a name such as "[red]" in a config must not colour anything.
        table.add_row(*(Text(cell) for cell in row))
    return table
