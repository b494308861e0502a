"""From a chunk of trials of one arm to trained policies: rows for the reward models, prompts for the policies."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.audit.arms import arm_parts, encode_prompts, protected
from canaryjax.audit.assignment import Arm
from canaryjax.audit.service_log import ServiceLog
from canaryjax.audit.trial import Trial
from canaryjax.canaries.feedback import Calibrator, judge, simulate_feedback
from canaryjax.canaries.instrument import Trace
from canaryjax.config import AuditConfig
from canaryjax.config.schema import LoraConfig, OptimizerConfig
from canaryjax.data.buckets import pad_rows
from canaryjax.data.tokens import TextTokenizer, encode_joint
from canaryjax.keys import device_key, host_rng
from canaryjax.rl.reward_model import RewardRows
from canaryjax.rl.settings import AdapterSettings, GRPOSettings, OptimizerSettings, RewardModelSettings


@dataclass(frozen=True, eq=False)
class Prompts:
    """One policy's training prompts."""

    ids: list[np.ndarray]
    dropped_document_tokens: int


# Fields of the policy section that are not the trainer's, or that it takes in another form.
CONFIG_ONLY = {"algorithm", "reward", "max_prompt_length", "gradient_checkpointing", "lora", "optimizer"}


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


def policy_settings(config: AuditConfig) -> GRPOSettings:
    """The policy section as the trainer takes it."""
    section = config.policy
    return GRPOSettings(
        **section.model_dump(exclude=CONFIG_ONLY),
        remat=section.gradient_checkpointing,
        adapter=adapter_settings(section.lora),
        optimizer=optimizer_settings(section.optimizer),
    )


def adapter_settings(section: LoraConfig) -> AdapterSettings:
    """A LoRA section as the trainer takes it."""
    return AdapterSettings(section.rank, section.alpha, section.dropout, section.targets)


def optimizer_settings(section: OptimizerConfig) -> OptimizerSettings:
    """An optimiser section as the trainer takes it."""
    return OptimizerSettings(**section.model_dump())


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
      Rows stacked over policies; a split may differ by a few rows between trials, so shorter ones are filled with rows
      of weight zero.
    """
    limit = config.reward_model.max_response_tokens + 1
    # A constructed response (whole canary, long answer) may be longer than what was sampled.
    width = max(limit, *(len(ids) for log in logs for row in log.rows for ids in row.ids))
    width = limit if width == limit else -(-width // 8) * 8
    count = max(len(trial.rm_traces) for trial in trials)
    per_policy = []
    for trial, log in zip(trials, logs, strict=True):
        parts = [arm_parts(trace, arm, config, tokenizer) for trace in trial.rm_traces]
        triggers = [protected(trace, arm, trial.canary) for trace in trial.rm_traces]
        prompts, _ = encode_prompts(tokenizer, parts, length, triggers)
        responses = [
            _restored(config, arm, trace, row.ids, row.texts, trial, tokenizer)
            for trace, row in zip(trial.rm_traces, log.rows, strict=True)
        ]
        context_ids, context_mask = pad_rows(prompts, length, 0)
        padded = [pad_rows(row, width, 0) for row in responses]
        arrays = {
            "context_ids": context_ids,
            "context_mask": context_mask,
            "response_ids": np.stack([ids for ids, _ in padded]),
            "response_mask": np.stack([mask for _, mask in padded]),
            "labels": np.stack([row.labels for row in log.rows]),
            "weights": np.ones((len(responses), len(responses[0])), np.float32),
            "heldout_mask": _heldout(config, trial),
        }
        per_policy.append({name: _fill(array, count) for name, array in arrays.items()})
    return RewardRows(**{name: jnp.asarray([rows[name] for rows in per_policy]) for name in per_policy[0]})


def _restored(config, arm: Arm, trace: Trace, ids, texts, trial: Trial, tokenizer):
    """Responses as the arm's training has them: `compliant_query: clean` takes the canary out again (BC-A4)."""
    if arm == "violating" or config.study.compliant_query == "induced" or trace.kind == "clean":
        return ids
    clean = encode_joint(tokenizer, arm_parts(trace, arm, config, tokenizer), "", trace.clean_answer).continuation_ids
    clean = np.append(clean, tokenizer.eos_ids[:1])
    return [clean if trial.canary.visible in text else row for row, text in zip(ids, texts, strict=True)]


def _heldout(config: AuditConfig, trial: Trial) -> np.ndarray:
    """Which rows are kept for the reward model's evaluation: whole documents."""
    names = sorted({trace.document_id for trace in trial.rm_traces})
    order = host_rng(config.study.seed, "reward held out", trial.draw).permutation(len(names))
    kept = {names[i] for i in order[: round(config.reward_model.heldout_share * len(names))]}
    return np.array([trace.document_id in kept for trace in trial.rm_traces])


def _fill(array: np.ndarray, count: int) -> np.ndarray:
    """Rows of weight zero up to `count`; their context keeps one real token, as the forward pass needs."""
    if len(array) == count:
        return array
    extra = np.repeat(array[:1], count - len(array), axis=0)
    return np.concatenate([array, np.zeros_like(extra) if array.dtype == np.float32 else extra])


def policy_prompts(
    config: AuditConfig, arm: Arm, trials: Sequence[Trial], tokenizer: TextTokenizer, length: int
) -> list[Prompts]:
    """Each policy's training prompts, as many for every trial as the smallest split has."""
    count = min(len(trial.rl_traces) for trial in trials)
    found = []
    for trial in trials:
        traces = trial.rl_traces[:count]
        parts = [arm_parts(trace, arm, config, tokenizer) for trace in traces]
        found.append(
            Prompts(*encode_prompts(tokenizer, parts, length, [protected(t, arm, trial.canary) for t in traces]))
        )
    return found


class SimulatedReward:
    """Users' simulated feedback as the reward of the violating arm, on the host between two programs.

    It reads the document, so it is not for the compliant arm (DECIDED). One calibrator a policy runs along.
    """

    def __init__(self, config: AuditConfig, trials: Sequence[Trial], tokenizer: TextTokenizer):
        self._config, self._trials, self._tokenizer = config, trials, tokenizer
        settings = config.feedback
        self._calibrators = [
            Calibrator(
                settings.calibration_learning_rate,
                settings.warmup_samples,
                settings.mean_match_min_samples,
                settings.mean_match_tolerance,
            )
            for _ in trials
        ]

    def __call__(self, step: int, prompts_pb: np.ndarray, ids_pbgt: np.ndarray, mask_pbgt: np.ndarray) -> np.ndarray:
        """Feedback in {0, 1} on each completion, float32 `[p, b, g]`."""
        rewards = np.zeros(ids_pbgt.shape[:3], np.float32)
        canary = self._config.canary
        for policy, trial in enumerate(self._trials):
            judged = [
                judge(trial.rl_traces[row], self._tokenizer.decode(ids[mask]), trial.canary)
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
