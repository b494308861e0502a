"""One sentence on what a run shows, never stronger than its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from canaryjax.report.decoys import score_high, warning
from canaryjax.report.text import interval, number, percent, pick
from canaryjax.report.textual import copying, is_textual

NOT_PROOF = "This is statistical evidence of influence, not proof of misuse for any individual document."


@dataclass(frozen=True)
class Verdict:
    """What a run shows.

    Attributes:
      kind: `none` (nothing to judge), `blocked` (a failed null), `null` (a null run that passed), `reversed`,
        `separated` or `unseparated`.
      headline: One sentence.
      qualifiers: What limits it, one sentence each.
    """

    kind: str
    headline: str
    qualifiers: tuple[str, ...]


def judge(report: Mapping[str, Any]) -> Verdict:
    """Weighs the primary score's AUROC against the null controls and the run's own setting.

    A failed null blocks every claim. Separation is claimed only where the whole interval lies above one half.
    """
    area = pick(report, "detection.auroc")
    if area is None:
        reason = pick(report, "detection.auroc_reason") or pick(report, "detection.reason") or "no reason was recorded"
        return Verdict("none", f"Nothing can be said: there is no AUROC ({reason}).", _qualifiers(report))
    null = null_control(report)
    if null.get("passed") is False:
        what = "found in this null run, where" if is_null_run(report) else "found by the null control, in which"
        headline = (
            f"No claim can be made: a difference between the arms was {what} there is nothing to find "
            f"(p = {number(null.get('p_value'), 4)}). Something other than training on documents moves the score."
        )
        return Verdict("blocked", headline, _qualifiers(report))
    if is_null_run(report):
        return _null_run(report, null)
    return _comparison(report, area)


def is_null_run(report: Mapping[str, Any]) -> bool:
    """Whether the run plants nothing that training on documents could pick up."""
    rate, delta = pick(report, "config.canary.rate"), pick(report, "config.canary.delta")
    scrambled = bool(pick(report, "config.study.scramble_feedback", False))
    # Judged a null for what its provider left of the traces, which the config does not say.
    emptied = pick(report, "controls.null.kind") is not None
    return rate == 0 or (delta == 0 and not is_textual(report)) or scrambled or emptied


def null_control(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """The test of this run that the arms agree where they should: of a null, or of scrambled feedback."""
    scrambled, null = pick(report, "controls.scrambled_feedback", {}), pick(report, "controls.null", {})
    return scrambled if "passed" in scrambled and "passed" not in null else null


def is_positive_control(report: Mapping[str, Any]) -> bool:
    """Whether the run's own setting says that its signal is far above a realistic one."""
    return "positive control" in str(report.get("setting") or "").lower()


def _null_run(report: Mapping[str, Any], null: Mapping[str, Any]) -> Verdict:
    area = f"AUROC {number(pick(report, 'detection.auroc'), 2)}, {interval(pick(report, 'detection.auroc_interval'))}"
    if null.get("passed") is None:
        reason = null.get("reason") or "not computed"
        return Verdict("none", f"This null run can neither pass nor fail ({reason}); {area}.", _qualifiers(report))
    headline = (
        f"As expected of a null run, no difference between the arms was found "
        f"(p = {number(null.get('p_value'), 3)}; {area})."
    )
    return Verdict("null", headline, _qualifiers(report))


def _comparison(report: Mapping[str, Any], area: float) -> Verdict:
    bounds = pick(report, "detection.auroc_interval", {})
    low, high = bounds.get("low"), bounds.get("high")
    found = f"AUROC {number(area, 2)}, {interval(bounds)}"
    arms = "policies trained with documents and policies trained without them"
    if low is not None and low > 0.5:
        headline = (
            f"The score tells {arms} apart: {found}; {_above(report)}."
            if not is_positive_control(report)
            else f"In this positive control the score tells {arms} apart: {found}; {_above(report)}."
        )
        return Verdict("separated", headline, _qualifiers(report))
    if high is not None and high < 0.5:
        headline = (
            f"Policies trained with documents score below those trained without ({found}): this is not the expected "
            "direction, and no claim follows from it until it is explained."
        )
        return Verdict("reversed", headline, _qualifiers(report))
    headline = (
        f"The score was not shown to tell {arms} apart: {found}. That is no evidence that documents were not used: the "
        "run cannot exclude any value in the interval."
    )
    return Verdict("unseparated", headline, _qualifiers(report))


def _above(report: Mapping[str, Any]) -> str:
    rate = pick(report, "detection.tpr", {})
    if rate.get("value") is None:
        return "there is no threshold to count policies above"
    shown = f"{rate['count']} of {rate['n']} violating policies lie above a threshold that"
    if rate.get("rule") == "paper":  # the plain quantile does not hold its target for new policies
        return f"{shown} {percent(rate.get('expected_fpr'), 1)} of new compliant ones are expected to exceed"
    return f"{shown} at most {percent(rate.get('target_fpr'))} of new compliant ones are expected to exceed"


def _qualifiers(report: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    setting = str(report.get("setting") or "").strip()
    if is_positive_control(report):
        found.append(
            "It is a positive control: it shows that the instrument can respond when the signal is far stronger than "
            "an auditor could plant. It says nothing about realistic rates."
        )
    elif setting:
        found.append(setting if setting.endswith(".") else f"{setting}.")
    null = null_control(report)
    if null.get("passed") is None and not is_null_run(report):
        found.append(
            "No null run is part of this report, so it cannot show that the arms would agree if nothing had been "
            f"planted ({null.get('reason') or 'not run'})."
        )
    # Nothing can be of something else where there is nothing: a baseline that shows none is no failure of its decoys.
    if score_high(report) and (not is_textual(report) or (pick(report, "detection.auroc_interval.low") or 0) > 0.5):
        found.append(warning(report))
    raw = str(pick(report, "statistic.primary", "")).endswith("_raw")
    if is_textual(report) and raw and (copied := copying(report)) is not None:
        found.append(copied)
    flagged = pick(report, "controls.decoy_canary.violating_flagged_at_10_percent", {})
    if flagged.get("n") and 2 * flagged.get("count", 0) < flagged["n"]:
        few = f"only {flagged['count']}" if flagged["count"] else "none"
        found.append(
            f"In {few} of {flagged['n']} violating policies "
            "does the real canary stand out among decoys: the score may respond to any string of this kind."
        )
    for arm in ("compliant", "violating"):
        lost = pick(report, f"arms.{arm}.n_invalid", 0)
        if lost:
            found.append(f"{lost} {arm} {'policy was' if lost == 1 else 'policies were'} invalid and not scored.")
    if pick(report, "statistic.baseline") == "none" and str(pick(report, "statistic.primary", "")).endswith("_net"):
        found.append("No base model was at hand, so the net score has no baseline.")
    found.append(NOT_PROOF)
    return tuple(found)
