"""The figures of a probe audit: change by position, by window, and the window's parts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from canaryjax.report.figures import Plot, styled, to_png
from canaryjax.report.style import GREY, INK, legend_below

# Okabe and Ito's palette, and line styles beside it for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
SPAN_COLOUR = {"preamble": "#56B4E9", "literal": "#E69F00", "secret": "#D55E00", "end": "#009E73", "trailing": GREY}
SPAN_HATCH = {"preamble": "", "literal": "....", "secret": "////", "end": "xxxx", "trailing": "++++"}
MOST_REGIMES = 3  # panels side by side that still hold their labels
Cells = Sequence[Mapping[str, Any]]
Draw = Callable[[Mapping[str, Any], Axes, Cells], None]


def draw_probes(report: Mapping[str, Any]) -> dict[str, Plot]:
    """Draws every figure, one panel a baseline, by name; none where nothing was tuned."""
    regimes = _regimes(report)
    if not regimes:
        return {}
    window = report["tokens"]["window"]
    drawn: dict[str, tuple[Draw, str, str]] = {
        "profile": (
            _profile,
            "Change of each token's NLL by position, a line for each tuned cell.",
            f"Mean change of NLL at each position, nats. The dashed line is where the window of K = {window} ends; "
            "shading is the secret's span over all canaries.",
        ),
        "sweep": (
            _sweep,
            "Change of the window's mean NLL by window length, and the whole secret's change.",
            "Change of the mean over the first K positions, nats a token, from one pass. The mark at the right is the "
            "whole secret's mean, which is no window.",
        ),
        "parts": (
            _parts,
            "Each span's part of the window's change, a bar for each tuned cell.",
            f"The change of the mean over K = {window} positions as a sum over spans, nats a token; parts of opposite "
            "sign stand on opposite sides of 0.",
        ),
    }
    plots = {}
    for name, (draw, alt, caption) in drawn.items():
        with styled((3.6 * len(regimes) + 0.4, 3.6)) as figure:
            panels: Any = figure.subplots(1, len(regimes), squeeze=False)
            for axes, (regime, cells) in zip(panels.flat, regimes.items(), strict=True):
                draw(report, axes, cells)
                axes.set_title(regime)
            _legend(name, panels.flat[0], regimes)
            plots[name] = Plot(name, alt, caption, to_png(figure))
    return plots


def _regimes(report: Mapping[str, Any]) -> dict[str, Cells]:
    """Tuned cells by baseline; of several step counts the most, so that lines stay apart."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cell in report["cells"]:
        if cell["kind"] == "sft":
            found.setdefault(cell["baseline"], []).append(cell)
    longest = {
        name: [cell for cell in cells if cell["steps"] == max(own["steps"] for own in cells)]
        for name, cells in found.items()
    }
    return dict(list(longest.items())[:MOST_REGIMES])


def _sources(regimes: Mapping[str, Cells]) -> list[str]:
    return list(dict.fromkeys(cell["source"] for cells in regimes.values() for cell in cells))


def _look(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": LINES[place % len(LINES)]}


def _profile(report: Mapping[str, Any], axes: Axes, cells: Cells) -> None:
    secret = next(one for one in report["tokens"]["positions"] if one["span"] == "secret")
    axes.axvspan(secret["first"] - 0.5, secret["last"] + 0.5, color=SPAN_COLOUR["secret"], alpha=0.12, linewidth=0)
    axes.axvline(report["tokens"]["window"] - 0.5, color=INK, linestyle="--", linewidth=1)
    axes.axhline(0, color=INK, linewidth=0.8)
    for place, cell in enumerate(cells):
        values = [float("nan") if value is None else value for value in cell["profile"]["delta"]]
        axes.plot(range(len(values)), values, linewidth=1.3, **_look(place))
    axes.set_xlabel("position")
    axes.set_ylabel("change of NLL, nats")


def _sweep(report: Mapping[str, Any], axes: Axes, cells: Cells) -> None:
    ks = report["tokens"]["sweep"]
    axes.axhline(0, color=INK, linewidth=0.8)
    for place, cell in enumerate(cells):
        values = [cell["delta"]["sweep"][str(k)]["value"] for k in ks]
        known = [(k, value) for k, value in zip(ks, values, strict=True) if value is not None]
        axes.plot([k for k, _ in known], [value for _, value in known], marker="o", markersize=3.5, **_look(place))
        if cell["delta"]["secret"]["value"] is not None:
            axes.plot([max(ks) + 4], [cell["delta"]["secret"]["value"]], marker="D", markersize=5, **_look(place))
    axes.set_xticks([*ks, max(ks) + 4], [*map(str, ks), "secret"])
    axes.set_xlabel("window K")
    axes.set_ylabel("change of mean NLL, nats a token")


def _parts(report: Mapping[str, Any], axes: Axes, cells: Cells) -> None:
    axes.axhline(0, color=INK, linewidth=0.8)
    for place, cell in enumerate(cells):
        above = below = 0.0
        for row in (cell["decomposition"] or {"rows": ()})["rows"]:
            size = row["contribution"]
            start = above if size >= 0 else below
            look: dict[str, Any] = {"color": SPAN_COLOUR[row["span"]], "hatch": SPAN_HATCH[row["span"]]}
            axes.bar(place, size, bottom=start, width=0.6, linewidth=0.5, edgecolor="white", **look)
            above, below = (above + size, below) if size >= 0 else (above, below + size)
    axes.set_xticks(range(len(cells)), [cell["source"] for cell in cells])
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("part of the window's change, nats a token")


def _legend(name: str, axes: Axes, regimes: Mapping[str, Cells]) -> None:
    handles: list[Any]
    if name == "parts":
        spans = [
            row["span"]
            for cell in next(iter(regimes.values()))
            for row in (cell["decomposition"] or {"rows": ()})["rows"]
        ]
        handles = [
            Patch(facecolor=SPAN_COLOUR[span], hatch=SPAN_HATCH[span], edgecolor="white", label=span)
            for span in dict.fromkeys(spans)
        ]
    else:
        handles = [Line2D([], [], label=source, **_look(place)) for place, source in enumerate(_sources(regimes))]
    if handles:
        legend_below(axes, min(len(handles), 5), handles)
