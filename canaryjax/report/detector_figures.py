"""The figures of a detector's report: dose and response, cohorts, membership."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, PercentFormatter

from canaryjax.report.detector_membership import METHODS
from canaryjax.report.detector_text import cohort_name, whole
from canaryjax.report.figures import Plot, styled, to_png
from canaryjax.report.style import COLOUR, GREEN, GREY, INK, legend_below
from canaryjax.report.text import number, percent, pick
from canaryjax.stats import wilson_interval

Draw = Callable[[Mapping[str, Any], Axes], tuple[str, str] | None]
POINT = COLOUR["violating"]
LONGEST_TICK = 24  # characters; a longer name would leave the axes no room
# Colour, line and hatch of the two reference rates: told apart in grey, too.
REFERENCES: dict[str, tuple[str, str, str, str]] = {
    "negative": ("floor", GREY, "--", "...."),
    "positive": ("ceiling", GREEN, "-.", "////"),
}


def draw_detector(report: Mapping[str, Any]) -> dict[str, Plot]:
    """Draws every figure that a detector's `report.json` has data for, by name."""
    figures: dict[str, tuple[tuple[float, float], Draw]] = {
        "dose_response": ((6.4, 3.8), draw_dose),
        "cohorts": ((6.4, 3.2), draw_cohorts),
        "membership": ((6.4, 3.2), draw_membership),
    }
    plots = {}
    for name, (size, draw) in figures.items():
        with styled(size) as figure:
            told = draw(report, figure.subplots())
            if told is not None:
                plots[name] = Plot(name, *told, to_png(figure))
    return plots


def draw_dose(report: Mapping[str, Any], axes: Axes) -> tuple[str, str] | None:
    """Hit rate over occurrences, floor and ceiling as lines; alt text and caption, or None without data."""
    rungs = sorted(
        (own for own in report.get("curve") or () if whole(own.get("occurrences")) > 0),
        key=lambda own: own["occurrences"],
    )
    drawn = [own for own in rungs if pick(own, "rate.estimate") is not None]
    if not drawn:
        return None
    axes.set_xscale("log")
    said = _references(report, axes)
    places = [own["occurrences"] for own in drawn]
    axes.plot(places, [own["rate"]["estimate"] for own in drawn], color=POINT, linewidth=1, alpha=0.6, zorder=3)
    _points(axes, places, [own["rate"] for own in drawn], "canaries")
    axes.set_xticks(
        [own["occurrences"] for own in rungs],
        [f"{own['occurrences']:,}\n{_count(own)}" for own in rungs],
    )
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = rungs[0]["occurrences"], rungs[-1]["occurrences"]
    axes.set_xlim(low / 1.6, high * 1.6)
    axes.set_xlabel("occurrences on the site (log scale); hits of targets below")
    _rates(axes)
    alt = "Hit rate by occurrences on the site: " + "; ".join(f"{own['occurrences']:,}: {_count(own)}" for own in rungs)
    return f"{alt}.", f"One point a rung of the ladder; bars are {_level(report)} Wilson intervals. {said}"


def draw_cohorts(report: Mapping[str, Any], axes: Axes) -> tuple[str, str] | None:
    """Hit rate by cohort; alt text and caption, or None without data."""
    cohorts = [own for own in report.get("cohorts") or () if pick(own, "rate.estimate") is not None]
    if not cohorts:
        return None
    said = _references(report, axes)
    _points(axes, list(range(len(cohorts))), [own["rate"] for own in cohorts], "canaries")
    names = [cohort_name(own) for own in cohorts]
    ticks = [f"{_tick(name)}\n{_count(own)}" for name, own in zip(names, cohorts, strict=True)]
    axes.set_xticks(range(len(cohorts)), ticks)
    axes.set_xlim(-0.6, len(cohorts) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("how a page can be found; hits of targets below")
    _rates(axes)
    alt = "Hit rate by cohort: " + "; ".join(f"{name}: {_count(own)}" for name, own in zip(names, cohorts, strict=True))
    return f"{alt}.", f"Bars are {_level(report)} Wilson intervals. {said}"


def _points(
    axes: Axes,
    places: Sequence[float],
    rates: Sequence[Mapping[str, Any]],
    name: str,
    mark: str = "o",
    colour: str = POINT,
) -> None:
    values = [rate["estimate"] for rate in rates]
    # At an end rounding may leave a bar of -1e-17, which is refused.
    lows = [max(value - pick(rate, "low", value), 0.0) for value, rate in zip(values, rates, strict=True)]
    highs = [max(pick(rate, "high", value) - value, 0.0) for value, rate in zip(values, rates, strict=True)]
    axes.errorbar(
        places, values, [lows, highs], fmt=mark, color=colour, ecolor=INK, markersize=6,
        markeredgecolor="white", markeredgewidth=0.6, elinewidth=1.2, capsize=3, label=name, zorder=4, clip_on=False,
    )  # fmt: skip


def _references(report: Mapping[str, Any], axes: Axes) -> str:
    """Draws floor and ceiling as lines with their intervals as bands; returns what the caption says of them."""
    texts = []
    for key, (name, colour, line, hatch) in REFERENCES.items():
        own = pick(report, f"populations.{key}", {})
        # Famous facts have no id: they can be hits by fields alone.
        own = pick(own, "field_rule", own) | {"n": own.get("n")} if key == "positive" else own
        rate = pick(own, "rate", {})
        if rate.get("estimate") is None:
            texts.append(f"No {name} is drawn: {rate.get('reason') or 'no rate was recorded'}.")
            continue
        axes.axhline(
            rate["estimate"], color=colour, linestyle=line, linewidth=1.6, label=f"{name} {_count(own)}", zorder=2
        )
        if rate.get("low") is not None and rate.get("high") is not None:
            axes.axhspan(
                rate["low"], rate["high"], facecolor="none", edgecolor=colour, hatch=hatch, alpha=0.3, linewidth=0,
                zorder=1,
            )  # fmt: skip
        texts.append(
            {
                "negative": f"Dashed, with a dotted band: the floor, {_count(own)} never-published sentences.",
                "positive": f"Dash-dotted, with a slanted band: the ceiling, {_count(own)} famous facts, hits by "
                "fields alone.",
            }[key]
        )
    return " ".join(texts)


def _rates(axes: Axes, name: str = "hit rate (share of targets)") -> None:
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel(name)
    legend_below(axes, 3)


def _count(own: Mapping[str, Any]) -> str:
    return f"{number(own.get('hits'))} of {number(own.get('n'))}"


def _level(report: Mapping[str, Any]) -> str:
    return percent(report.get("level"))


def draw_membership(report: Mapping[str, Any], axes: Axes) -> tuple[str, str] | None:
    """Share of each group above the membership threshold; alt text and caption, or None without data."""
    looks = {"min_k": ("o", COLOUR["compliant"]), "min_k_plus_plus": ("^", POINT)}
    shares = {key: _above(report, key) for key in METHODS}
    groups = list(dict.fromkeys(name for own in shares.values() for name in own))
    if not groups:
        return None
    for shift, (key, name) in zip((-0.12, 0.12), METHODS.items(), strict=True):
        mark, colour = looks[key]
        places = [groups.index(group) + shift for group in shares[key]]
        if places:
            _points(axes, places, list(shares[key].values()), name, mark, colour)
        expected = pick(report, f"membership.{key}.expected_fpr")
        if places and expected is not None:
            axes.axhline(expected, color=colour, linestyle=":", linewidth=1.2, label=f"expected of unseen, {name}")
    axes.set_xticks(range(len(groups)), [_tick(group).replace(" ", "\n") for group in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("group of canaries")
    _rates(axes, "share above the threshold")
    caption = (
        f"Share of each group's sentences above the threshold that the never-published ones set; bars are "
        f"{_level(report)} Wilson intervals. The dotted line is the share that is expected of unseen sentences."
    )
    return "Share of sentences above the membership threshold by group; the table has the numbers.", caption


def _above(report: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Wilson intervals of the shares of the groups above a method's threshold."""
    level = report.get("level")
    return {
        str(name): wilson_interval(own["k"], own["n"], level).to_dict()
        for name, own in pick(report, f"membership.{key}.flagged", {}).items()
        if level is not None and whole(pick(own, "n")) and pick(own, "k") is not None
    }


def _tick(text: str) -> str:
    short = text if len(text) <= LONGEST_TICK else f"{text[: LONGEST_TICK - 1]}…"
    return short.replace("$", r"\$")  # a dollar sign would begin a formula
