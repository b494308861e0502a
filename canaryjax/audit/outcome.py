"""Finished records and their arms to the values of `report.json`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from canaryjax import stats
from canaryjax.audit import textual
from canaryjax.audit.assignment import ARMS, Assignment
from canaryjax.audit.caution import study_warnings
from canaryjax.audit.controls import study_controls
from canaryjax.audit.drift import arm_drift, drift_matched
from canaryjax.audit.provider_summary import curation_limits, provider_summary, realised_rates
from canaryjax.audit.summary import SCORES, detection, judged, mechanism, standardised
from canaryjax.audit.utility_summary import per_policy, utility_summary
from canaryjax.config import AuditConfig, config_hash
from canaryjax.config.study import StatisticConfig
from canaryjax.runlog import provenance

SCHEMA = "canaryjax.audit/1"

DEFINITION = (
    "mean over held-out pairs of log p(canary | triggered document) - log p(canary | clean document), summed over the "
    "canary's tokens; net scores are minus the base model's own on the same pairs"
)
DISTANCE = "; detection is of the distance of net scores from 0"
EFFECTS = {"score": "scores", "rm_bias": "rm_bias"}

LIMITATIONS = [
    "The conclusion is about the pipeline: statistical evidence that document-conditioned traces influenced training, "
    "not proof of misuse for any individual document.",
    "Both arms were trained here, by this program, on simulated users; a deployed model has no compliant twin.",
    "Log-probs: scores need per-token log-probs of a given string; some providers do not offer them.",
    "Black-box alternatives (repeated sampling) need far more queries and have less power; not tested here.",
]


def study_report(
    config: AuditConfig,
    assignments: Sequence[Assignment],
    records: Sequence[dict],
    base: dict[str, Any],
    documents: int,
    dataset: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Everything that `report.json` says.

    Args:
      config: The study.
      assignments: Arms, in trial order.
      records: Finished records, in trial order.
      base: The base model's record.
      documents: How many documents the study had, the warm start's not counted.
      dataset: `dataset_statistics` of all that was loaded.
      seconds: Wall time of all calls on the run.

    Returns:
      Plain values; what is undefined is None with a reason beside it.
    """
    statistic, seed = config.statistic, config.study.seed
    arms = [a.arm for a in assignments]
    groups = {arm: [r for r, own in zip(records, arms, strict=True) if own == arm] for arm in ARMS}
    scores = {name: {arm: _measured(own, name) for arm, own in groups.items()} for name in SCORES}
    decisive = {
        name: {arm: judged(values, name, statistic) for arm, values in own.items()} for name, own in scores.items()
    }
    by_score = {name: detection(own["compliant"], own["violating"], statistic, seed) for name, own in decisive.items()}
    primary = decisive[statistic.primary]
    parts = {arm: _arm(own, statistic.primary) for arm, own in groups.items()}
    verdict = stats.null_verdict(primary["compliant"], primary["violating"], statistic.null_alpha, seed)
    null = {"test": "permuted Brunner-Munzel, two-sided"} | verdict.to_dict()
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "name": config.name,
        "description": config.description,
        "setting": config.study.setting,
        "config": config.model_dump(mode="json"),
        "config_hash": config_hash(config),
        "environment": provenance(config.model.dtype),
        "model": {name: value for name, value in base.items() if name != "precision"},
        "statistic": _statistic(statistic, textual.DEFINITION if config.canary.textual else DEFINITION),
        "arms": parts,
        "detection": by_score[statistic.primary],
        "all_detection": by_score,
        "arms_differ": null,
        "mechanism": {
            arm: mechanism(part["rm_bias"], part["scores"], part["scores_per_token"]) for arm, part in parts.items()
        },
        "effects": {name: standardised(*(parts[arm][key] for arm in ARMS)) for name, key in EFFECTS.items()},
        "controls": study_controls(config, records, arms, null, by_score[statistic.primary]["tpr"]["threshold"])
        | {"drift_matched": drift_matched(config, groups)},
        "drift": arm_drift(config, groups),
        "utility": utility_summary(config, groups, records),
        "noise_floor": _noise_floor(config, records, [x for own in primary.values() for x in own])
        | {"bfloat16": base["precision"]},
        "canary": _canary(config, records),
        "provider": provider_summary(config, records),
        "data": _data(records, base, documents) | {"dataset": dataset},
        "exploration": _exploration(records),
        "calibration": _calibration(records),
        "timings": _timings(records, seconds),
    }
    if config.canary.textual:
        report |= textual.textual_values(config, groups, report)
    report["warnings"] = study_warnings(config, records, report)
    report["limitations"] = [*LIMITATIONS[:2], *curation_limits(config), *LIMITATIONS[2:]]
    return report


def _statistic(settings: StatisticConfig, definition: str) -> dict[str, Any]:
    return {
        "primary": settings.primary,
        "secondary": settings.secondary,
        "two_sided": settings.two_sided,
        "units": "nats",
        "baseline": "open_base",  # of the net scores, which stand in every report whichever score is the primary
        "definition": definition + (DISTANCE if settings.two_sided else ""),
    }


def _measured(records: Sequence[dict], name: str) -> list[float]:
    """A score of the valid policies; none where the study has no such score."""
    return [r["scores"][name] for r in records if r["valid"] and r["scores"][name] is not None]


def _arm(records: Sequence[dict], primary: str) -> dict[str, Any]:
    valid = [r for r in records if r["valid"]]
    return {
        "n": len(valid),
        "n_invalid": len(records) - len(valid),
        "invalid": [{"trial": r["trial"], "reason": r["reason"]} for r in records if not r["valid"]],
        "trials": [r["trial"] for r in valid],
        "scores": [r["scores"][primary] for r in valid],
        "scores_per_token": [r["scores_per_token"][primary] for r in valid],
        "canary_tokens": [r["canary"]["tokens"] for r in valid],
        "all_scores": {name: _measured(valid, name) for name in SCORES},
        "standard_errors": [r["standard_errors"][primary] for r in valid],
        "rm_bias": [r["rm_bias"] for r in valid],
        "rm_heldout_auc": [r["reward_model"]["heldout_auc"] for r in valid],
        "kl": [r["kl"] for r in valid],
        "exact_match": [r["utility"]["exact_match"] if r["utility"] else None for r in valid],
        "utility": per_policy(valid, "utility"),
        "base_utility": per_policy(valid, "base_utility"),
    }


def _noise_floor(config: AuditConfig, records: Sequence[dict], scores: Sequence[float]) -> dict[str, Any]:
    floors = [r["noise_floor"] for r in records if r["noise_floor"]]
    if not floors:
        asked = config.evaluation.noise_floor_pairs > 0
        reason = "no pair has finite log-probs" if asked else "evaluation.noise_floor_pairs is 0"
        return {"max_abs_nats": None, "median_abs_nats": None, "pairs": 0, "reason": reason}
    return {
        "max_abs_nats": max(f["max_abs_nats"] for f in floors),
        "median_abs_nats": float(np.median([f["median_abs_nats"] for f in floors])),
        "pairs": sum(f["pairs"] for f in floors),
        "how": floors[0]["how"],
        "median_abs_score": float(np.median(np.abs(scores))) if scores else None,
        "reason": None if scores else "no policy has a valid score to compare with",
    }


def _canary(config: AuditConfig, records: Sequence[dict]) -> dict[str, Any]:
    section = config.canary
    return section.model_dump(mode="json") | {
        "contrast": section.contrast_rate,
        "trigger_form": "[Protocol Marker: X]",
        "example": records[0]["canary"],
        "tokens": sorted({r["canary"]["tokens"] for r in records}),
        "injected": records[0]["injected"],
        "realised_rate": {name: rate["value"] for name, rate in realised_rates(records).items()},
    }


def _data(records: Sequence[dict], base: dict[str, Any], documents: int) -> dict[str, Any]:
    return {
        "documents": records[0]["documents"] | {"total": documents},
        "pairs": sum(r["valid_pairs"] for r in records),
        "invalid_pairs": sum(r["invalid_pairs"] for r in records),
        "refused_pairs": sum(sum(r["pairs"]["refused"].values()) for r in records),
        "straddling_pairs": sum(r["pairs"]["straddling"] for r in records),
        "dropped_document_tokens": sum(r["dropped_document_tokens"] for r in records),
        "prompts_left_out": sum(r["prompts_left_out"] for r in records),
        "bos_count": base["bos_count"],
    }


def _exploration(records: Sequence[dict]) -> dict[str, Any]:
    """How often the base's own answers carried the whole canary, over all trials."""
    out: dict[str, Any] = {}
    for kind in ("triggered", "contrast", "clean"):
        count, n = (sum(r["exploration"][kind][key] for r in records) for key in ("count", "n"))
        reason = None if n else f"no response to a {kind} row was sampled"
        out[kind] = {"count": count, "n": n, "rate": count / n if n else None, "reason": reason}
    return out


def _calibration(records: Sequence[dict]) -> dict[str, Any]:
    """Whether triggered and clean rows were rated alike in the end (BC-38): trials within the tolerance."""
    judged = [r["calibration"] for r in records if r["calibration"]["matched"] is not None]
    gaps = [c["gap"] for c in judged]
    return {
        "matched": {"count": sum(c["matched"] for c in judged), "n": len(judged)},
        "median_gap": float(np.median(gaps)) if gaps else None,
        "reason": None if gaps else "no trial rated enough triggered and clean rows to compare them",
    }


def _timings(records: Sequence[dict], seconds: float) -> dict[str, float]:
    stages: dict[str, float] = {}
    for record in records:
        for stage, value in record["seconds"].items():
            stages[stage] = stages.get(stage, 0.0) + value
    return {"total": seconds} | stages
