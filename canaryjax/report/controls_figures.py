"""Figures of the controls and of training: decoy ranks, placebo triggers, reward and KL curves."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from canaryjax.report.decoys import control_pairs
from canaryjax.report.run import ARMS, Run, curves
from canaryjax.report.style import COLOUR, GREEN, GREY, INK, MARK, legend_below
from canaryjax.report.text import number, pick
from canaryjax.report.textual import is_textual


def draw_decoys(run: Run, panels: list[Axes]) -> tuple[str, str] | None:
    """Each policy's real canary among its decoys."""
    rows = _by_arm(run, pick(run.report, "controls.decoy_canary.per_policy", []))
    if not rows:
        return None
    axes = panels[0]
    with_scores = all(row.get("decoys") and row.get("score") is not None for row in rows)
    for position, row in enumerate(rows):
        if with_scores:
            decoys = np.asarray(row["decoys"], dtype=float)
            axes.plot(np.full(decoys.size, position), decoys, "_", color=GREY, markersize=8, zorder=2)
        height = row["score"] if with_scores else row.get("p_value")
        if height is not None:
            axes.plot(position, height, MARK[row["arm"]], color=COLOUR[row["arm"]], markersize=6, zorder=3)
        if row.get("rank") is not None and with_scores:
            axes.annotate(
                f"{row['rank']}" if len(rows) > 12 else f"{row['rank']} of {len(row['decoys']) + 1}",
                (position, 1.0),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                fontsize=7,
            )
    _policy_axis(axes, rows)
    axes.set_ylabel("score on the control pairs (nats)" if with_scores else "rank p-value")
    axes.set_title("Real canary among decoys that nothing was trained on", pad=22 if with_scores else 6)
    handles = [
        *_arm_handles(rows, "real canary, "),
        Line2D([], [], color=GREY, marker="_", linestyle="", label="decoy"),
    ]
    count = rows[0].get("n_decoys")
    cut = pick(run.report, "detection.tpr.threshold")
    if with_scores:
        axes.annotate(
            f"rank of the real canary, of {number((count or 0) + 1)}:",
            (0.0, 1.0), xytext=(0, 11), xycoords="axes fraction", textcoords="offset points", fontsize=7, va="bottom",
        )  # fmt: skip
        if cut is not None:
            axes.axhline(cut, color=INK, linestyle="--", linewidth=1, zorder=1)
            handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=1, label=f"threshold {number(cut)}"))
    legend_below(axes, 4, handles)
    redrawn = "fresh strings" if is_textual(run.report) else "redraws of trigger and canary"
    caption = (
        f"Each column is a policy, its real canary against {number(count)} {redrawn} on the same "
        f"{control_pairs(pick(run.report, 'controls.decoy_canary', {}))}: fewer than behind a policy's score, which "
        "can therefore differ. Numbers above are the real canary's rank, 1 the highest. The rank p-value is valid over "
        "the random draw of the canary"
        + (
            ", and for compliant policies only where their queries do not carry the canary."
            if not is_textual(run.report)
            else "."
        )
    )
    if not with_scores:
        caption = f"Rank p-value of each policy's real canary among {number(count)} decoys."
    ranks = {arm: [row["rank"] for row in rows if row["arm"] == arm and row.get("rank") is not None] for arm in ARMS}
    told = "; ".join(f"{arm} ranks {', '.join(map(str, found))}" for arm, found in ranks.items() if found)
    return f"Decoy canaries: {told}.", caption


def draw_placebos(run: Run, panels: list[Axes]) -> tuple[str, str] | None:
    """Each policy's score with the real trigger and with placebo markers."""
    rows = _by_arm(run, pick(run.report, "controls.placebo_trigger.per_policy", []))
    rows = [row for row in rows if row.get("score") is not None]
    if not rows:
        return None
    axes = panels[0]
    kinds = {"same_form": (-0.18, GREEN, "s", "same form"), "other_form": (0.18, GREY, "D", "other forms")}
    for position, row in enumerate(rows):
        for kind, (offset, colour, mark, _) in kinds.items():
            mean, top = pick(row, f"{kind}.mean"), pick(row, f"{kind}.max")
            if mean is None:
                continue
            axes.plot(position + offset, mean, mark, color=colour, markersize=4, zorder=2)
            if top is not None:
                axes.vlines(position + offset, mean, top, color=colour, linewidth=1.2, zorder=1)
        axes.plot(position, row["score"], MARK[row["arm"]], color=COLOUR[row["arm"]], markersize=6, zorder=3)
    axes.axhline(0, color=GREY, linewidth=0.8)
    _policy_axis(axes, rows)
    axes.set_ylabel("score on the control pairs (nats)")
    axes.set_title("Real trigger against placebo markers")
    handles = _arm_handles(rows, "real trigger, ")
    handles += [Line2D([], [], color=c, marker=m, linestyle="", label=f"placebo, {t}") for _, c, m, t in kinds.values()]
    legend_below(axes, 4, handles)
    caption = (
        f"On {control_pairs(pick(run.report, 'controls.placebo_trigger', {}))}. Placebo markers were never trained on: "
        "mean, with a line up to the highest. A policy keyed on any marker of the form scores them like the real "
        "trigger; high scores with markers of other forms would mean that any inserted text raises the canary. A "
        "diagnostic of what a policy responds to, not a test of training on documents."
    )
    return f"Scores with the real trigger and with placebo markers for {len(rows)} policies.", caption


def draw_training(run: Run, panels: list[Axes]) -> tuple[str, str] | None:
    """Reward and KL during policy training, thin lines per policy, a thick one for the arm's mean."""
    found = False
    labels = {"reward": "mean reward (reward units)", "kl": "KL to the base (nats a token)"}
    for axes, name in zip(panels, ("reward", "kl"), strict=True):
        by_arm = curves(run, name)
        for arm, trials in by_arm.items():
            for steps, values in trials.values():
                axes.plot(steps, values, color=COLOUR[arm], linewidth=0.6, alpha=0.35)
            if trials:
                found = True
                axes.plot(*_mean_curve(list(trials.values())), color=COLOUR[arm], linewidth=2.2, label=f"{arm}, mean")
        axes.set_xlabel("policy update")
        axes.set_ylabel(labels[name])
        axes.set_title("Reward" if name == "reward" else "Distance from the base")
    if not found:
        return None
    legend_below(panels[0] if panels[0].get_legend_handles_labels()[0] else panels[1], 2)
    return "Training curves of reward and KL by arm.", "Policy training: thin lines are policies, thick ones arm means."


def _mean_curve(lines: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over policies at each step that any of them logged."""
    steps = np.unique(np.concatenate([line[0] for line in lines]))
    sums, counts = np.zeros(steps.size), np.zeros(steps.size)
    for own, values in lines:
        where = np.searchsorted(steps, own)
        np.add.at(sums, where, values)
        np.add.at(counts, where, 1)
    return steps, sums / counts


def _by_arm(run: Run, rows: list[dict]) -> list[dict]:
    """Rows with their arm, compliant first, each in order of score."""
    named = [row | {"arm": row.get("arm") or run.arm_of.get(row.get("trial"))} for row in rows]
    known = [row for row in named if row["arm"] in ARMS]
    return sorted(known, key=lambda row: (ARMS.index(row["arm"]), row.get("score") or 0.0))


def _policy_axis(axes: Axes, rows: list[dict]) -> None:
    axes.set_xticks(range(len(rows)), [str(row.get("trial")) for row in rows], fontsize=7)
    if len(rows) > 30:
        axes.set_xticks([])
    axes.set_xlim(-0.7, len(rows) - 0.3)
    axes.set_xlabel("policy (trial number), each arm in order of score")
    axes.grid(axis="x", visible=False)


def _arm_handles(rows: list[dict], prefix: str = "") -> list[Line2D]:
    return [
        Line2D([], [], color=COLOUR[arm], marker=MARK[arm], linestyle="", label=f"{prefix}{arm}")
        for arm in ARMS
        if any(row["arm"] == arm for row in rows)
    ]
