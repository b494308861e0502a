"""Figures of the scores: distributions, ROC, the four scores, reward-model bias against score."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from canaryjax.report.run import ARMS, Run, scores
from canaryjax.report.style import COLOUR, GREY, HATCH, INK, MARK, arm_ticks, legend_below, strip
from canaryjax.report.text import brackets, label, number, percent, pick
from canaryjax.report.textual import is_textual, score_names


def _axis(run: Run) -> str:
    return "distance of a policy's score from 0 (nats)" if _two_sided(run) else "score of a policy (nats)"


def _two_sided(run: Run) -> bool:
    return bool(pick(run.report, "statistic.two_sided"))


def draw_scores(run: Run, panels: list[Axes]) -> tuple[str, str] | None:
    """One point per policy and a histogram per arm, of the primary score, with the threshold."""
    values = {arm: scores(run.report, arm) for arm in ARMS}
    if not any(own.size for own in values.values()):
        return None
    points, bars = panels
    for position, arm in enumerate(ARMS):
        strip(points, position, values[arm], arm)
    arm_ticks(points, {arm: values[arm].size for arm in ARMS})
    points.set_ylabel(_axis(run))
    points.set_title("One point per policy")
    cut = pick(run.report, "detection.tpr.threshold")
    if cut is not None:
        points.axhline(cut, color=INK, linestyle="--", linewidth=1)
    draw_histogram(run, bars)
    primary = label(pick(run.report, "statistic.primary", "primary score"))
    medians = ", ".join(f"{arm} {number(float(np.median(values[arm])))}" for arm in ARMS if values[arm].size)
    caption = f"Primary score ({primary}) of every valid policy. Bars mark the arms' medians"
    caption += (
        "; the dashed line is the detection threshold, at which a bar of the histogram ends."
        if cut is not None
        else "; there is no threshold."
    )
    return f"Score of each policy by arm; medians in nats: {medians}.", caption


def draw_histogram(run: Run, axes: Axes) -> None:
    """A histogram per arm of the primary score, with the threshold; some arm must have a score."""
    values = {arm: scores(run.report, arm) for arm in ARMS}
    cut = pick(run.report, "detection.tpr.threshold")
    edges = _edges(np.concatenate(list(values.values())), cut).tolist()
    for arm in ARMS:
        look: Any = {"color": COLOUR[arm], "edgecolor": COLOUR[arm], "hatch": HATCH[arm]}
        axes.hist(values[arm], edges, alpha=0.55, label=arm, linewidth=0.8, **look)
    axes.set_xlabel(_axis(run))
    axes.set_ylabel("policies")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(5))  # more of them, with signs and decimals, run into each other
    axes.set_title("How the scores are spread")
    if cut is not None:
        axes.axvline(cut, color=INK, linestyle="--", linewidth=1, label=f"threshold {number(cut)}")
    legend_below(axes, 3)


def _edges(values: np.ndarray, cut: float | None) -> np.ndarray:
    """Edges of a histogram's bars, one of them the threshold: no bar stands on both sides of it."""
    edges = np.histogram_bin_edges(values, bins=min(20, max(10, values.size // 3)))
    if cut is None:
        return edges
    width = edges[1] - edges[0]
    below, above = np.ceil((cut - edges[0]) / width), np.ceil((edges[-1] - cut) / width)
    # A bar holds its left edge and not its right one, and a score at the threshold is not above it.
    return np.nextafter(cut, np.inf) + width * np.arange(-max(below, 0) - 1, max(above, 0) + 1)


def draw_roc(run: Run, panels: list[Axes]) -> tuple[str, str] | None:
    """The ROC with the target false positive rate and the operating point."""
    curve = pick(run.report, "detection.roc", {})
    if not curve.get("fpr") or not curve.get("tpr"):
        return None
    axes = panels[0]
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":", label="chance")
    axes.step(curve["fpr"], curve["tpr"], where="post", color=COLOUR["violating"], linewidth=1.8)
    target = pick(run.report, "detection.tpr.target_fpr")
    if target is not None:
        axes.axvline(target, color=INK, linestyle="--", linewidth=1, label=f"target {percent(target)}")
    rate = pick(run.report, "detection.tpr", {})
    caption = "Step ROC over policies."
    if rate.get("value") is not None:
        fpr = pick(rate, "expected_fpr", target)
        low, high = pick(rate, "interval.low", rate["value"]), pick(rate, "interval.high", rate["value"])
        axes.errorbar(
            [fpr], [rate["value"]], [[rate["value"] - low], [high - rate["value"]]],
            fmt="D", color=INK, markersize=5, capsize=3, linewidth=1, label="operating point", zorder=4,
        )  # fmt: skip
        level = percent(pick(rate, "interval.level"))
        caption += (
            f" The diamond is the {rate.get('rule')} operating point: {rate['count']} of {rate['n']} violating "
            f"policies, drawn at the false positive rate that a new compliant policy is expected to have; its bar "
            f"is the {level} interval given the threshold."
        )
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.04), aspect="equal")
    axes.set_xlabel("false positive rate (compliant)")
    axes.set_ylabel("true positive rate (violating)")
    area = pick(run.report, "detection.auroc")
    axes.set_title(f"AUROC {number(area, 2)} {brackets(pick(run.report, 'detection.auroc_interval'))}".strip())
    legend_below(axes, 3)
    return f"ROC curve with AUROC {number(area)}.", caption


def draw_four_scores(run: Run, panels: list[Axes]) -> tuple[str, str] | None:
    """All scores side by side, the primary marked; a textual canary has two."""
    names = score_names(run.report)
    if not any(scores(run.report, arm, name).size for arm in ARMS for name in names):
        return None
    told = []
    panels = _first(panels, len(names))
    for axes in panels[1:]:  # one scale: a score that hardly moves must look so
        axes.sharey(panels[0])
        axes.tick_params(labelleft=False)
    for axes, name in zip(panels, names, strict=True):
        for position, arm in enumerate(ARMS):
            strip(axes, position, scores(run.report, arm, name), arm)
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.set_xticks(range(2), ["comp.", "viol."])
        axes.set_xlim(-0.6, 1.6)
        axes.grid(axis="x", visible=False)
        roles = {pick(run.report, f"statistic.{role}"): role for role in ("secondary", "primary")}
        role = roles.get(name)
        axes.set_title(label(name).replace(", ", ",\n") + (f"\n({role})" if role else "\n"), fontsize=8.5)
        area = pick(run.report, f"all_detection.{name}.auroc")
        bounds = brackets(pick(run.report, f"all_detection.{name}.auroc_interval"))
        axes.set_xlabel(f"AUROC {number(area, 2)}\n{bounds}", fontsize=7.5)
        told.append(f"{label(name)} AUROC {number(area, 2)}")
    panels[0].set_ylabel("score of a policy (nats)")
    caption = (
        f"The {'two' if is_textual(run.report) else 'four'} scores, on one scale: "
        + (
            ""
            if is_textual(run.report)
            else "the query without (clean) or with (induced) the inducing instruction in both views, "
        )
        + "as it is (raw) or minus the base model's own score on the same pairs. The primary was fixed in the config "
        "before the run."
        + (" Scores minus the base are shown, and judged, as distances from 0." if _two_sided(run) else "")
    )
    return "; ".join(told) + ".", caption


def _first(panels: list[Axes], count: int) -> list[Axes]:
    """The first so many panels, the figure cut to them."""
    figure = panels[0].figure.get_figure(root=True)
    assert figure is not None
    figure.set_size_inches(figure.get_figwidth() * count / len(panels), figure.get_figheight())
    for axes in panels[count:]:
        axes.remove()
    grid = figure.add_gridspec(1, count)
    for place, axes in enumerate(panels[:count]):
        axes.set_subplotspec(grid[0, place])
    return panels[:count]


def draw_mechanism(run: Run, panels: list[Axes]) -> tuple[str, str] | None:
    """Reward-model bias against the policy's score, one point per policy."""
    axes, drawn = panels[0], 0
    for arm in ARMS:
        part = pick(run.report, f"arms.{arm}", {})
        pairs = [
            (bias, score)
            for bias, score in zip(part.get("rm_bias") or (), part.get("scores") or (), strict=False)
            if bias is not None and score is not None
        ]
        if pairs:
            bias, score = np.asarray(pairs).T
            axes.plot(
                bias, score, MARK[arm], color=COLOUR[arm], markersize=5, markeredgecolor="white", label=arm, zorder=3
            )
            drawn += len(pairs)
    if not drawn:
        return None
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel("reward-model bias (reward units)")
    axes.set_ylabel("score of a policy (nats)")
    axes.set_title("From reward model to policy")
    legend_below(axes, 2)
    answer = (
        "the reference answer with the string in the document minus without it"
        if is_textual(run.report)
        else "the canary answer with the triggered document minus without the trigger"
    )
    caption = (
        f"Each policy's score against the bias of the reward model that trained it: reward of {answer}. The bias is "
        "measured with documents in both arms."
    )
    return f"Scatter of reward-model bias and score for {drawn} policies.", caption
