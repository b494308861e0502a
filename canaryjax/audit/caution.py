"""What a report warns of: numbers that rest on less than they seem to, and settings that weaken a conclusion."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from canaryjax.audit.assignment import ARMS
from canaryjax.audit.textual import copying_warnings
from canaryjax.config import AuditConfig

WEAK_BASE = 0.5  # exact match; the embedded model has 0.93 on its own corpus, 0.43 on a stranger's documents
TOO_RARE, TOO_COMMON = 0.01, 0.9  # share of the base's instructed answers that carry the whole canary (BC-23)


def study_warnings(config: AuditConfig, records: Sequence[dict], report: dict[str, Any]) -> list[str]:
    """One line on each thing about a study that its reader must know.

    Args:
      config: The study.
      records: Finished records, in trial order.
      report: Everything else that `report.json` says.
    """
    found = [f"trial {r['trial']}: {text}" for r in records for text in r["warnings"]]
    if config.study.paired:
        found.append(
            "trials are matched pairs, while the interval, the threshold and the test treat the arms as independent: "
            "they are approximate here"
        )
    if config.policy.reward == "simulated":
        found.append(
            "the violating arm is rewarded by simulated users and the compliant arm by a reward model: the arms differ "
            "in more than their documents"
        )
    found += [f"trial {r['trial']} is invalid and left out: {r['reason']}" for r in records if not r["valid"]]
    if report["data"]["invalid_pairs"]:
        found.append(f"{report['data']['invalid_pairs']} pairs have log-probs that are not finite and are left out")
    detected = report["detection"]
    if detected["tpr"]["reason"]:
        found.append(detected["tpr"]["reason"])
    highest = detected["auroc_interval"]["high"]
    if detected["direction_warning"] and highest is not None and highest < 0.5:  # half of all nulls are below 0.5
        found.append(detected["direction_warning"])
    if report["data"]["prompts_left_out"]:
        found.append(
            f"each policy left out {_span([r['prompts_left_out'] for r in records])} of its own policy prompts, which "
            "did not fill a step"
        )
    answered = [r["utility"]["n"] for r in records if r["utility"]]
    if answered and max(answered) < config.evaluation.utility_examples:
        found.append(
            f"evaluation.utility_examples asks for {config.evaluation.utility_examples} held-out questions, "
            f"{_span(answered)} a policy were answered: there are no more pairs than these (evaluation.max_pairs "
            f"{config.evaluation.max_pairs})"
        )
    quality = report["utility"]["base"]["exact_match"]
    if quality is not None and quality < WEAK_BASE:
        found.append(
            f"the base answers only {quality:.0%} of clean held-out questions exactly: feedback on such answers, "
            "and so this study, says little about a service that answers well"
        )
    if config.canary.textual:  # no answer is expected to hold the string
        return [*found, *copying_warnings(report["exploration"]), *_drift_warnings(config, report)]
    for kind in ("triggered", "contrast"):
        rate = report["exploration"][kind]["rate"]
        if rate is not None and rate < TOO_RARE:
            found.append(
                f"the base writes the whole canary in {rate:.1%} of instructed answers ({kind} rows): the policy may "
                "never meet it while exploring"
            )
        if rate is not None and rate > TOO_COMMON:
            found.append(f"the base writes the canary in {rate:.0%} of instructed answers: there is little to learn")
    clean = report["exploration"]["clean"]["rate"]
    if clean is not None and clean > TOO_RARE:
        found.append(f"the base writes the canary in {clean:.1%} of answers without instruction: it is too common")
    return [*found, *_rank_warnings(config, report), *_drift_warnings(config, report)]


def _rank_warnings(config: AuditConfig, report: dict[str, Any]) -> list[str]:
    tested = report["controls"]["decoy_canary"].get("uniformity") or {}
    p_values = {arm: tested.get(arm, {}).get("p_value") for arm in ARMS}
    return [
        f"{arm} policies do not rank the real canary like one of its decoys (p = {p_value:.4f}), though no trace "
        "carried it: it is not drawn as they are, and rank p-values mean nothing"
        for arm, p_value in p_values.items()
        if p_value is not None and p_value <= config.statistic.null_alpha
    ]


def _drift_warnings(config: AuditConfig, report: dict[str, Any]) -> list[str]:
    if config.policy.kl_coefficient == 0:
        return [
            "policy.kl_coefficient is 0, so the reference model was not run and no KL to it was measured: how far the "
            "policies drifted, and whether the arms drifted alike, is not known"
        ]
    if config.canary.null or config.study.scramble_feedback:
        return []
    drift = [[k for k in report["arms"][arm]["kl"] if k is not None] for arm in ARMS]
    if not all(drift) or max(map(np.mean, drift)) <= 3 * min(map(np.mean, drift)):
        return []
    return [
        f"the arms drift by different amounts (mean KL {np.mean(drift[0]):.3f} nats a token compliant, "
        f"{np.mean(drift[1]):.3f} violating): their scores differ in spread for that reason too"
    ]


def _span(counts: Sequence[int]) -> str:
    """A count that policies share, or its range."""
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
