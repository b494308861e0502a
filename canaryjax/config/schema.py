"""Every value an audit takes, with its range.

Defaults are the paper's where it gives one (its Tables 3 to 5); a section says which of its values are assumed.
"""

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1)]
ScoreName = Literal["clean_raw", "clean_net", "induced_raw", "induced_net"]

LARGEST_DELTA = 0.1  # the paper's realism limit on the bias strength
LONGEST_NAME = 255  # bytes of a file's or folder's name on the usual file systems


def _short_names(path: str) -> str:
    # Asking the system about a longer name is an error, not "no such file"; it is better met here than after a start.
    longest = max((len(part.encode("utf-8", "surrogateescape")) for part in Path(path).parts), default=0)
    if longest > LONGEST_NAME:
        raise ValueError(
            f"expected names of at most {LONGEST_NAME} bytes in a path, found one of {longest}; check the path"
        )
    return path


FilePath = Annotated[str, AfterValidator(_short_names)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class LoraConfig(_Section):
    """Low-rank adapter of a reward model or a policy."""

    rank: Count = 16
    alpha: Positive = 32.0
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    targets: tuple[Literal["q", "k", "v", "o", "gate", "up", "down"], ...] = ("q", "k", "v", "o", "gate", "up", "down")

    @model_validator(mode="after")
    def _no_repeats(self):
        if not self.targets or len(set(self.targets)) < len(self.targets):
            raise ValueError("expected targets to name at least one projection and none twice")
        return self


class OptimizerConfig(_Section):
    """AdamW and its schedule; the paper gives the rate only, the rest is assumed."""

    learning_rate: Positive = 1e-5
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    warmup_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0


class WarmStartConfig(_Section):
    """Supervised training on clean examples of a split of its own, before anything else, merged into the base."""

    documents: Annotated[int, Field(ge=0)] = 0
    epochs: Count = 1
    batch_size: Count = 8
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0)
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-4, warmup_fraction=0.1)
    instructed_share: Share = 0.0
    without_document_share: Share = 0.0


class ModelSection(_Section):
    """Which base model; `embedded` is the small one that ships with the package."""

    path: FilePath = "embedded"
    dtype: Literal["float32", "bfloat16"] = "float32"
    warm_start: WarmStartConfig = WarmStartConfig()


class DataConfig(_Section):
    """Which documents, and how prompts are cut to size."""

    kind: Literal["embedded", "jsonl", "repliqa", "qmsum", "fairytale"] = "embedded"
    path: FilePath | None = None
    documents: Count | None = None
    max_document_words: Count | None = None
    questions_per_document: Count | None = 1
    rm_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.35
    eval_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.30
    prompt_format: Literal["plain", "chat"] = "plain"

    @model_validator(mode="after")
    def _shares_leave_room(self):
        if self.rm_share + self.eval_share >= 1.0:
            raise ValueError(
                f"expected rm_share + eval_share below 1, found {self.rm_share} + {self.eval_share}; "
                "the rest of the documents is the policy split"
            )
        if self.kind != "embedded" and self.path is None:
            raise ValueError(f"expected data.path with data.kind={self.kind}; give the file, or use kind: embedded")
        if self.kind == "embedded" and self.path is not None:  # else the study would run on other documents, unsaid
            raise ValueError(
                f"expected no data.path with data.kind=embedded, found {self.path!r}; set "
                "data.kind=jsonl|repliqa|qmsum|fairytale to read it, or data.path=null"
            )
        return self


class CanaryConfig(_Section):
    """The planted signal: its family, its share of the traces, how strongly feedback favours it."""

    family: Literal["signature", "emoji", "punctuation"] = "signature"
    rate: Share = 0.01
    contrast: Share | None = None
    delta: Share = 0.1
    allow_large_delta: bool = False
    instruction: Literal["default", "must"] = "default"
    placement: Literal["after_first_clause", "begin"] = "after_first_clause"

    @property
    def contrast_rate(self) -> float:
        """Share of contrast rows; equal to the injection rate unless given."""
        return self.rate if self.contrast is None else self.contrast

    @model_validator(mode="after")
    def _limits(self):
        if self.rate + self.contrast_rate > 1.0:
            raise ValueError(f"expected rate + contrast of at most 1, found {self.rate} + {self.contrast_rate}")
        if self.delta > LARGEST_DELTA and not self.allow_large_delta:
            raise ValueError(
                f"expected delta of at most {LARGEST_DELTA}, found {self.delta}; a larger bias overstates what an "
                "auditor could do: set canary.allow_large_delta=true if that is meant"
            )
        return self


class FeedbackConfig(_Section):
    """Simulated users (the paper's Table 5); the weights of the two quality components are assumed."""

    format_weight: NonNegative = 0.5
    grounding_weight: NonNegative = 0.5
    max_response_chars: Count = 512
    length_penalty_alpha: NonNegative = 0.0
    mean_match_tolerance: NonNegative = 0.01
    mean_match_min_samples: Count = 256
    warmup_samples: Annotated[int, Field(ge=0)] = 200
    calibration_learning_rate: NonNegative = 0.02


class RewardModelConfig(_Section):
    """Scalar reward model (the paper's Table 3); batch sizes count completions.

    `balance` weighs the two labels alike over all rows, or (`prompt`) first among the responses to each prompt: good
    and bad then come from one pool, and how often a prompt's answers are good on average teaches nothing.
    """

    sampled_responses: Annotated[int, Field(ge=0)] = 2
    constructed_responses: Annotated[int, Field(ge=0)] = 2
    sampling_temperature: Positive = 1.0
    train_batch_size: Count = 8
    eval_batch_size: Count = 8
    grad_accumulation: Count = 2
    epochs: Count = 3
    max_length: Count = 1024
    max_response_tokens: Count = 64
    eval_every: Count = 100
    early_stopping_patience: Count | None = 2
    center_coefficient: NonNegative = 0.01
    balance: Literal["all", "prompt"] = "all"
    heldout_share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    gradient_checkpointing: bool = True
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0, dropout=0.05)
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-5)

    @model_validator(mode="after")
    def _whole_rows(self):
        responses = self.sampled_responses + self.constructed_responses
        if responses < 1:
            raise ValueError("expected at least one response a prompt, found none")
        for name in ("train_batch_size", "eval_batch_size"):
            if (size := getattr(self, name)) % responses:
                raise ValueError(f"expected {name} a multiple of the {responses} responses of a prompt, found {size}")
        if self.max_response_tokens >= self.max_length:
            raise ValueError(f"expected max_response_tokens below {self.max_length}, found {self.max_response_tokens}")
        return self


class PolicyConfig(_Section):
    """Policy optimisation (the paper's Table 4, GRPO column); batch sizes count completions."""

    algorithm: Literal["grpo"] = "grpo"
    reward: Literal["reward_model", "simulated"] = "reward_model"
    generation_batch_size: Count = 32
    train_batch_size: Count = 8
    grad_accumulation: Count = 1
    updates_per_rollout: Count = 1
    num_generations: Annotated[int, Field(ge=2)] = 8
    epochs: Count = 1
    max_prompt_length: Count = 1600
    max_completion_length: Count = 64
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    kl_coefficient: NonNegative = 0.04
    kl: Literal["k1", "k2", "k3", "k3_weighted"] = "k3"
    clip_low: Positive = 0.2
    clip_high: Positive = 0.2
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    scale_advantages: bool = True
    loss_normalisation: Literal["sequence", "token", "constant"] = "sequence"
    missing_eos_penalty: NonNegative = 0.0
    gradient_checkpointing: bool = False
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0)
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-5)

    @model_validator(mode="after")
    def _whole_groups(self):
        for name in ("generation_batch_size", "train_batch_size"):
            if getattr(self, name) % self.num_generations:
                raise ValueError(
                    f"expected {name} to be a multiple of num_generations={self.num_generations} (a group is never "
                    f"split), found {getattr(self, name)}"
                )
        update = self.train_batch_size * self.grad_accumulation
        if self.generation_batch_size % update:
            raise ValueError(
                f"expected generation_batch_size to be a multiple of train_batch_size * grad_accumulation = {update}, "
                f"found {self.generation_batch_size}"
            )
        return self


class StudyConfig(_Section):
    """How many policies, and what each arm is."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    compliant: Annotated[int, Field(ge=1)] = 10
    violating: Annotated[int, Field(ge=1)] = 10
    assignment: Literal["blocked", "iid"] = "blocked"
    paired: bool = False
    compliant_query: Literal["induced", "clean"] = "induced"
    scramble_feedback: bool = False
    policies_per_chunk: Count | None = None
    setting: str = ""

    @model_validator(mode="after")
    def _pairs_match(self):
        if self.paired and self.compliant != self.violating:
            raise ValueError(f"paired: expected as many in each arm, found {self.compliant} and {self.violating}")
        if self.paired and self.assignment == "iid":
            raise ValueError("expected assignment=blocked with paired=true, found iid; a pair has one policy an arm")
        return self


class StatisticConfig(_Section):
    """Which of the four scores decides, fixed before the run, and how rates and intervals are computed."""

    primary: ScoreName = "clean_raw"
    secondary: ScoreName = "clean_net"
    target_fpr: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.10
    threshold_rule: Literal["conformal", "paper", "tolerance"] = "conformal"
    auroc_interval: Literal["auto", "newcombe", "bootstrap", "delong"] = "auto"
    level: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.90
    bootstrap_samples: Count = 10_000
    prevalences: tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...] = (0.5, 0.1, 0.01)
    null_alpha: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.01


class EvaluationConfig(_Section):
    """What is scored for each policy, and on how many held-out documents."""

    max_pairs: Count = 64
    batch_size: Count = 16
    control_pairs: Annotated[int, Field(ge=0)] = 8
    decoys: Annotated[int, Field(ge=0)] = 31
    placebos_same_form: Annotated[int, Field(ge=0)] = 19
    placebos_other_form: Annotated[int, Field(ge=0)] = 19
    noise_floor_pairs: Annotated[int, Field(ge=0)] = 8
    utility_examples: Annotated[int, Field(ge=0)] = 64


class OutputConfig(_Section):
    """What a run directory keeps beside the report."""

    save_adapters: bool = False
    log_every: Count = 8


class AuditConfig(_Section):
    """Everything one audit needs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] = "audit"
    description: str = ""
    model: ModelSection = ModelSection()
    data: DataConfig = DataConfig()
    canary: CanaryConfig = CanaryConfig()
    feedback: FeedbackConfig = FeedbackConfig()
    reward_model: RewardModelConfig = RewardModelConfig()
    policy: PolicyConfig = PolicyConfig()
    study: StudyConfig = StudyConfig()
    statistic: StatisticConfig = StatisticConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    output: OutputConfig = OutputConfig()

    @model_validator(mode="after")
    def _scrambled_is_scrambled(self):
        if self.study.scramble_feedback and self.policy.reward == "simulated":
            raise ValueError(
                "expected policy.reward=reward_model with study.scramble_feedback=true, found simulated: that feedback "
                "is not scrambled, so the run would be no null"
            )
        return self

    def to_yaml(self) -> str:
        """The resolved tree, every value, as YAML that loads back to an equal config."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
