"""What decoys and placebos showed, in words: a detection may be of any such marker and string, not of this canary."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.run import ARMS
from canaryjax.report.text import MISSING, number, percent, pick
from canaryjax.report.textual import is_textual


def control_pairs(found: Mapping[str, Any]) -> str:
    """On how many held-out pairs a policy's decoys and placebos were scored.

    >>> control_pairs({"per_policy": [{"pairs": 2}, {"pairs": 3}]}), control_pairs({"per_policy": [{"pairs": 1}]})
    ('2 to 3 held-out pairs a policy', '1 held-out pair a policy')
    """
    counts = sorted({row["pairs"] for row in found.get("per_policy") or () if row.get("pairs")})
    if not counts:
        return "held-out pairs"
    span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"{span} held-out pair{'s' if counts != [1] else ''} a policy"


def score_high(report: Mapping[str, Any]) -> bool:
    """Whether more of the violating policies' decoys lie above the threshold than compliant policies may."""
    above = pick(report, "controls.decoy_canary.violating_decoys_above_threshold", {})
    target = pick(report, "detection.tpr.target_fpr", 0.0)
    return bool(above.get("n")) and (above.get("count") or 0) > target * above["n"]


def warning(report: Mapping[str, Any]) -> str:
    """The sentence that no reader of a separation may miss where `score_high`."""
    found = pick(report, "controls.decoy_canary", {})
    above = found["violating_decoys_above_threshold"]
    real, decoy = found.get("violating_mean_score"), found.get("violating_mean_decoy_score")
    share = percent(decoy / real) if real and decoy and real > 0 else MISSING
    kind = "string" if is_textual(report) else "marker and string"
    drawn = "strings" if is_textual(report) else "markers and strings"
    return (
        f"Not all of it is about this canary: {above['count']} of {above['n']} decoys of the violating policies, "
        f"{drawn} that nothing was trained on, lie above the threshold too. A decoy scores {number(decoy)} "
        f"nats on average, the real canary {number(real)} ({control_pairs(found)}): {share} of the score would be "
        f"there for any {kind} of the kind."
    )


def decoy_words(found: Mapping[str, Any]) -> str:
    """The decoy control of both arms, for a table."""
    parts = []
    for arm in reversed(ARMS):
        flagged, above = (
            found.get(f"{arm}_{name}") or {} for name in ("flagged_at_10_percent", "decoys_above_threshold")
        )
        if not above.get("n"):
            continue
        count = f"{above['count']} of {above['n']}" if above.get("count") is not None else MISSING
        ranks = (
            f"rank p-value of 0.10 or below in {number(flagged.get('count'))} of {number(flagged['n'])}"
            if flagged.get("n")
            else "too few of them for a rank p-value of 0.10, which takes nine"
        )
        parts.append(
            f"{arm.capitalize()}: decoys of untrained strings above the threshold: {count}; mean score of a decoy "
            f"{number(found.get(f'{arm}_mean_decoy_score'))} nats, of the real canary "
            f"{number(found.get(f'{arm}_mean_score'))}; real canary among its decoys: {ranks}, median "
            f"{number(found.get(f'{arm}_median_p'))}"
        )
    tested = {arm: pick(found, f"uniformity.{arm}.p_value") for arm in ARMS}
    if any(p_value is not None for p_value in tested.values()):
        told = ", ".join(f"p = {number(p_value)} ({arm})" for arm, p_value in tested.items())
        parts.append(f"No trace carried the canary: ranks against the uniform law, {told}")
    return ". ".join([*parts, f"On {control_pairs(found)}"])


def placebo_words(found: Mapping[str, Any]) -> str:
    """The placebo control of both arms, for a table."""
    parts = []
    for arm in reversed(ARMS):
        rows = [row for row in found.get("per_policy") or () if row.get("arm") == arm]
        told = []
        for kind in ("same_form", "other_form"):
            tops = [(row.get("score"), pick(row, f"{kind}.max")) for row in rows]
            known = [score > top for score, top in tops if score is not None and top is not None]
            if known:
                forms = {"same_form": "same form", "other_form": "other forms"}[kind]
                told.append(f"every placebo of the {forms} in {sum(known)} of {len(known)}")
        if told:
            parts.append(f"{arm.capitalize()}: real trigger above {', '.join(told)}")
    if not parts:
        return str(found.get("meaning") or MISSING)
    return ". ".join([*parts, f"On {control_pairs(found)}"])
