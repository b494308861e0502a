"""The summary a terminal shows of a detector run."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from canaryjax.report import detector_facts, detector_tables
from canaryjax.report.detector_verdict import KIND_NAMES, judge_detector
from canaryjax.report.terminal_grid import grid

BORDER = {"raised": "blue", "floor": "green", "blind": "red", "retrieval": "red"}


def detector_summary(report: Mapping[str, Any]) -> RenderableType:
    """Verdict, a table per tier, controls, calls and warnings of a detector's `report.json`, for rich to print."""
    verdict = judge_detector(report)
    body = Text.assemble((verdict.headline, "bold"), *(f"\n• {text}" for text in verdict.qualifiers))
    title = Text(f"{report.get('name') or 'detector'}: {KIND_NAMES[verdict.kind].lower()}")
    parts: list[RenderableType] = [
        Panel(body, title=title, border_style=BORDER.get(verdict.kind, "yellow")),
        grid("Tests", detector_tables.tests(report)),
    ]
    for tier in detector_tables.tier_sections(report):
        parts += [grid(tier.title, tier.narrow), *(Text(f"• {text}", style="dim") for text in tier.notes)]
    parts += [
        grid("Floor and ceiling", detector_tables.narrow_controls(report)),
        grid("Calls", detector_facts.calls(report)),
    ]
    warnings = [str(text) for text in report.get("warnings") or ()]
    if warnings:
        parts.append(Text("\n".join(["Warnings", *(f"• {text}" for text in warnings)]), style="yellow"))
    return Group(*parts)
