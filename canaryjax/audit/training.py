"""From a chunk of trials of one arm to trained policies: rows for the reward models, prompts for the policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.audit.arms import arm_parts, encode_prompts, protected
from canaryjax.audit.assignment import Arm
from canaryjax.audit.service_log import LoggedResponses, ServiceLog, new_calibrator, quality_weights
from canaryjax.audit.trial import Trial
from canaryjax.canaries.feedback import judge, simulate_feedback
from canaryjax.canaries.instrument import Trace
from canaryjax.config import AuditConfig
from canaryjax.config.policy import PPOConfig
from canaryjax.data.buckets import pad_rows
from canaryjax.data.tokens import TextTokenizer, encode_joint
from canaryjax.keys import device_key, host_rng
from canaryjax.rl.ppo_settings import AdaptiveKL, PPOSettings
from canaryjax.rl.reward_model import RewardRows, balance_weights
from canaryjax.rl.section import adapter_settings, optimizer_settings
from canaryjax.rl.settings import GRPOSettings, RewardModelSettings


@dataclass(frozen=True, eq=False)
class Prompts:
    """One policy's training prompts."""

    ids: list[np.ndarray]
    dropped_document_tokens: int


# Fields of the policy section that are not the trainer's, or that it takes in another form.
CONFIG_ONLY = {"algorithm", "reward", "max_prompt_length", "gradient_checkpointing", "lora", "optimizer", "adaptive_kl"}


def reward_settings(config: AuditConfig) -> RewardModelSettings:
    """The reward-model section as the trainer takes it."""
    section = config.reward_model
    held_out = section.heldout_share > 0
    return RewardModelSettings(
        train_batch_size=section.train_batch_size,
        eval_batch_size=section.eval_batch_size,
        grad_accumulation=section.grad_accumulation,
        epochs=section.epochs,
        eval_every=section.eval_every,
        early_stopping_patience=section.early_stopping_patience if held_out else None,
        center_coefficient=section.center_coefficient,
        remat=section.gradient_checkpointing,
        adapter=adapter_settings(section.lora),
        optimizer=optimizer_settings(section.optimizer),
    )


def policy_settings(config: AuditConfig) -> GRPOSettings | PPOSettings:
    """The policy section as the trainer takes it."""
    section = config.policy
    fields = section.model_dump(exclude=CONFIG_ONLY) | {
        "remat": section.gradient_checkpointing,
        "adapter": adapter_settings(section.lora),
        "optimizer": optimizer_settings(section.optimizer),
    }
    if not isinstance(section, PPOConfig):
        return GRPOSettings(**fields)
    controller = section.adaptive_kl
    adaptive = None if controller is None else AdaptiveKL(controller.target, controller.horizon)
    return PPOSettings(**fields, adaptive_kl=adaptive)


def trial_keys(config: AuditConfig, purpose: str, trials: Sequence[Trial]) -> jax.Array:
    """One key a trial, `[p]`."""
    return jnp.stack([device_key(config.study.seed, purpose, trial.draw) for trial in trials])


def reward_rows(
    config: AuditConfig,
    arm: Arm,
    trials: Sequence[Trial],
    logs: Sequence[ServiceLog],
    tokenizer: TextTokenizer,
    length: int,
) -> RewardRows:
    """Labelled responses of a chunk, padded alike: the document is there iff the arm is violating (BC-41).

    Args:
      config: The study.
      arm: Of all the trials.
      trials: The chunk.
      logs: Their service logs.
      tokenizer: The base model's.
      length: Padded prompt length of the arm.

    Returns:
      Rows stacked over policies.
    """
    responses = [
        [_restored(config, arm, trace, row, tokenizer) for trace, row in zip(trial.rm_traces, log.rows, strict=True)]
        for trial, log in zip(trials, logs, strict=True)
    ]
    limit = config.reward_model.max_response_tokens + 1
    # A constructed or restored response (whole canary, long answer) may be longer than what was sampled.
    width = max(limit, *(len(ids) for own in responses for row in own for ids in row))
    width = limit if width == limit else -(-width // 8) * 8
    per_policy = []
    for trial, log, own in zip(trials, logs, responses, strict=True):
        context_ids, context_mask = pad_rows(reward_prompts(config, arm, trial, tokenizer, length), length, 0)
        padded = [pad_rows(row, width, 0) for row in own]
        rows = {
            "context_ids": context_ids,
            "context_mask": context_mask,
            "response_ids": np.stack([ids for ids, _ in padded]),
            "response_mask": np.stack([mask for _, mask in padded]),
            "labels": np.stack([row.labels for row in log.rows]),
            "weights": _weights(config, log),
            "heldout_mask": trial.rm_heldout,
        }
        per_policy.append(rows)
    return RewardRows(**{name: jnp.asarray([rows[name] for rows in per_policy]) for name in per_policy[0]})


def _weights(config: AuditConfig, log: ServiceLog) -> np.ndarray:
    """Loss weights of the responses, float32 `[rows, responses]`, before the trainer balances labels over all rows."""
    weights = np.ones((len(log.rows), len(log.rows[0].labels)))
    if config.reward_model.balance == "prompt":
        weights = np.stack([balance_weights(row.labels, own) for row, own in zip(log.rows, weights, strict=True)])
    return weights.astype(np.float32)


def reward_prompt_length(config: AuditConfig, arm: Arm, lengths: dict[Arm, int]) -> int:
    """Tokens of an arm's prompts in the reward model's rows: a response must fit behind them."""
    return min(lengths[arm], config.reward_model.max_length - config.reward_model.max_response_tokens)


def reward_prompts(
    config: AuditConfig, arm: Arm, trial: Trial, tokenizer: TextTokenizer, length: int
) -> list[np.ndarray]:
    """The prompts of a trial's reward-model rows, of at most `length` tokens."""
    parts = [arm_parts(trace, arm, config, tokenizer) for trace in trial.rm_traces]
    triggers = [protected(trace, arm, trial.canary) for trace in trial.rm_traces]
    return encode_prompts(tokenizer, parts, length, triggers)[0]


def _restored(
    config: AuditConfig, arm: Arm, trace: Trace, row: LoggedResponses, tokenizer: TextTokenizer
) -> list[np.ndarray]:
    """Responses as the arm's training has them: `compliant_query: clean` takes the canary out again (BC-A4).

    Constructed near misses carry a part of it and go too; what a sampled answer holds of a part cannot be told.
    """
    if arm == "violating" or config.study.compliant_query == "induced" or trace.kind == "clean":
        return row.ids
    clean = encode_joint(tokenizer, arm_parts(trace, arm, config, tokenizer), "", trace.clean_answer).continuation_ids
    clean = np.append(clean, tokenizer.eos_ids[:1])
    carries = [hit or kind in ("partial", "corrupted") for hit, kind in zip(row.hits, row.kinds, strict=True)]
    return [clean if gone else ids for ids, gone in zip(row.ids, carries, strict=True)]


def policy_prompts(
    config: AuditConfig, arm: Arm, trials: Sequence[Trial], tokenizer: TextTokenizer, length: int
) -> list[Prompts]:
    """Each policy's training prompts, in the order of its trial's traces."""
    found = []
    for trial in trials:
        parts = [arm_parts(trace, arm, config, tokenizer) for trace in trial.rl_traces]
        triggers = [protected(trace, arm, trial.canary) for trace in trial.rl_traces]
        found.append(Prompts(*encode_prompts(tokenizer, parts, length, triggers)))
    return found


class SimulatedReward:
    """Users' simulated feedback as the reward of the violating arm, on the host between two programs.

    It reads the document, so it is not for the compliant arm (DECIDED). One calibrator a policy runs along.
    """

    def __init__(self, config: AuditConfig, trials: Sequence[Trial], tokenizer: TextTokenizer):
        self._config, self._trials, self._tokenizer = config, trials, tokenizer
        self._weights = quality_weights(config.feedback)
        self._calibrators = [new_calibrator(config.feedback) for _ in trials]

    def state(self) -> list[dict[str, Any]]:
        """What the calibrators have learnt, policy by policy, for a step checkpoint."""
        return [calibrator.state() for calibrator in self._calibrators]

    def take_up(self, state: list[dict[str, Any]]) -> None:
        """Goes on from what `state` gave."""
        for calibrator, own in zip(self._calibrators, state, strict=True):
            calibrator.take_up(own)

    def __call__(self, step: int, prompts_pb: np.ndarray, ids_pbgt: np.ndarray, mask_pbgt: np.ndarray) -> np.ndarray:
        """Feedback in {0, 1} on each completion, float32 `[p, b, g]`."""
        rewards = np.zeros(ids_pbgt.shape[:3], np.float32)
        canary = self._config.canary
        for policy, trial in enumerate(self._trials):
            judged = [
                judge(trial.rl_traces[row], self._tokenizer.decode(ids[mask]), trial.canary, self._weights)
                for row, ids_gt, mask_gt in zip(prompts_pb[policy], ids_pbgt[policy], mask_pbgt[policy], strict=True)
                for ids, mask in zip(ids_gt, mask_gt, strict=True)
            ]
            feedback = simulate_feedback(
                host_rng(self._config.study.seed, "online feedback", trial.draw, step),
                judged,
                canary.delta,
                calibrator=self._calibrators[policy],
                allow_large_delta=canary.allow_large_delta,
            )
            rewards[policy] = feedback.labels.reshape(rewards.shape[1:])
        return rewards
