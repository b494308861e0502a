"""A chunk of trials of one arm, from log to finished records: the expensive part of a study."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.audit.assignment import Arm
from canaryjax.audit.base import Base
from canaryjax.audit.measure import (
    CellScores,
    control_scores,
    noise_floor,
    plan_cells,
    policy_scores,
    reward_bias,
    score_cells,
)
from canaryjax.audit.service_log import ServiceLog, simulate_log
from canaryjax.audit.training import (
    SimulatedReward,
    policy_prompts,
    policy_settings,
    reward_prompt_length,
    reward_rows,
    reward_settings,
    trial_keys,
)
from canaryjax.audit.trial import Trial
from canaryjax.audit.utility import measure_utility
from canaryjax.config import AuditConfig
from canaryjax.data.buckets import pad_rows
from canaryjax.models.lora import Adapter
from canaryjax.rl.metrics import Log
from canaryjax.rl.reward_training import train_reward_models
from canaryjax.rl.train_step import PromptRows
from canaryjax.rl.trainer import train_policies


@dataclass(frozen=True, eq=False)
class Finished:
    """What a trial leaves behind.

    Attributes:
      record: Plain values: scores, controls, utility, training; no arm.
      pair_rows: Rows of `pairs.parquet`.
      adapter: The policy.
    """

    record: dict[str, Any]
    pair_rows: list[dict]
    adapter: Adapter


class Stopwatch:
    """Seconds by stage, shared evenly by the policies of a chunk."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Books the time since the last lap to a stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now


class TrainingLog:
    """Passes training metrics on under trial numbers, and keeps what a record sums up."""

    def __init__(self, trials: Sequence[Trial], log: Log):
        self._trials, self._log = [trial.trial for trial in trials], log
        self.rows: list[list[dict]] = [[] for _ in trials]

    def __call__(self, row: dict) -> None:
        policy = row["policy"]
        self.rows[policy].append(row)
        self._log({"trial": self._trials[policy]} | {k: v for k, v in row.items() if k != "policy"})

    def final(self, policy: int, name: str) -> float | None:
        """Mean of a policy metric over the last quarter of its steps."""
        steps = [row.get(name) for row in self.rows[policy] if row["stage"] == "grpo"]
        values = [v for v in steps[-max(1, len(steps) // 4) :] if v is not None]
        return float(np.mean(values)) if values else None


def run_chunk(
    config: AuditConfig, base: Base, arm: Arm, trials: Sequence[Trial], lengths: dict[Arm, int], log: Log
) -> list[Finished]:
    """Trains and measures the policies of a chunk together.

    Args:
      config: The study.
      base: The base model.
      arm: Of all the trials.
      trials: The chunk.
      lengths: Padded prompt lengths of the study, by arm.
      log: Called with training metrics, one record a logged step and policy.

    Returns:
      One result a trial, in order.
    """
    watch = Stopwatch()
    training = TrainingLog(trials, log)
    with_document = lengths["violating"]
    logs = [simulate_log(config, trial, base.params, base.tokenizer, with_document) for trial in trials]
    watch.lap("logged responses")
    rm_length = reward_prompt_length(config, arm, lengths)
    rows = reward_rows(config, arm, trials, logs, base.tokenizer, rm_length)
    rewards, rm_result = train_reward_models(
        base.params, rows, reward_settings(config), trial_keys(config, "reward model", trials), training
    )
    watch.lap("reward models")
    prompts = policy_prompts(config, arm, trials, base.tokenizer, lengths[arm])
    padded = [pad_rows(own.ids, lengths[arm], 0) for own in prompts]
    adapters, rl_result = train_policies(
        base.params,
        _reward_source(config, arm, trials, base, rewards),
        PromptRows(*(jnp.asarray(parts) for parts in zip(*padded, strict=True))),
        policy_settings(config),
        trial_keys(config, "policy", trials),
        training,
        eos_ids=base.tokenizer.eos_ids,
        log_every=config.output.log_every,
    )
    watch.lap("policies")
    scored = score_cells(base.params, adapters, [plan_cells(t, config) for t in trials], config.evaluation.batch_size)
    watch.lap("scores")
    floors = noise_floor(base.params, adapters, [s.cells for s in scored], config)
    biases = reward_bias(config, base.params, rewards, trials, base.tokenizer)
    watch.lap("noise floor and reward bias")
    utility = measure_utility(config, base.params, adapters, trials, base.tokenizer, with_document)
    base_utility = measure_utility(config, base.params, None, trials, base.tokenizer, with_document)
    watch.lap("utility")
    finished = []
    for p, trial in enumerate(trials):
        valid = bool(rm_result["valid"][p]) and bool(rl_result["valid"][p])
        record = _record(config, trial, scored[p], valid)
        record |= {
            "noise_floor": floors[p],
            "rm_bias": biases[p],
            "kl": training.final(p, "kl"),
            "reward": training.final(p, "reward_mean"),
            "completion_length": training.final(p, "completion_length"),
            "reward_model": {
                name: _plain(rm_result[name][p]) for name in ("heldout_loss", "heldout_accuracy", "heldout_auc")
            },
            "utility": utility[p],
            "base_utility": base_utility[p],
            "exploration": exploration(trial, logs[p]),
            "dropped_document_tokens": logs[p].dropped_document_tokens + prompts[p].dropped_document_tokens,
            "calibration": logs[p].calibration,
            # A study's policies see equally many prompts, and whole steps only.
            "prompts_left_out": trial.left_out["rl"] + rl_result["prompts_left_out"],
            "seconds": {stage: s / len(trials) for stage, s in watch.seconds.items()},
        }
        adapter = jax.tree.map(lambda x, p=p: x[p], adapters)
        finished.append(Finished(record, scored[p].rows(trial.trial), adapter))
    return finished


def _reward_source(config: AuditConfig, arm: Arm, trials: Sequence[Trial], base: Base, rewards):
    if config.policy.reward == "simulated" and arm == "violating":
        return SimulatedReward(config, trials, base.tokenizer)
    return rewards  # the compliant arm has no documents for simulated users to read


def _record(config: AuditConfig, trial: Trial, scored: CellScores, valid: bool) -> dict[str, Any]:
    """Scores of a policy; null with a reason where training or scoring was not finite."""
    measured = policy_scores(scored)
    reason = measured.reason if valid else "training met a loss or gradient that is not finite"
    scores = measured.scores if reason is None else dict.fromkeys(measured.scores)
    canary = trial.canary
    return {
        "trial": trial.trial,
        "draw": trial.draw,
        "scores": scores,
        "standard_errors": measured.standard_errors,
        "valid": reason is None,
        "reason": reason,
        "valid_pairs": measured.valid_pairs,
        "invalid_pairs": measured.invalid_pairs,
        "controls": control_scores(scored, config) if reason is None else None,
        "canary": {"trigger": canary.trigger, "text": canary.text, "tokens": len(trial.pairs[0].continuation_ids)},
        "injected": {
            name: {kind: sum(t.kind == kind for t in traces) for kind in ("clean", "triggered", "contrast")}
            for name, traces in (("rm", trial.rm_traces), ("rl", trial.rl_traces))
        },
        "documents": {
            name: len({e.document_id for e in part})
            for name, part in (("rm", trial.splits.rm), ("rl", trial.splits.rl), ("eval", trial.splits.eval))
        },
        "left_out": trial.left_out,
        "pairs": asdict(trial.pair_counts),
        "warnings": trial.warnings,
    }


def exploration(trial: Trial, log: ServiceLog) -> dict[str, Any]:
    """How often the base's own answers carried the whole canary, by kind of trace (BC-23)."""
    found: dict[str, Any] = {}
    for kind in ("triggered", "contrast", "clean"):
        hits = [
            hit
            for trace, row in zip(trial.rm_traces, log.rows, strict=True)
            if trace.kind == kind
            for hit, made in zip(row.hits, row.kinds, strict=True)
            if made == "sampled"
        ]
        found[kind] = {"count": sum(hits), "n": len(hits)}
    return found


def _plain(value) -> float | None:
    return float(value) if np.isfinite(value) else None
