"""How far the arms drifted from the base, and the arms compared once more at equal drift."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from canaryjax import stats
from canaryjax.audit.assignment import ARMS, Arm
from canaryjax.audit.controls import not_run
from canaryjax.audit.summary import detection, judged
from canaryjax.config import AuditConfig

USUAL_CALIPER = 0.2  # pooled standard deviations (Austin, Pharmaceutical Statistics 10, 2011)
LEAST_PAIRS = 6  # with five, no assignment of signs has a two-sided p-value below 2 / 2^5 = 0.06
UNMEASURED = "policy.kl_coefficient is 0, so no KL to the base was measured"
MEANING = (
    "pairs of one policy an arm that ended about equally far from the base, in log KL. Drift is itself an outcome of "
    "training: this asks whether drift alone explains a difference of the arms, and does not make them alike in "
    "anything else. The AUROC's interval takes matched arms as independent, the sign-flip test takes the pairs"
)


def arm_drift(config: AuditConfig, groups: Mapping[Arm, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """KL to the base by arm, nats a token: mean over valid policies with its 95 % interval, or why there is none."""
    found: dict[str, Any] = {}
    for arm, own in groups.items():
        known = [r["kl"] for r in own if r["valid"] and r["kl"] is not None]
        reason = UNMEASURED if config.policy.kl_coefficient == 0 else "no valid policy of this arm has a KL"
        found[arm] = {
            "n": len(known),
            "kl": float(np.mean(known)) if known else None,
            "kl_interval": stats.mean_interval(known, 0.95).to_dict() if known else None,
            "reason": None if known else reason,
        }
    return found


def drift_matched(config: AuditConfig, groups: Mapping[Arm, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The arms' primary scores over policies matched one to one by log KL, where the config asks for it.

    Args:
      config: The study; `statistic.match_drift` is the caliper.
      groups: Finished records by arm.

    Returns:
      Plain values: `pairs` of trials (compliant, violating), KL before and after, AUROC with its interval, and the
      sign-flip test of the pairs' differences; None with a reason where fewer than `LEAST_PAIRS` were found.
    """
    caliper, primary = config.statistic.match_drift, config.statistic.primary
    if caliper is None:
        return not_run(
            f"the arms were not matched by drift; run this config again with statistic.match_drift={USUAL_CALIPER}"
        )
    if config.policy.kl_coefficient == 0:
        return not_run(f"{UNMEASURED}; the arms cannot be matched by it")
    valid = {arm: [r for r in own if r["valid"]] for arm, own in groups.items()}
    # The logarithm of 0 or less is none: a policy that did not move at all, or an estimate that rounding took there.
    usable = {arm: [r for r in own if (r["kl"] or 0) > 0] for arm, own in valid.items()}
    kl = {arm: np.array([r["kl"] for r in own]) for arm, own in usable.items()}
    match = stats.caliper_match(np.log(kl["compliant"]), np.log(kl["violating"]), caliper)
    sides: dict[Arm, list[int]] = {arm: [pair[side] for pair in match.pairs] for side, arm in enumerate(ARMS)}
    matched = {arm: [usable[arm][i] for i in sides[arm]] for arm in ARMS}
    compliant, violating = (
        judged([r["scores"][primary] for r in matched[arm]], primary, config.statistic) for arm in ARMS
    )
    reason = match.reason or _too_few(len(match.pairs), usable)
    enough = reason is None
    area = detection(compliant, violating, config.statistic, config.study.seed) if enough else {}
    gaps = [b - a for a, b in zip(compliant, violating, strict=True)]
    return {
        "caliper": caliper,
        "width": match.width,
        "pooled_sd": match.pooled_sd,
        "n": len(match.pairs),
        "least": LEAST_PAIRS,
        "pairs": [[r["trial"] for r in pair] for pair in zip(*(matched[arm] for arm in ARMS), strict=True)],
        "unmatched": {arm: len(usable[arm]) - len(matched[arm]) for arm in ARMS},
        "without_kl": {arm: len(valid[arm]) - len(usable[arm]) for arm in ARMS},
        "kl": {arm: {"before": _mean(kl[arm]), "after": _mean(kl[arm][sides[arm]])} for arm in ARMS},
        "standardised_difference": {"before": match.gap_before, "after": match.gap_after},
        "auroc": area.get("auroc"),
        "auroc_interval": area.get("auroc_interval"),
        "sign_flip": stats.sign_flip_test(gaps, seed=config.study.seed).to_dict() if enough else None,
        "reason": reason,
        "meaning": MEANING,
    }


def _too_few(pairs: int, usable: Mapping[Arm, Sequence[Any]]) -> str | None:
    if pairs >= LEAST_PAIRS:
        return None
    sizes = " and ".join(f"{len(usable[arm])} {arm}" for arm in ARMS)
    return (
        f"{pairs} pair{'' if pairs == 1 else 's'} of {sizes} policies within the caliper, and {LEAST_PAIRS} are needed "
        "for a test at 5 %: more policies, or arms that overlap more in drift"
    )


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
