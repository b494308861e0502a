"""The panels of a sweep as pictures: every policy, means and their 95 % intervals, after the paper's Figure 3."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from canaryjax.report.figures import Plot, styled, to_png
from canaryjax.report.panels import panel_title
from canaryjax.report.run import ARMS
from canaryjax.report.style import COLOUR, GREY, INK, MARK, legend_below
from canaryjax.report.text import label

SHIFT, REACH = 0.2, 0.13  # of an arm's dots from its cell's place, and how far they spread about that
MOST = 8  # axes of one picture: more would be too small to read, or too many for a page
WIDE, FEW = 5, 3  # cells up to which two panels share a row, and up to which one alone has a small picture
AXES = {"canary.rate": "canary rate (share of the traces)"}  # units, where the title has none
Drawn = tuple[Mapping[str, Any], bool]  # a panel, and whether per token


def draw_panels(sweep: Mapping[str, Any]) -> list[Plot]:
    """Pictures of a `sweep.json`'s panels that have a finished cell: one of all factors, or one a key of a grid.

    Returns:
      Plots; a panel whose strings differ in length is drawn per token too. What is beyond the first `MOST` panels of a
      picture is left out, which the caption says.
    """
    groups: dict[str, list[Drawn]] = {}
    for panel in sweep.get("panels") or ():
        name = panel["key"] if panel["at"] else ""
        if any(level["arms"]["violating"]["scores"] for level in panel["levels"]):
            groups.setdefault(name, []).append((panel, False))
            if panel["test_per_token"] and sum(bool(_scores(own, "violating", True)) for own in panel["levels"]) > 1:
                groups[name].append((panel, True))
    return [_picture(f"panels{number}", drawn) for number, drawn in enumerate(groups.values())]


def _picture(name: str, wanted: Sequence[Drawn]) -> Plot:
    drawn = wanted[:MOST]
    places = _places([len(panel["levels"]) for panel, _ in drawn])
    rows = places[-1][0] + 1
    small = len(drawn) == 1 and len(drawn[0][0]["levels"]) <= FEW
    with styled((4.2 if small else 7.0, 0.4 + 2.7 * rows)) as figure:
        grid = figure.add_gridspec(rows, 2)
        axes = [figure.add_subplot(grid[row, columns]) for row, columns in places]
        _share_scales(axes, drawn)
        for own, (panel, per_token) in zip(axes, drawn, strict=False):
            _draw(own, panel, per_token)
        legend_below(axes[0], 3, _legend())
        png = to_png(figure)
    titles = "; ".join(panel_title(panel) + (" per token" if per_token else "") for panel, per_token in drawn)
    left_out = f" {len(wanted) - len(drawn)} more are in the tables alone." if len(wanted) > len(drawn) else ""
    caption = (
        "One point per policy; black marks are means and bars their 95 % Student t intervals. Cells stand at equal "
        "distances, whatever their values; panels in nats have one scale. Of two counts n the first is of compliant "
        f"policies.{left_out}"
    )
    return Plot(name, f"Scores of policies by arm and cell. {titles}. The tables have the numbers.", caption, png)


def _places(sizes: Sequence[int]) -> list[tuple[int, slice]]:
    """Row and columns of each panel: two in a row, but one that has many cells, or is the only one, takes it all.

    >>> _places([3, 3, 7, 2])
    [(0, slice(0, 1, None)), (0, slice(1, 2, None)), (1, slice(0, 2, None)), (2, slice(0, 1, None))]
    """
    places: list[tuple[int, slice]] = []
    row, column = 0, 0
    for size in sizes:
        wide = size > WIDE or len(sizes) == 1
        if column == 2 or (wide and column):
            row, column = row + 1, 0
        places.append((row, slice(column, 2 if wide else column + 1)))
        column = 2 if wide else column + 1
    return places


def _share_scales(axes: Sequence[Axes], drawn: Sequence[Drawn]) -> None:
    """One scale for all that have one unit and one score: an effect that is small beside another must look so."""
    first: dict[Any, Axes] = {}
    for own, (panel, per_token) in zip(axes, drawn, strict=False):
        unit = (per_token, panel["primary"])
        if unit in first:
            own.sharey(first[unit])
        first.setdefault(unit, own)


def _draw(axes: Axes, panel: Mapping[str, Any], per_token: bool) -> None:
    axes.axhline(0, color=GREY, linewidth=0.8)
    for place, level in enumerate(panel["levels"]):
        why = level["status"] if level["status"] != "done" else "not available"
        if not any(_scores(level, arm, per_token) for arm in ARMS):
            # Half-way up the panel, wherever the scores lie.
            axes.text(place, 0.5, why, transform=axes.get_xaxis_transform(), ha="center", color="#666666")
        for side, arm in zip((-SHIFT, SHIFT), ARMS, strict=True):
            _arm(axes, place + side, level, arm, per_token)
    axes.set_xticks(range(len(panel["levels"])), [_tick(level) for level in panel["levels"]], fontsize=7.5)
    axes.set_xlim(-0.6, len(panel["levels"]) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel(_safe(AXES.get(panel["key"], panel["title"])))
    axes.set_ylabel("score (nats a token)" if per_token else "score (nats)")
    axes.set_title(_head(panel, per_token))


def _head(panel: Mapping[str, Any], per_token: bool) -> str:
    """The panel's name, and under it in a grid where it stands."""
    name, _, at = panel_title(panel).removeprefix("Panel ").removeprefix("of ").partition(", at ")
    lines = [name + (", per token" if per_token else ""), *([f"at {at}"] if at else [])]
    return "\n".join(textwrap.fill(_safe(line), 40) for line in lines)


def _arm(axes: Axes, place: float, level: Mapping[str, Any], arm: str, per_token: bool) -> None:
    values = np.asarray(_scores(level, arm, per_token), dtype=float)
    if not values.size:
        return
    order = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    # A fixed pattern by rank, not noise, as in the reports' figures: equal data draw equally.
    offsets = REACH * np.array([0.0, 0.7, -0.7, 0.35, -0.35, 1.0, -1.0])[order % 7]
    dots: Any = {"color": COLOUR[arm], "alpha": 0.55, "markersize": 3.5, "markeredgecolor": "none", "zorder": 2}
    axes.plot(place + offsets, values, MARK[arm], **dots)
    own = level["arms"][arm]
    mean, bounds = (
        own["mean_per_token" if per_token else "mean"],
        own["interval_per_token" if per_token else "interval"],
    )
    if bounds["low"] is not None:
        axes.errorbar(
            [place], [mean], [[mean - bounds["low"]], [bounds["high"] - mean]],
            fmt="none", ecolor=INK, elinewidth=1.4, capsize=3, capthick=1.2, zorder=3,
        )  # fmt: skip
    if values.size > 1:  # else the point is the mean, and would be hidden
        axes.plot(
            place, mean, MARK[arm], color=INK, markersize=5, markeredgecolor="white", markeredgewidth=0.6, zorder=4
        )


def _scores(level: Mapping[str, Any], arm: str, per_token: bool) -> Sequence[float]:
    return level["arms"][arm]["scores_per_token" if per_token else "scores"] or ()


def _tick(level: Mapping[str, Any]) -> str:
    named = textwrap.fill(_safe(label(level["label"])), 13)
    if level["status"] != "done":
        return named
    counts = [level["arms"][arm]["n"] for arm in ARMS]
    return f"{named}\nn = {counts[0]}" if len(set(counts)) == 1 else f"{named}\nn = {counts[0]}, {counts[1]}"


def _safe(text: str) -> str:
    return text.replace("$", r"\$")  # a dollar sign would begin a formula


def _legend() -> list[Line2D]:
    arms = [Line2D([], [], linestyle="none", marker=MARK[arm], color=COLOUR[arm], label=arm) for arm in ARMS]
    return [*arms, Line2D([], [], color=INK, linewidth=1.4, marker="o", markersize=5, label="mean, 95 % interval")]
