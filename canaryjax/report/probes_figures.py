"""The figures of a probe audit: change by position, by window, and the window's parts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from canaryjax.report.figures import Plot, styled, to_png
from canaryjax.report.probes_text import in_figure
from canaryjax.report.style import GREY, INK, legend_below

# Okabe and Ito's palette, and line styles beside it for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
MARKS = ("o", "^", "s", "D", "v", "P")
SPAN_COLOUR = {"preamble": "#56B4E9", "literal": "#E69F00", "secret": "#D55E00", "end": "#009E73", "trailing": GREY}
SPAN_HATCH = {"preamble": "", "literal": "....", "secret": "////", "end": "xxxx", "trailing": "++++"}
BASELINE_LOOK: dict[str, Any] = {"color": INK, "linestyle": "-", "linewidth": 2.2, "alpha": 0.45}
UNSAID = "given"  # the source of a cell whose score file says none
MOST_REGIMES = 3  # panels side by side that still hold their labels
MOST_CELLS = 12  # of a panel: as many looks as differ
WORDS_ABREAST = 26  # characters of all names under a panel's bars; more are set aslant
Cells = Mapping[str, Mapping[str, Any]]  # by their names in the legend
Draw = Callable[[Mapping[str, Any], Axes, Cells, Sequence[str]], None]


def draw_probes(report: Mapping[str, Any]) -> dict[str, Plot]:
    """Draws every figure, one panel a baseline, by name; none where nothing was tuned."""
    regimes, dropped = _regimes(report)
    if not regimes:
        return {}
    names = list(dict.fromkeys(name for cells in regimes.values() for name in cells))
    window = report["tokens"]["window"]
    drawn: dict[str, tuple[Draw, str, str]] = {
        "profile": (
            _profile,
            "Change of each token's NLL by position, a line for each tuned cell.",
            f"Mean change of NLL at each position, nats. The dashed line is where the window of K = {window} ends; "
            "shading is the secret's span over all canaries.",
        ),
        "levels": (
            _levels,
            "Each token's NLL by position, a line for the baseline and one for each tuned cell.",
            f"Mean NLL at each position itself, nats: what the changes above are changes of. The dashed line and the "
            f"shading are as above, for K = {window}.",
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
    for stem, (draw, alt, caption) in drawn.items():
        with styled((3.6 * len(regimes) + 0.4, 3.6)) as figure:
            panels: Any = figure.subplots(1, len(regimes), squeeze=False)
            for axes, (regime, cells) in zip(panels.flat, regimes.items(), strict=True):
                draw(report, axes, cells, names)
                axes.set_title(in_figure(regime))
            _legend(stem, panels.flat[0], regimes, names)
            scales = " Panels have scales of their own." if len(regimes) > 1 else ""
            plots[stem] = Plot(stem, alt, f"{caption}{scales}{dropped}", to_png(figure))
    return plots


def _regimes(report: Mapping[str, Any]) -> tuple[dict[str, Cells], str]:
    """Tuned cells by baseline, of several step counts the most, so that lines stay apart; and what that leaves out.

    A cell is called by its source, or by its own name where a source has several or a score file names none.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cell in report["cells"]:
        if cell["kind"] == "sft":
            found.setdefault(cell["baseline"], []).append(cell)
    total = sum(map(len, found.values()))
    drawn: dict[str, Cells] = {}
    for baseline, own in list(found.items())[:MOST_REGIMES]:
        longest = [cell for cell in own if cell["steps"] == max(one["steps"] for one in own)][:MOST_CELLS]
        sources = {cell["source"] for cell in longest}
        several = len(sources) < len(longest) or UNSAID in sources
        drawn[baseline] = {cell["name"] if several else cell["source"]: cell for cell in longest}
    shown = sum(map(len, drawn.values()))
    return drawn, f" {shown} of {total} tuned cells are drawn, of each baseline those with most steps." * (
        shown < total
    )


def _look(name: str, names: Sequence[str]) -> dict[str, Any]:
    place = names.index(name)
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": LINES[place % len(LINES)]}


def _mark(name: str, names: Sequence[str]) -> str:
    return MARKS[names.index(name) % len(MARKS)]


def _profile(report: Mapping[str, Any], axes: Axes, cells: Cells, names: Sequence[str]) -> None:
    _by_position(report, axes)
    for name, cell in cells.items():
        axes.plot(*_line(cell["profile"]["delta"]), linewidth=1.3, **_look(name, names))
    axes.set_ylabel("change of NLL, nats")


def _levels(report: Mapping[str, Any], axes: Axes, cells: Cells, names: Sequence[str]) -> None:
    _by_position(report, axes)
    baseline = next(iter(cells.values()))["baseline"]
    before = next(cell for cell in report["cells"] if cell["name"] == baseline)
    axes.plot(*_line(before["profile"]["nll"]), **BASELINE_LOOK)
    for name, cell in cells.items():
        axes.plot(*_line(cell["profile"]["nll"]), linewidth=1.3, **_look(name, names))
    axes.set_ylabel("NLL, nats")


def _line(values: Sequence[float | None]) -> tuple[range, list[float]]:
    return range(len(values)), [float("nan") if value is None else value for value in values]


def _by_position(report: Mapping[str, Any], axes: Axes) -> None:
    """What every figure over positions shows: the secret's span, the window's end, 0."""
    secret = next(one for one in report["tokens"]["positions"] if one["span"] == "secret")
    axes.axvspan(secret["first"] - 0.5, secret["last"] + 0.5, color=SPAN_COLOUR["secret"], alpha=0.12, linewidth=0)
    axes.axvline(report["tokens"]["window"] - 0.5, color=INK, linestyle="--", linewidth=1)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position")


def _sweep(report: Mapping[str, Any], axes: Axes, cells: Cells, names: Sequence[str]) -> None:
    ks = report["tokens"]["sweep"]
    behind = max(ks, default=0) + 4  # where the secret's own change stands
    axes.axhline(0, color=INK, linewidth=0.8)
    for name, cell in cells.items():
        look, mark = _look(name, names), _mark(name, names)
        values = [cell["delta"]["sweep"][str(k)]["value"] for k in ks]
        known = [(k, value) for k, value in zip(ks, values, strict=True) if value is not None]
        axes.plot([k for k, _ in known], [value for _, value in known], marker=mark, markersize=4, **look)
        if cell["delta"]["secret"]["value"] is not None:
            axes.plot([behind], [cell["delta"]["secret"]["value"]], marker=mark, markersize=6, **look)
    axes.set_xticks([*ks, behind], [*map(str, ks), "secret"])
    axes.set_xlabel("window K")
    axes.set_ylabel("change of mean NLL, nats a token")


def _parts(report: Mapping[str, Any], axes: Axes, cells: Cells, names: Sequence[str]) -> None:
    axes.axhline(0, color=INK, linewidth=0.8)
    for place, cell in enumerate(cells.values()):
        above = below = 0.0
        for row in (cell["decomposition"] or {"rows": ()})["rows"]:
            size = row["contribution"]
            start = above if size >= 0 else below
            look: dict[str, Any] = {"color": SPAN_COLOUR[row["span"]], "hatch": SPAN_HATCH[row["span"]]}
            axes.bar(place, size, bottom=start, width=0.6, linewidth=0.5, edgecolor="white", **look)
            above, below = (above + size, below) if size >= 0 else (above, below + size)
    shown = [in_figure(name) for name in cells]
    if len("".join(shown)) > WORDS_ABREAST:
        axes.set_xticks(range(len(cells)), shown, rotation=35, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(range(len(cells)), shown)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.6, len(cells) - 0.4)
    axes.set_ylabel("part of the change, nats a token")


def _legend(stem: str, axes: Axes, regimes: Mapping[str, Cells], names: Sequence[str]) -> None:
    if stem == "parts":
        cells = [cell for own in regimes.values() for cell in own.values() if cell["decomposition"]]
        spans = dict.fromkeys(row["span"] for cell in cells for row in cell["decomposition"]["rows"])
        handles: list[Any] = [
            Patch(facecolor=SPAN_COLOUR[span], hatch=SPAN_HATCH[span], edgecolor="white", label=span) for span in spans
        ]
    else:
        marks = {name: _mark(name, names) if stem == "sweep" else "" for name in names}
        handles = [
            Line2D([], [], label=in_figure(name), marker=marks[name], markersize=4, **_look(name, names))
            for name in names
        ]
        if stem == "levels":
            handles.insert(0, Line2D([], [], label="baseline", **BASELINE_LOOK))
    if handles:
        longest = max(len(handle.get_label()) for handle in handles)
        abreast = max(int(40 * len(regimes) / (longest + 6)), 1)  # characters of a panel's width, a line before each
        legend_below(axes, min(len(handles), abreast, 5), handles)
