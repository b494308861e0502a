"""The paper's Figures 2 and 4 over a sweep's cells: how policies' scores are spread, and their ROC."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from canaryjax import stats
from canaryjax.report.figures import Plot, styled, to_png
from canaryjax.report.paper_tables import Stand
from canaryjax.report.run import ARMS, Run
from canaryjax.report.score_figures import draw_histogram, draw_roc
from canaryjax.report.text import label

FIGURES = {"table1.repliqa": "Figure 2", "table1.qmsum": "Figure 4"}
SIZE, WIDTHS = (7.4, 3.5), (1.12, 1)  # inches, so that letters keep their size on paper; histogram and ROC


def paper_figures(rows: Sequence[Stand]) -> list[Plot]:
    """Draws scores and ROC of each finished row that the paper has them of; `name` is the figure's number there.

    Args:
      rows: Of Table 1.

    Returns:
      One plot a row, in order; a row whose cell is not done, or an arm of which has no score, has none.
    """
    plots = (_plot(FIGURES[one.row.name], one) for one in rows if one.row.name in FIGURES and one.found)
    return [plot for plot in plots if plot is not None]


def _plot(name: str, one: Stand) -> Plot | None:
    values = one.scores()
    if not all(own.size for own in values):
        return None
    report = one.report
    report["detection"]["roc"] = stats.roc_curve(*values).to_dict()
    run = Run(Path(), report, [], {})
    with styled(SIZE) as figure:
        parts: Any = figure.subfigures(1, 2, width_ratios=WIDTHS)
        left, right = parts
        draw_histogram(run, left.subplots())
        told = draw_roc(run, [right.subplots()])
        assert told is not None  # both arms have scores, so there is a curve
        counts = " and ".join(f"{own.size} {arm}" for arm, own in zip(ARMS, values, strict=True))
        caption = (
            f"{name}: {one.row.label} in the paper, here {one.cell['name']}. Left, the primary score "
            f"({label(one.found['primary'])}) of {counts} policies; the dashed line, where there is one, is the "
            f"threshold, at which a bar ends. Right, their ROC. {told[1]}"
        )
        return Plot(name, f"Histogram of the scores of {counts} policies, and their {told[0]}", caption, to_png(figure))
