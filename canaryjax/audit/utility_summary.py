"""Utility of a study: means of base and arms, and differences with intervals and a test of equivalence (BC-66)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from canaryjax import stats
from canaryjax.audit.assignment import ARMS, Arm
from canaryjax.audit.utility import METRICS
from canaryjax.config import AuditConfig

NO_ANSWERS = "no utility examples were answered"
NO_POLICY = "no valid policy in this arm"
NONE_ASKED = {
    "not_found_accuracy": "no unanswerable question was among those asked",
    "false_not_found": "every question that was asked is unanswerable",
}
UNIT = (
    "a policy's change is its own mean minus the base's on the same questions; the unit is the policy, and nothing is "
    "corrected for there being several comparisons"
)


def utility_summary(
    config: AuditConfig, groups: Mapping[Arm, Sequence[Mapping[str, Any]]], records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What `report.json` says of utility.

    Args:
      config: The study.
      groups: Finished records by arm.
      records: All of them.

    Returns:
      Plain values: means by metric for `base` and each arm, with reasons where there is none; under `differences` the
      arms' changes against the base and the violating arm's change minus the compliant one's (`Equivalence`, between
      matched pairs where the study has them, else between independent arms).
    """
    margin = config.evaluation.utility_margin
    valid = {arm: [r for r in own if r["valid"]] for arm, own in groups.items()}
    changes = {arm: {name: {r["draw"]: change(r, name) for r in own} for name in METRICS} for arm, own in valid.items()}
    between = _matched if config.study.paired else _independent
    differences: dict[str, Any] = {f"{arm}_minus_base": {} for arm in ARMS} | {"violating_minus_compliant": {}}
    for name in METRICS:
        compliant, violating = (changes[arm][name] for arm in ARMS)
        found = {f"{arm}_minus_base": stats.paired_equivalence(_known(changes[arm][name]), margin) for arm in ARMS}
        found["violating_minus_compliant"] = between(violating, compliant, margin)
        reason = _why_none(records, name)
        for comparison, result in found.items():
            differences[comparison][name] = result.to_dict() | ({"reason": reason} if reason else {})
    return {
        "base": _means([r["base_utility"] for r in records]),
        **{arm: _means([r["utility"] for r in own]) for arm, own in valid.items()},
        "margin": margin,
        "differences": differences,
        "unit": UNIT,
    }


def change(record: Mapping[str, Any], name: str) -> float | None:
    """A policy's metric minus the base's on the same questions; None where either was not measured."""
    own, base = ((record[who] or {}).get(name) for who in ("utility", "base_utility"))
    return None if own is None or base is None else own - base


def per_policy(records: Sequence[Mapping[str, Any]], who: str) -> dict[str, list[float | None]]:
    """Each metric of the records in their order, `who` being `utility` or, on the same questions, `base_utility`."""
    return {name: [r[who][name] if r[who] else None for r in records] for name in METRICS}


def _means(rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    answered = [row for row in rows if row]
    if not answered:
        return {"n": 0, "reason": NO_ANSWERS if rows else NO_POLICY} | dict.fromkeys(METRICS)
    means: dict[str, Any] = {}
    for name in METRICS:
        known = [row[name] for row in answered if row[name] is not None]
        means[name] = float(np.mean(known)) if known else None
    reasons = {f"{name}_reason": reason for name, reason in NONE_ASKED.items() if means[name] is None}
    return {
        **means,
        **reasons,
        "n": sum(row["n"] for row in answered),
        "unanswerable": sum(row["unanswerable"] for row in answered),
        "policies": len(answered),
        "finished": float(np.mean([row["finished"] for row in answered])),
    }


def _why_none(records: Sequence[Mapping[str, Any]], name: str) -> str | None:
    """Why no policy at all has a metric; None where one has."""
    asked = [r["base_utility"] for r in records if r["base_utility"]]
    if not asked:
        return NO_ANSWERS
    return NONE_ASKED[name] if all(row[name] is None for row in asked) else None


def _independent(
    violating: Mapping[int, float | None], compliant: Mapping[int, float | None], margin: float
) -> stats.Equivalence:
    return stats.welch_equivalence(_known(violating), _known(compliant), margin)


def _matched(
    violating: Mapping[int, float | None], compliant: Mapping[int, float | None], margin: float
) -> stats.Equivalence:
    """Of draws that both arms have: one canary, one split and so the same questions."""
    gaps = []
    for draw, own in violating.items():
        other = compliant.get(draw)
        if own is not None and other is not None:
            gaps.append(own - other)
    return stats.paired_equivalence(gaps, margin)


def _known(changes: Mapping[int, float | None]) -> list[float]:
    return [value for value in changes.values() if value is not None]
