"""The summary a terminal shows of a probe audit."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from canaryjax.report import probes_tables
from canaryjax.report.terminal_grid import grid


def probes_summary(report: Mapping[str, Any]) -> RenderableType:
    """Reading, the three probes of each cell, warnings and scope of a `report.json`, for rich to print."""
    body = Text("\n".join(f"• {text}" for text in report["reading"]))
    parts: list[RenderableType] = [
        Panel(body, title=Text(str(report.get("name") or "probes")), border_style="blue"),
        grid("Changes to the baseline, nats a token", probes_tables.narrow_verdicts(report)),
    ]
    if report["warnings"]:
        text = "\n".join(["Warnings", *(f"• {text}" for text in report["warnings"])])
        parts.append(Text(text, style="yellow"))
    parts += [Text(f"• {text}", style="dim") for text in report["limitations"][:1]]  # whom the numbers are of
    return Group(*parts)
