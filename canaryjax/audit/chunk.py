"""A chunk of trials of one arm, from log to finished records: the expensive part of a study."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.audit.assignment import Arm
from canaryjax.audit.base import Base
from canaryjax.audit.chunk_checkpoint import ChunkCheckpoints
from canaryjax.audit.measure import (
    CellScores,
    control_scores,
    noise_floor,
    plan_cells,
    policy_scores,
    score_cells,
)
from canaryjax.audit.reward_bias import reward_bias
from canaryjax.audit.service_log import ServiceLog, simulate_log
from canaryjax.audit.stopwatch import Stopwatch
from canaryjax.audit.textual import string_memory
from canaryjax.audit.training import (
    Prompts,
    SimulatedReward,
    policy_prompts,
    policy_settings,
    reward_prompt_length,
    reward_rows,
    reward_settings,
    trial_keys,
)
from canaryjax.audit.training_log import TrainingLog, sampling_into
from canaryjax.audit.trial import Trial
from canaryjax.audit.utility import measure_utility
from canaryjax.config import AuditConfig
from canaryjax.data.buckets import pad_rows
from canaryjax.models.lora import Adapter
from canaryjax.models.mesh import axis_size
from canaryjax.rl.metrics import Log
from canaryjax.rl.reward_model import RewardModel
from canaryjax.rl.reward_training import train_reward_models
from canaryjax.rl.rollout import PromptRows
from canaryjax.rl.step_profile import StepProfile
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


def run_chunk(
    config: AuditConfig,
    base: Base,
    arm: Arm,
    trials: Sequence[Trial],
    lengths: dict[Arm, int],
    log: Log,
    checkpoints: ChunkCheckpoints,
    at_once: int = 1,
    profile: StepProfile | None = None,
) -> list[Finished]:
    """Trains and measures the policies of a chunk together.

    Args:
      config: The study.
      base: The base model.
      arm: Of all the trials.
      trials: The chunk.
      lengths: Padded prompt lengths of the study, by arm.
      log: Called with training metrics, one record a logged step and policy, and with samples.
      checkpoints: Keep the training of this chunk; what they hold of it already is not done again.
      at_once: Chunks that run side by side; for the timings alone.
      profile: Traces a few steps of the policies' training.

    Returns:
      One result a trial, in order.
    """
    watch = Stopwatch(at_once)
    # Devices that share policies take equally many: the last one is repeated, and nothing of its copies is kept.
    filled = [*trials, *[trials[-1]] * (-len(trials) % axis_size(base.params, "policy"))]
    training = TrainingLog(trials, log, config.policy.algorithm)
    trained = _train(config, base, arm, filled, lengths, training, checkpoints, watch, profile)
    measured = _measure(config, base, filled, trained, lengths["violating"], watch, checkpoints.tell)
    finished = []
    for p, trial in enumerate(trials):
        valid = bool(trained.rm_result["valid"][p]) and bool(trained.rl_result["valid"][p])
        record = _record(config, trial, measured["scored"][p], valid)
        record |= trained.record(p) | {name: values[p] for name, values in measured.items() if name != "scored"}
        record["exploration"] = exploration(trial, trained.logs[p])
        # A study's policies see equally many prompts, and whole steps only.
        record["prompts_left_out"] = trial.left_out["rl"] + trained.rl_result["prompts_left_out"]
        record["seconds"] = {stage: s / len(trials) for stage, s in watch.seconds.items()}
        adapter = jax.tree.map(lambda x, p=p: x[p], trained.adapters)
        finished.append(Finished(record, measured["scored"][p].rows(trial.trial), adapter))
    return finished


@dataclass(frozen=True, eq=False)
class _Trained:
    """A chunk after training: logs, reward models and policies, with what their training said."""

    logs: list[ServiceLog]
    rewards: RewardModel
    rm_result: dict
    prompts: list[Prompts]
    adapters: Adapter
    rl_result: dict
    training: TrainingLog

    def record(self, p: int) -> dict[str, Any]:
        """What a policy's record keeps of it."""
        log, final = self.logs[p], self.training.final
        return {
            "kl": final(p, "kl"),
            "reward": final(p, "reward_mean"),
            "completion_length": final(p, "completion_length"),
            "reward_model": {
                name: _plain(self.rm_result[name][p]) for name in ("heldout_loss", "heldout_accuracy", "heldout_auc")
            },
            "dropped_document_tokens": log.dropped_document_tokens + self.prompts[p].dropped_document_tokens,
            "calibration": log.calibration,
        }


def _train(
    config: AuditConfig,
    base: Base,
    arm: Arm,
    trials: Sequence[Trial],
    lengths: dict[Arm, int],
    training: TrainingLog,
    checkpoints: ChunkCheckpoints,
    watch: Stopwatch,
    profile: StepProfile | None,
) -> _Trained:
    logs = _service_logs(config, base, trials, lengths["violating"], checkpoints, watch)
    rows = reward_rows(config, arm, trials, logs, base.tokenizer, reward_prompt_length(config, arm, lengths))
    stage = checkpoints.stage("reward models", "reward-model update", training, watch)
    keys = trial_keys(config, "reward model", trials)
    rewards, rm_result = train_reward_models(
        base.params, rows, reward_settings(config), keys, stage.log, checkpoints=stage
    )
    watch.lap("reward models")
    prompts = policy_prompts(config, arm, trials, base.tokenizer, lengths[arm])
    padded = [pad_rows(own.ids, lengths[arm], 0) for own in prompts]
    source = _reward_source(config, arm, trials, base, rewards)
    stage = checkpoints.stage("policies", "policy step", training, watch)
    stage.carrier = source if isinstance(source, SimulatedReward) else None
    adapters, rl_result = train_policies(
        base.params,
        source,
        PromptRows(*(jnp.asarray(parts) for parts in zip(*padded, strict=True))),
        policy_settings(config),
        trial_keys(config, "policy", trials),
        stage.log,
        eos_ids=base.tokenizer.eos_ids,
        checkpoints=stage,
        log_every=config.output.log_every,
        sampling=sampling_into(stage.log, config, arm, trials, base.tokenizer),
        profile=profile,
    )
    watch.lap("policies")
    return _Trained(logs, rewards, rm_result, prompts, adapters, rl_result, training)


def _service_logs(
    config: AuditConfig,
    base: Base,
    trials: Sequence[Trial],
    length: int,
    checkpoints: ChunkCheckpoints,
    watch: Stopwatch,
) -> list[ServiceLog]:
    kept = checkpoints.recall("logged responses")
    if kept is not None:
        watch.add("logged responses", kept["seconds"])
        return [ServiceLog.from_plain(log) for log in kept["logs"]]
    logged = {
        trial: simulate_log(config, trial, base.params, base.tokenizer, length) for trial in dict.fromkeys(trials)
    }
    logs = [logged[trial] for trial in trials]
    watch.lap("logged responses")
    plain = [log.plain() for log in logs]
    checkpoints.remember("logged responses", {"logs": plain, "seconds": watch.seconds["logged responses"]})
    return logs


def _measure(
    config: AuditConfig,
    base: Base,
    trials: Sequence[Trial],
    trained: _Trained,
    length: int,
    watch: Stopwatch,
    tell: Callable[[str], None],
) -> dict[str, list]:
    """Everything measured on a chunk, by its name in a record, one value a trial; `scored` holds the cells."""
    model, adapters = base.params, trained.adapters
    found: dict[str, list] = {}
    tell("scoring held-out pairs and controls")
    found["scored"] = score_cells(
        model, adapters, [plan_cells(t, config) for t in trials], config.evaluation.batch_size
    )
    if config.canary.textual:
        found["memorisation"] = string_memory(model, adapters, trials, config.evaluation.batch_size)
    watch.lap("scores")
    tell("measuring noise floor and reward bias")
    found["noise_floor"] = noise_floor(model, adapters, [s.cells for s in found["scored"]], config)
    found["rm_bias"] = reward_bias(config, model, trained.rewards, trials, base.tokenizer)
    watch.lap("noise floor and reward bias")
    tell("answering held-out questions")
    found["utility"] = measure_utility(config, model, adapters, trials, base.tokenizer, length)
    found["base_utility"] = measure_utility(config, model, None, trials, base.tokenizer, length)
    watch.lap("utility")
    return found


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
        "scores_per_token": measured.per_token if reason is None else dict.fromkeys(measured.scores),
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
        "provider": trial.provider,
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
