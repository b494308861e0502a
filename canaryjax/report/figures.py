"""The figures of a report, drawn to be read in print and by colour-blind readers."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from canaryjax.errors import UserError
from canaryjax.report import controls_figures, score_figures
from canaryjax.report.run import Run
from canaryjax.report.style import STYLE
from canaryjax.runlog import replacing

DPI = 200  # 7 inches wide: 1,400 pixels, sharp on paper


@dataclass(frozen=True)
class Plot:
    """A drawn figure: file stem, what it shows for those who cannot see it, caption, PNG bytes."""

    name: str
    alt: str
    caption: str
    png: bytes


# Name, size in inches, columns and rows of panels, drawing function -> (alt text, caption) or None where data lack.
Draw = Callable[[Run, list[Axes]], tuple[str, str] | None]
_FIGURES: dict[str, tuple[tuple[float, float], tuple[int, int], Draw]] = {
    "scores": ((7.0, 3.1), (1, 2), score_figures.draw_scores),
    "roc": ((3.6, 3.6), (1, 1), score_figures.draw_roc),
    "four_scores": ((7.0, 2.8), (1, 4), score_figures.draw_four_scores),
    "mechanism": ((3.6, 3.5), (1, 1), score_figures.draw_mechanism),
    "decoys": ((7.0, 3.3), (1, 1), controls_figures.draw_decoys),
    "placebos": ((7.0, 3.3), (1, 1), controls_figures.draw_placebos),
    "training": ((7.0, 3.0), (1, 2), controls_figures.draw_training),
}


@contextmanager
def styled(size: tuple[float, float]) -> Iterator[Figure]:
    """A figure of a size in inches, in the reports' style inside the block."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def draw_figures(run: Run) -> dict[str, Plot]:
    """Draws every figure that the run has data for, by name."""
    plots = {}
    for name, (size, (rows, columns), draw) in _FIGURES.items():
        with styled(size) as figure:
            panels: Any = figure.subplots(rows, columns, squeeze=False)
            told = draw(run, list(panels.flat))
            if told is None:
                continue
            plots[name] = Plot(name, *told, to_png(figure))
    return plots


def to_png(figure: Figure) -> bytes:
    """A drawn figure as a file's bytes; no software name or date is in it: equal data give equal files."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def write_figures(run: Run, plots: dict[str, Plot]) -> None:
    """Writes `figures/*.png` of a run directory, each whole or not at all."""
    write_plots(run.path, plots)


def write_plots(path: Path, plots: dict[str, Plot]) -> None:
    """Writes `figures/*.png` in a folder, each whole or not at all."""
    folder = path / "figures"
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise UserError(f"expected a folder for the figures at {folder}, found a file; move it away") from error
    for plot in plots.values():
        with replacing(folder / f"{plot.name}.png") as handle:
            handle.write(plot.png)
