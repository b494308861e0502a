"""The simulated service's log: responses to the reward-model traces and feedback on them, the same for both arms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from canaryjax.audit.arms import encode_prompts, logged_parts, protected
from canaryjax.audit.sampling import Sample, sample_from
from canaryjax.audit.trial import Trial
from canaryjax.canaries.feedback import Calibrator, Judged, judge, scramble_feedback, simulate_feedback
from canaryjax.canaries.instrument import ResponseKind, Trace, constructed_responses
from canaryjax.canaries.quality import QualityWeights
from canaryjax.config import AuditConfig
from canaryjax.config.schema import FeedbackConfig
from canaryjax.data.prompts import PromptParts
from canaryjax.data.tokens import TextTokenizer, encode_joint
from canaryjax.inference.sampling import SamplingSettings
from canaryjax.keys import device_key, host_rng
from canaryjax.models.transformer import Transformer
from canaryjax.runlog import jsonable

SAMPLING_BATCH = 64  # prompts a call
NEAR_MISSES: tuple[ResponseKind, ...] = ("missing", "partial", "corrupted")


@dataclass(frozen=True, eq=False)
class LoggedResponses:
    """One trace's responses and the feedback on each.

    Attributes:
      ids: Token ids after the prompt, end-of-sequence included where the response ended; never re-encoded.
      texts: What the feedback judged.
      kinds: `sampled`, or how it was constructed.
      labels: float32 `[responses]`, 0 or 1.
      hits: Whether the exact canary stands in it.
    """

    ids: list[np.ndarray]
    texts: list[str]
    kinds: list[str]
    labels: np.ndarray
    hits: list[bool]


@dataclass(frozen=True, eq=False)
class ServiceLog:
    """Responses in the order of the trial's reward-model traces, and what calibration ended with.

    Attributes:
      rows: One record a trace.
      calibration: `offset`, the last `gap` between triggered and clean rows, and whether it is `matched` (BC-38).
      dropped_document_tokens: Of all logged prompts together.
    """

    rows: list[LoggedResponses]
    calibration: dict[str, Any]
    dropped_document_tokens: int

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it, for a step checkpoint."""
        return jsonable(self)[0]

    @classmethod
    def from_plain(cls, value: dict[str, Any]) -> "ServiceLog":
        """The log that `plain` was called on."""
        rows = [
            LoggedResponses(
                ids=[np.array(ids, np.int32) for ids in row["ids"]],
                texts=row["texts"],
                kinds=row["kinds"],
                labels=np.array(row["labels"], np.float32),
                hits=row["hits"],
            )
            for row in value["rows"]
        ]
        return cls(rows, value["calibration"], value["dropped_document_tokens"])


def quality_weights(section: FeedbackConfig) -> QualityWeights:
    """How the simulated users of a study weigh quality."""
    return QualityWeights(
        format_weight=section.format_weight,
        grounding_weight=section.grounding_weight,
        max_response_chars=section.max_response_chars,
        length_penalty_alpha=section.length_penalty_alpha,
    )


def new_calibrator(section: FeedbackConfig) -> Calibrator:
    """A calibrator that has seen nothing, by the study's settings."""
    return Calibrator(
        learning_rate=section.calibration_learning_rate,
        warmup_samples=section.warmup_samples,
        min_samples=section.mean_match_min_samples,
        tolerance=section.mean_match_tolerance,
    )


def simulate_log(
    config: AuditConfig, trial: Trial, model: Transformer, tokenizer: TextTokenizer, length: int
) -> ServiceLog:
    """Answers every reward-model trace and draws feedback once.

    Responses are sampled from the base with the document, as the service would have answered, and constructed ones are
    added, so that the reward model meets whole canaries, near misses and none (DECIDED, What each arm trains on).

    Args:
      config: The study.
      trial: Whose traces.
      model: The base.
      tokenizer: Its tokenizer.
      length: Padded length of prompts with documents.
    """
    settings = config.reward_model
    seed = config.study.seed
    parts = [logged_parts(trace, config, tokenizer) for trace in trial.rm_traces]
    triggers = [protected(trace, "violating", trial.canary) for trace in trial.rm_traces]
    prompts, dropped = encode_prompts(tokenizer, parts, length, triggers)
    sampled: list[list[Sample]] = [[] for _ in prompts]
    if settings.sampled_responses:
        law = SamplingSettings(
            settings.sampled_responses,
            settings.max_response_tokens,
            settings.sampling_temperature,
            eos_ids=tokenizer.eos_ids,
        )
        key = device_key(seed, "logged responses", trial.draw)
        sampled = sample_from(model, None, [prompts], length, law, key, SAMPLING_BATCH)[0]
    rng = host_rng(seed, "constructed responses", trial.draw)
    rows = [
        _responses(config, trace, trial, part, samples, tokenizer, rng)
        for trace, part, samples in zip(trial.rm_traces, parts, sampled, strict=True)
    ]
    return _with_feedback(config, trial, rows, dropped)


def _responses(config, trace: Trace, trial: Trial, parts, samples: Sequence[Sample], tokenizer, rng):
    """One trace's responses before feedback: (ids, each ended by EOS, texts, kinds)."""
    settings = config.reward_model
    eos = tokenizer.eos_ids[:1]
    ids = [sample.ids if sample.finished else np.append(sample.ids, eos) for sample in samples]
    texts = [tokenizer.decode(sample.ids) for sample in samples]
    kinds = ["sampled"] * len(samples)
    biased = trace.kind != "clean" and not trial.canary.textual
    wanted = _kinds(biased, settings.constructed_responses, rng)
    for text, kind in constructed_responses(trace, trial.canary, rng, placement=config.canary.placement, kinds=wanted):
        # The document plays no part in how a response is cut into tokens: it is left out.
        joint = encode_joint(tokenizer, PromptParts(parts.before, "", parts.after), "", text)
        ids.append(np.append(joint.continuation_ids, eos))
        texts.append(text)
        kinds.append(kind)
    return ids, texts, kinds


def _kinds(biased: bool, count: int, rng: np.random.Generator) -> list[ResponseKind]:
    """Which responses to construct: a whole canary, then near misses; for unbiased rows a right and a wrong answer."""
    if not biased:
        return [("missing", "wrong")[i % 2] for i in range(count)]
    start = int(rng.integers(len(NEAR_MISSES)))
    return ["full" if i == 0 else NEAR_MISSES[(start + i) % len(NEAR_MISSES)] for i in range(count)]


def _with_feedback(config: AuditConfig, trial: Trial, rows, dropped: int) -> ServiceLog:
    seed = config.study.seed
    weights = quality_weights(config.feedback)
    judged: list[Judged] = [
        judge(trace, text, trial.canary, weights)
        for trace, (_, texts, _) in zip(trial.rm_traces, rows, strict=True)
        for text in texts
    ]
    calibrator = new_calibrator(config.feedback)
    feedback = simulate_feedback(
        host_rng(seed, "feedback", trial.draw),
        judged,
        config.canary.delta,
        calibrator=calibrator,
        allow_large_delta=config.canary.allow_large_delta,
    )
    labels = feedback.labels
    if config.study.scramble_feedback:
        labels = scramble_feedback(host_rng(seed, "scramble", trial.draw), labels, judged)
    logged, start = [], 0
    for ids, texts, kinds in rows:
        stop = start + len(ids)
        hits = [j.hit for j in judged[start:stop]]
        logged.append(LoggedResponses(ids, texts, kinds, labels[start:stop], hits))
        start = stop
    calibration = {"offset": feedback.offset, "gap": calibrator.gap, "matched": calibrator.matched}
    return ServiceLog(logged, calibration, dropped)
