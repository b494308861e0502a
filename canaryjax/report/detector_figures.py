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

Draw = Callable[[Mapping[str, Any], Sequence[Axes]], tuple[str, str] | None]
POINT = COLOUR["violating"]
LONGEST_TICK = 24  # characters; a longer name would leave the axes no room
# Colour, line and hatch of the two reference rates: told apart in grey, too.
REFERENCES: dict[str, tuple[str, str, str, str]] = {
    "negative": ("floor", GREY, "--", "...."),
    "positive": ("ceiling", GREEN, "-.", "////"),
}


def draw_detector(report: Mapping[str, Any]) -> dict[str, Plot]:
    """Draws every figure that a detector's `report.json` has data for, by name."""
    figures: dict[str, tuple[tuple[float, float], int, Draw]] = {
        "dose_response": ((7.0, 3.6), 2, draw_dose),
        "cohorts": ((6.4, 3.2), 1, lambda report, panels: draw_cohorts(report, panels[0])),
        "membership": ((6.4, 3.2), 1, lambda report, panels: draw_membership(report, panels[0])),
    }
    plots = {}
    for name, (size, columns, draw) in figures.items():
        with styled(size) as figure:
            panels: Any = figure.subplots(1, columns, squeeze=False)
            told = draw(report, list(panels.flat))
            if told is not None:
                plots[name] = Plot(name, *told, to_png(figure))
    return plots


def draw_dose(report: Mapping[str, Any], panels: Sequence[Axes]) -> tuple[str, str] | None:
    """Hit rate over occurrences by both rules, floor and ceiling as lines; alt text and caption, or None without data.

    Args:
      report: A detector's `report.json`.
      panels: Two, for the declared rule and for the field rule.
    """
    rungs = [own for own in report.get("curve") or () if whole(own.get("occurrences")) > 0]
    ladder = [
        {"occurrences": own["occurrences"], "n": own.get("n"), **pick(own, "field_rule", {})}
        for own in report.get("groups") or ()
        if own.get("tier") == "ladder" and whole(own.get("occurrences")) > 0
    ]
    if all(pick(own, "rate.estimate") is None for own in rungs):
        return None
    declared, fields = panels
    _curve(report, declared, sorted(rungs, key=lambda own: own["occurrences"]), "")
    _curve(report, fields, sorted(ladder, key=lambda own: own["occurrences"]), "field_rule")
    declared.set_title("By the declared rule")
    fields.set_title("By the field rule")
    fields.set_ylabel("")
    legend_below(declared, 3, _legend(report, declared))
    alt = "Hit rate by occurrences on the site: " + "; ".join(f"{own['occurrences']:,}: {_count(own)}" for own in rungs)
    caption = (
        f"One point a rung of the ladder, hits of targets under it; bars are {_level(report)} Wilson intervals. Famous "
        "facts can meet the field rule alone: on the left the ceiling is the right one's, for the eye. "
    )
    return f"{alt}.", caption + _told(report)


def _curve(report: Mapping[str, Any], axes: Axes, rungs: Sequence[Mapping[str, Any]], rule: str) -> None:
    axes.set_xscale("log")
    _references(report, axes, rule)
    drawn = [own for own in rungs if pick(own, "rate.estimate") is not None]
    places = [own["occurrences"] for own in drawn]
    axes.plot(places, [own["rate"]["estimate"] for own in drawn], color=POINT, linewidth=1, alpha=0.6, zorder=3)
    if drawn:
        _points(axes, places, [own["rate"] for own in drawn], "canaries")
    # The two highest rungs stand close: "9 of 13" would run into its neighbour.
    ticks = [f"{own['occurrences']:,}\n{number(own.get('hits'))}/{number(own.get('n'))}" for own in rungs]
    axes.set_xticks([own["occurrences"] for own in rungs], ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    if rungs:
        axes.set_xlim(rungs[0]["occurrences"] / 2, rungs[-1]["occurrences"] * 2)
    axes.set_xlabel("occurrences on the site (log scale)")
    _rates(axes)


def draw_cohorts(report: Mapping[str, Any], axes: Axes) -> tuple[str, str] | None:
    """Hit rate by cohort; alt text and caption, or None without data."""
    cohorts = [own for own in report.get("cohorts") or () if pick(own, "rate.estimate") is not None]
    if not cohorts:
        return None
    _references(report, axes)
    _points(axes, list(range(len(cohorts))), [own["rate"] for own in cohorts], "canaries")
    names = [cohort_name(own) for own in cohorts]
    ticks = [f"{_tick(name)}\n{_count(own)}" for name, own in zip(names, cohorts, strict=True)]
    axes.set_xticks(range(len(cohorts)), ticks)
    axes.set_xlim(-0.6, len(cohorts) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("how a page can be found; hits of targets below")
    _rates(axes)
    legend_below(axes, 3)
    alt = "Hit rate by cohort: " + "; ".join(f"{name}: {_count(own)}" for name, own in zip(names, cohorts, strict=True))
    return f"{alt}.", f"Bars are {_level(report)} Wilson intervals. {_told(report)}"


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


def _references(report: Mapping[str, Any], axes: Axes, rule: str = "") -> None:
    """Draws floor and ceiling as lines with their intervals as bands; the floor by a rule, the ceiling by fields."""
    for key, (name, colour, line, hatch) in REFERENCES.items():
        own = _reference(report, key, rule)
        rate = pick(own, "rate", {})
        if rate.get("estimate") is None:
            continue
        axes.axhline(
            rate["estimate"], color=colour, linestyle=line, linewidth=1.6, label=f"{name} {_count(own)}", zorder=2
        )
        if rate.get("low") is not None and rate.get("high") is not None:
            axes.axhspan(
                rate["low"], rate["high"], facecolor="none", edgecolor=colour, hatch=hatch, alpha=0.3, linewidth=0,
                zorder=1,
            )  # fmt: skip


def _reference(report: Mapping[str, Any], key: str, rule: str) -> Mapping[str, Any]:
    own = pick(report, f"populations.{key}", {})
    # Famous facts have no id and no archive: by the declared rule they are out of reach.
    by_fields = key == "positive" or rule == "field_rule"
    return {"n": own.get("n"), **pick(own, "field_rule", {})} if by_fields else own


def _told(report: Mapping[str, Any]) -> str:
    """What a caption says of floor and ceiling."""
    marks = {
        "negative": ("Dashed, dotted band", "never published"),
        "positive": ("Dash-dotted, slanted band", "famous"),
    }
    texts = []
    for key, (mark, what) in marks.items():
        name, own = REFERENCES[key][0], _reference(report, key, "")
        if pick(own, "rate.estimate") is None:
            texts.append(f"No {name} is drawn: {pick(own, 'rate.reason', 'no rate was recorded')}.")
        else:
            texts.append(f"{mark}: the {name}, {_count(own)} {what}.")
    return " ".join(texts)


def _legend(report: Mapping[str, Any], axes: Axes) -> list[Any]:
    """Names without counts: two panels have two floors."""
    handles, labels = axes.get_legend_handles_labels()
    for handle, text in zip(handles, labels, strict=True):
        handle.set_label(text.split(" ")[0])
    return list(handles)


def _rates(axes: Axes, name: str = "hit rate (share of targets)") -> None:
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel(name)


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
    legend_below(axes, 3)
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
