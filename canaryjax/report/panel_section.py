"""What the sweep's page is given on panels: texts, pictures, and the table on providers."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.panel_figures import draw_panels
from canaryjax.report.panels import panel_texts, section_notes, survival_table


def panel_section(sweep: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `panels.html`, made of `sweep.json` alone."""
    return {
        "texts": panel_texts(sweep),
        "notes": section_notes(sweep),
        "plots": draw_panels(sweep),
        "survival": survival_table(sweep),
    }
