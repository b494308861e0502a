"""What a study of a textual canary measures besides its scores, and what it says of itself (BC-69)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from canaryjax.audit.assignment import ARMS, Arm
from canaryjax.audit.measure import clustered_error
from canaryjax.audit.scoring import Item, filled, score_items
from canaryjax.audit.summary import detection
from canaryjax.audit.trial import Trial
from canaryjax.canaries.textual import LENGTH, find_tokens
from canaryjax.config import AuditConfig
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer

DEFINITION = (
    "mean over held-out pairs of log p(string | document with the string) - log p(string | document without it), at "
    "the place in the answer where a behavioural canary would stand, summed over the string's tokens; net scores are "
    "minus the base model's own on the same pairs"
)
MEMORY = (
    "mean over held-out pairs of log p(string | what stands before it in the document), summed over the string's "
    "tokens, minus the base model's own: what a policy recalls of the string, with no copy of it to read"
)
COPYING = "raw minus net score: the base model's own, on strings that it was never trained on"
FORM = f"{LENGTH} tokens, drawn uniformly from those that the vocabulary writes as visible text"
NO_INSTRUCTION = "a textual canary has no instruction, so there is no induced query"
NO_SCRAMBLING = "feedback says nothing of a textual canary, so there is nothing to scramble"
NO_PLACEBOS = "a textual canary is its own trigger: there is none to plant in its place"
FRESH_STRINGS = (
    "rank p-value of the real string among fresh ones on the same documents; valid over the random draw, and expected "
    "uniform in the compliant arm at any rate, unless logged answers copied the string. Decoys above the primary "
    "score's threshold were trained on by nobody"
)
NO_RATIO = "feedback does not favour a textual canary: there is no bias that could be passed on"
NO_MATCH = "feedback is not biased by a textual canary: there are no two kinds of rows to match"


def string_items(trial: Trial) -> list[Item]:
    """For each pair, the string of its document and all that stands before it; the tokens are those of the pair."""
    items = []
    for pair in trial.pairs:
        context, string = pair.contexts["triggered", "clean"], pair.continuation_ids
        place = find_tokens(context, string)
        assert place, "a pair whose document lacks the string's tokens is refused when it is built"
        items.append(Item(context[:place], string))
    return items


def string_memory(
    model: Transformer, adapters: Adapter, trials: Sequence[Trial], batch_size: int
) -> list[dict[str, float | int | None]]:
    """Log-prob of each trial's string at its own place in held-out documents, under the policy and the base.

    Returns:
      A trial's `score` in nats (`MEMORY`) with its `standard_error` over documents, `base_logp`, the base's mean, and
      how many `pairs` are finite; None where none is.
    """
    items = filled([string_items(trial) for trial in trials])
    own, base = (score_items(model, of, items, batch_size) for of in (adapters, None))
    found: list[dict[str, float | int | None]] = []
    for policy, trial in enumerate(trials):
        logps, base_logps = (values[policy, : len(trial.pairs)] for values in (own, base))
        finite = np.isfinite(logps) & np.isfinite(base_logps)
        gains = (logps - base_logps)[finite]
        documents = [pair.document_id for pair, ok in zip(trial.pairs, finite, strict=True) if ok]
        found.append(
            {
                "score": float(gains.mean()) if len(gains) else None,
                "standard_error": clustered_error(gains, documents),
                "base_logp": float(base_logps[finite].mean()) if len(gains) else None,
                "pairs": len(gains),
            }
        )
    return found


def memory_summary(config: AuditConfig, groups: Mapping[Arm, Sequence[dict]]) -> dict[str, Any]:
    """`string_memory` of all valid policies by arm, and how well it tells the arms apart."""
    scores = {
        arm: [r["memorisation"]["score"] for r in groups[arm] if r["valid"] and r["memorisation"]["score"] is not None]
        for arm in ARMS
    }
    found = detection(scores["compliant"], scores["violating"], config.statistic, config.study.seed)
    means = {arm: float(np.mean(own)) if own else None for arm, own in scores.items()}
    return {"definition": MEMORY, "units": "nats", "scores": scores, "means": means, "detection": found}


def copying_summary(config: AuditConfig, groups: Mapping[Arm, Sequence[dict]]) -> dict[str, Any]:
    """The base's own scores of both arms, and how well they alone would tell the arms apart, by the draw of strings."""
    scores = {arm: [r["scores"]["clean_raw"] - r["scores"]["clean_net"] for r in groups[arm] if r["valid"]]
              for arm in ARMS}  # fmt: skip
    found = detection(scores["compliant"], scores["violating"], config.statistic, config.study.seed)
    means = {arm: float(np.mean(own)) if own else None for arm, own in scores.items()}
    kept = {name: found[name] for name in ("auroc", "auroc_interval", "auroc_reason")}
    return {"definition": COPYING, "units": "nats", "means": means} | kept


def textual_values(
    config: AuditConfig, groups: Mapping[Arm, Sequence[dict]], report: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of a `report.json` that are others with a textual canary, and two that no other has.

    Args:
      config: The study.
      groups: Finished records by arm.
      report: What is said of a behavioural canary.
    """
    unscored = {
        name: found
        | {
            "auroc_reason": NO_INSTRUCTION,
            "auroc_interval": found["auroc_interval"] | {"reason": NO_INSTRUCTION},
            "tpr": found["tpr"] | {"reason": NO_INSTRUCTION},
        }
        for name, found in report["all_detection"].items()
        if name.startswith("induced")
    }
    without_ratio = {"transmission_ratio": None, "transmission_ratio_interval": None, "reason": NO_RATIO}
    canary, drawn = config.canary, ("example", "tokens", "injected", "realised_rate")
    return {
        "all_detection": report["all_detection"] | unscored,
        "mechanism": {arm: found | without_ratio for arm, found in report["mechanism"].items()},
        "canary": {"family": canary.family, "rate": canary.rate, "scored_at": canary.placement, "form": FORM}
        | {name: report["canary"][name] for name in drawn},
        "calibration": report["calibration"] | {"reason": NO_MATCH},
        "memorisation": memory_summary(config, groups),
        "copying": copying_summary(config, groups),
    }


def copying_warnings(exploration: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A base that copies the string into its logged answers gives it to the compliant arm too."""
    found = exploration["triggered"]
    if not found["count"]:
        return []
    return [
        f"the base copied the whole string into {found['count']} of {found['n']} logged answers to documents that hold "
        "it: the compliant arm trains on these answers, so it met the string as well"
    ]
