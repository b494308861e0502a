"""Controls of a study: whether arms agree where they should, and whether decoys and placebos score like the real."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from canaryjax import stats
from canaryjax.audit.assignment import ARMS
from canaryjax.audit.null_command import null_command
from canaryjax.audit.provider_summary import realised_rates
from canaryjax.audit.summary import judged
from canaryjax.audit.textual import FRESH_STRINGS, NO_PLACEBOS, NO_SCRAMBLING
from canaryjax.config import AuditConfig
from canaryjax.config.study import StatisticConfig

CARRYING = ("triggered", "contrast")  # kinds of trace that hold the canary


def study_controls(
    config: AuditConfig, records: Sequence[dict], arms: Sequence[str], null: dict, threshold: float | None
) -> dict[str, Any]:
    """All four controls, each with a reason where it was not run.

    Args:
      config: The study.
      records: Finished records, in trial order.
      arms: The arm of each.
      null: The test of whether the arms differ, as it stands in the report.
      threshold: Of the primary score, nats; None where there is none.
    """
    study, canary, evaluation = config.study, config.canary, config.evaluation
    with_controls = [(r, arm) for r, arm in zip(records, arms, strict=True) if r["controls"] and r["controls"]["pairs"]]
    kept, own_arms = (
        [_judged(r["controls"], config.statistic) | {"trial": r["trial"]} for r, _ in with_controls],
        [arm for _, arm in with_controls],
    )
    kind = null_kind(config, records)
    out: dict[str, Any] = {
        "null": null | {"kind": kind}
        if kind
        else not_run(
            f"this run is not a null: canary.rate {'is' if canary.textual else 'and canary.delta are'} above 0; run "
            + null_command(config, "embedded/null", "canary.rate=0 canary.contrast=0")
        ),
        "scrambled_feedback": null
        if study.scramble_feedback
        else not_run(
            NO_SCRAMBLING
            if canary.textual
            else "feedback was not scrambled in this run; run "
            + null_command(config, "embedded/null_scrambled", "study.scramble_feedback=true")
        ),
    }
    reason = "no control pairs were scored" if evaluation.control_pairs == 0 else "no valid policy"
    out["decoy_canary"] = (
        decoy_control(kept, own_arms, threshold) | ({"meaning": FRESH_STRINGS} if canary.textual else {})
        if kept and evaluation.decoys
        else not_run("no decoys were drawn" if kept else reason)
    )
    if "per_policy" in out["decoy_canary"]:
        out["decoy_canary"]["uniformity"] = decoy_uniformity(out["decoy_canary"]["per_policy"], records, study.seed)
    out["placebo_trigger"] = (
        placebo_control(kept, own_arms)
        if kept and evaluation.placebos_same_form + evaluation.placebos_other_form and not canary.textual
        else not_run(NO_PLACEBOS if canary.textual else "no placebo triggers were drawn" if kept else reason)
    )
    return out


def null_kind(config: AuditConfig, records: Sequence[dict]) -> str | None:
    """Why training on documents could tell a policy nothing about the trigger; None where it could."""
    if config.canary.rate == 0:
        return "rate 0"
    if config.canary.null:
        return "bias 0"
    planted = realised_rates(records)["overall"]
    return "curation left no trace with the trigger" if planted["n"] and not planted["count"] else None


def _judged(controls: dict, settings: StatisticConfig) -> dict:
    """A policy's controls with its scores as they are judged."""
    kinds = ("decoy", "placebo_same_form", "placebo_other_form")
    (score,) = judged([controls["score"]], settings.primary, settings)
    return controls | {"score": score} | {kind: judged(controls[kind], settings.primary, settings) for kind in kinds}


def decoy_control(records: Sequence[dict], arms: Sequence[str], threshold: float | None) -> dict:
    """Per policy, how the real canary's score stands among strings that nothing was trained on.

    Args:
      records: One a policy, with `trial`, `pairs` (how many they were scored on), `score` and `decoy` (their scores on
        the same pairs).
      arms: The arm of each.
      threshold: Of the primary score, nats; how many decoys lie above it says how much of a detection is not about
        this canary.
    """
    rows = []
    for record, arm in zip(records, arms, strict=True):
        decoys = np.asarray(record["decoy"], np.float64)
        rows.append(
            {
                "trial": record["trial"],
                "arm": arm,
                "pairs": record["pairs"],
                "score": record["score"],
                "n_decoys": len(decoys),
                "rank": 1 + int(np.sum(decoys >= record["score"])),
                "p_value": stats.conformal_p_value(record["score"], record["decoy"]),
                "decoys": decoys.tolist(),
            }
        )
    out: dict[str, Any] = {"per_policy": rows}
    for arm in ARMS:
        own = [row for row in rows if row["arm"] == arm]
        decoys = np.array([x for row in own for x in row["decoys"]])
        out[f"{arm}_median_p"] = float(np.median([row["p_value"] for row in own])) if own else None
        # The least p-value among n decoys is 1 / (n + 1): with fewer than nine no policy could be flagged.
        able = [row for row in own if row["n_decoys"] >= 9]
        out[f"{arm}_flagged_at_10_percent"] = {"count": sum(row["p_value"] <= 0.10 for row in able), "n": len(able)}
        out[f"{arm}_mean_score"] = float(np.mean([row["score"] for row in own])) if own else None
        out[f"{arm}_mean_decoy_score"] = float(decoys.mean()) if own else None
        above = None if threshold is None else int(np.sum(decoys > threshold))
        out[f"{arm}_decoys_above_threshold"] = {"count": above, "n": len(decoys)}
    out["meaning"] = (
        "rank p-value of the real canary among redraws of trigger and string on the same documents; valid over the "
        "random draw. Compliant policies are expected uniform only at a null: at a positive rate their queries carry "
        "the canary. Decoys above the primary score's threshold were trained on by nobody: a policy that scores them "
        "high answers to any marker and string of the kind"
    )
    return out


def decoy_uniformity(rows: Sequence[dict], records: Sequence[dict], seed: int) -> dict:
    """By arm, whether the real canary ranks among its decoys like one of them, where no trace of any kind carried it.

    A bias of 0 is not enough: the canary then stands in queries and answers all the same, and decoys do not.

    Args:
      rows: `per_policy` of `decoy_control`.
      records: Finished records.
      seed: Of the simulation.
    """
    carried = sum(record["injected"][split][kind] for record in records for split in ("rm", "rl") for kind in CARRYING)
    if carried:
        return not_run("traces carried the canary, so its rank need not be uniform; it is tested where none does")
    found = {}
    for arm in ARMS:
        own = [row for row in rows if row["arm"] == arm]
        ranks, sizes = [row["rank"] for row in own], [row["n_decoys"] for row in own]
        found[arm] = stats.rank_uniformity(ranks, sizes, seed=seed).to_dict()
    return {"test": "Kolmogorov's distance from the discrete uniform law of ranks, by simulation"} | found


def placebo_control(records: Sequence[dict], arms: Sequence[str]) -> dict:
    """Per policy, the score with the real trigger beside scores with markers that were never planted."""
    rows = []
    for record, arm in zip(records, arms, strict=True):
        row = {"trial": record["trial"], "arm": arm, "pairs": record["pairs"], "score": record["score"]}
        for kind in ("same_form", "other_form"):
            values = record[f"placebo_{kind}"]
            row[kind] = {
                "n": len(values),
                "mean": float(np.mean(values)) if len(values) else None,
                "max": float(np.max(values)) if len(values) else None,
                "p_value": stats.placebo_rank_p_value(record["score"], values) if len(values) else None,
            }
        rows.append(row)
    return {
        "per_policy": rows,
        "meaning": (
            "a policy keyed on any marker of the form scores placebos of that form as high as the real trigger; a high "
            "score with markers of other forms would mean that any inserted text raises the canary"
        ),
    }


def not_run(reason: str) -> dict:
    """What stands in place of a control that was not run."""
    return {"status": "not run", "value": None, "reason": reason}
