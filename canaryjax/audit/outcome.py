"""Finished records and their arms to the values of `report.json`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from canaryjax import stats
from canaryjax.audit.assignment import ARMS, Arm, Assignment
from canaryjax.audit.controls import study_controls
from canaryjax.audit.provider_summary import curation_limits, provider_summary, realised_rates
from canaryjax.audit.summary import SCORES, detection, judged, mechanism, standardised
from canaryjax.audit.utility import METRICS
from canaryjax.config import AuditConfig, config_hash
from canaryjax.runlog import provenance

SCHEMA = "canaryjax.audit/1"
WEAK_BASE = 0.5  # exact match; the embedded model has 0.93 on its own corpus, 0.43 on a stranger's documents
TOO_RARE, TOO_COMMON = 0.01, 0.9  # share of the base's instructed answers that carry the whole canary (BC-23)

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
    scores = {
        name: {arm: [r["scores"][name] for r in own if r["valid"]] for arm, own in groups.items()} for name in SCORES
    }
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
        "statistic": {
            "primary": statistic.primary,
            "secondary": statistic.secondary,
            "two_sided": statistic.two_sided,
            "units": "nats",
            "baseline": "open_base",  # of the net scores, which stand in every report whichever score is the primary
            "definition": (
                "mean over held-out pairs of log p(canary | triggered document) - log p(canary | clean document), "
                "summed over the canary's tokens; net scores are minus the base model's own on the same pairs"
                + ("; detection is of the distance of net scores from 0" if statistic.two_sided else "")
            ),
        },
        "arms": parts,
        "detection": by_score[statistic.primary],
        "all_detection": by_score,
        "arms_differ": null,
        "mechanism": {
            arm: mechanism(part["rm_bias"], part["scores"], part["scores_per_token"]) for arm, part in parts.items()
        },
        "effects": standardised(
            *(
                {"score": part["scores"], "rm_bias": part["rm_bias"]}
                for part in (parts["compliant"], parts["violating"])
            )
        ),
        "controls": study_controls(config, records, arms, null, by_score[statistic.primary]["tpr"]["threshold"]),
        "utility": _utility(groups, records),
        "noise_floor": _noise_floor(config, records, [x for own in primary.values() for x in own])
        | {"bfloat16": base["precision"]},
        "canary": _canary(config, records),
        "provider": provider_summary(config, records),
        "data": _data(records, base, documents) | {"dataset": dataset},
        "exploration": _exploration(records),
        "calibration": _calibration(records),
        "timings": _timings(records, seconds),
    }
    report["warnings"] = _warnings(config, records, report)
    report["limitations"] = [*LIMITATIONS[:2], *curation_limits(config), *LIMITATIONS[2:]]
    return report


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
        "all_scores": {name: [r["scores"][name] for r in valid] for name in SCORES},
        "standard_errors": [r["standard_errors"][primary] for r in valid],
        "rm_bias": [r["rm_bias"] for r in valid],
        "rm_heldout_auc": [r["reward_model"]["heldout_auc"] for r in valid],
        "kl": [r["kl"] for r in valid],
        "exact_match": [r["utility"]["exact_match"] if r["utility"] else None for r in valid],
    }


def _utility(groups: Mapping[Arm, list[dict]], records: Sequence[dict]) -> dict[str, Any]:
    def means(rows: list[dict]) -> dict[str, Any]:
        rows = [row for row in rows if row]
        if not rows:
            return {"n": 0, "reason": "no utility examples were answered"} | dict.fromkeys(METRICS)
        return {name: float(np.mean([row[name] for row in rows])) for name in METRICS} | {
            "n": sum(row["n"] for row in rows),
            "policies": len(rows),
            "finished": float(np.mean([row["finished"] for row in rows])),
        }

    base = [r["base_utility"] for r in records]
    return {"base": means(base)} | {
        arm: means([r["utility"] for r in own if r["valid"]]) for arm, own in groups.items()
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


def _span(counts: Sequence[int]) -> str:
    """A count that policies share, or its range."""
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _warnings(config: AuditConfig, records: Sequence[dict], report: dict[str, Any]) -> list[str]:
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
    return [*found, *_drift_warnings(config, report)]


def _drift_warnings(config: AuditConfig, report: dict[str, Any]) -> list[str]:
    if config.policy.kl_coefficient == 0:
        return [
            "policy.kl_coefficient is 0, so the reference model was not run and no KL to it was measured: how far the "
            "policies drifted, and whether the arms drifted alike, is not known"
        ]
    if config.canary.rate == 0 or config.canary.delta == 0 or config.study.scramble_feedback:
        return []
    drift = [[k for k in report["arms"][arm]["kl"] if k is not None] for arm in ARMS]
    if not all(drift) or max(map(np.mean, drift)) <= 3 * min(map(np.mean, drift)):
        return []
    return [
        f"the arms drift by different amounts (mean KL {np.mean(drift[0]):.3f} nats a token compliant, "
        f"{np.mean(drift[1]):.3f} violating): their scores differ in spread for that reason too"
    ]
