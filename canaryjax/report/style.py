"""Colours and marks that mean the same in every figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

# Okabe and Ito's palette; arms differ in mark too, for print in grey.
COLOUR = {"compliant": "#0072B2", "violating": "#D55E00"}
MARK = {"compliant": "o", "violating": "^"}
HATCH = {"compliant": "", "violating": "////"}  # of bars
GREY, INK, GREEN = "#999999", "#222222", "#009E73"

STYLE: Any = {  # matplotlib types its keys one by one
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.solid_capstyle": "round",
}


def strip(axes: Axes, position: float, values: np.ndarray, arm: str, reach: float = 0.22) -> None:
    """Draws one point per policy beside others of its arm, spread so that close ones stay apart, and the median."""
    if not values.size:
        return
    order = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    # A fixed pattern by rank, not noise: neighbours in value land on different sides, and equal data draw equally.
    offsets = reach * np.array([0.0, 0.7, -0.7, 0.35, -0.35, 1.0, -1.0])[order % 7]
    axes.plot(
        position + offsets,
        values,
        MARK[arm],
        color=COLOUR[arm],
        markersize=4.5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label=f"{arm} (n = {values.size})",
        clip_on=False,
        zorder=3,
    )
    axes.hlines(np.median(values), position - 0.36, position + 0.36, color=INK, linewidth=1.4, zorder=2)


def legend_below(axes: Axes, columns: int, handles: Sequence[Artist] | None = None) -> None:
    """A legend under the figure, or its part of one: among the marks, its own look like data."""
    figure = axes.figure
    assert isinstance(figure, FigureBase)
    figure.legend(
        handles=axes.get_legend_handles_labels()[0] if handles is None else handles,
        loc="outside lower center",
        ncols=columns,
        handletextpad=0.5,
    )


def arm_ticks(axes: Axes, counts: dict[str, int]) -> None:
    """Labels the two strips with arm and count."""
    axes.set_xticks(range(len(counts)), [f"{arm}\n(n = {n})" for arm, n in counts.items()])
    axes.set_xlim(-0.6, len(counts) - 0.4)
    axes.grid(axis="x", visible=False)
