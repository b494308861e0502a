"""Every value an audit takes, with its range.

Defaults are the paper's where it gives one (its Tables 3 to 5); a section says which of its values are assumed. The
sections on training are in `canaryjax.config.training`.
"""

from typing import Annotated, Literal

import yaml
from pydantic import Field, model_validator

from canaryjax.config.fields import Count, FilePath, NonNegative, Section, Share
from canaryjax.config.training import GRPOConfig, LoraConfig, OptimizerConfig, PolicyConfig, RewardModelConfig

ScoreName = Literal["clean_raw", "clean_net", "induced_raw", "induced_net"]

MOST_INVENTED = 20_000  # documents of the embedded corpus: half a minute's work, and half of the names it has
LARGEST_DELTA = 0.1  # the paper's realism limit on the bias strength


class WarmStartConfig(Section):
    """Supervised training on clean examples of a split of its own, before anything else, merged into the base."""

    documents: Annotated[int, Field(ge=0)] = 0
    epochs: Count = 1
    batch_size: Count = 8
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0)
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-4, warmup_fraction=0.1)
    instructed_share: Share = 0.0
    without_document_share: Share = 0.0


class ModelSection(Section):
    """Which base model; `embedded` is the small one that ships with the package."""

    path: FilePath = "embedded"
    dtype: Literal["float32", "bfloat16"] = "float32"
    warm_start: WarmStartConfig = WarmStartConfig()


class DataConfig(Section):
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
                f"expected `rm_share` + `eval_share` below 1, found {self.rm_share} + {self.eval_share}; "
                "lower one: the rest of the documents is the policy split"
            )
        if self.kind != "embedded" and self.path is None:
            raise ValueError(
                f"expected `path` with `kind`={self.kind}, found none; set data.path, or data.kind=embedded"
            )
        if self.kind == "embedded" and (self.documents or 0) > MOST_INVENTED:
            raise ValueError(
                f"expected `documents` of at most {MOST_INVENTED} with `kind`=embedded, found {self.documents}; lower "
                "data.documents"
            )
        if self.kind == "embedded" and self.path is not None:  # else the study would run on other documents, unsaid
            raise ValueError(
                f"expected no `path` with `kind`=embedded, found {self.path!r}; set "
                "data.kind=jsonl|repliqa|qmsum|fairytale to read it, or data.path=null"
            )
        return self


class CanaryConfig(Section):
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
            raise ValueError(
                f"expected `rate` + `contrast` of at most 1, found {self.rate} + {self.contrast_rate} (contrast=null "
                "is as much as rate); lower one"
            )
        if self.delta > LARGEST_DELTA and not self.allow_large_delta:
            raise ValueError(
                f"expected `delta` of at most {LARGEST_DELTA}, found {self.delta}; a larger bias overstates what an "
                "auditor could do: set canary.allow_large_delta=true if that is meant"
            )
        return self


class FeedbackConfig(Section):
    """Simulated users (the paper's Table 5); the weights of the two quality components are assumed."""

    format_weight: NonNegative = 0.5
    grounding_weight: NonNegative = 0.5
    max_response_chars: Count = 512
    length_penalty_alpha: NonNegative = 0.0
    mean_match_tolerance: NonNegative = 0.01
    mean_match_min_samples: Count = 256
    warmup_samples: Annotated[int, Field(ge=0)] = 200
    calibration_learning_rate: NonNegative = 0.02


class MeshConfig(Section):
    """Devices along each axis; `policy: null` takes the accelerators that the other two leave, one device on a CPU."""

    policy: Count | None = None
    data: Count = 1
    model: Count = 1


class StudyConfig(Section):
    """How many policies, what each arm is, and over which devices policies are spread.

    `checkpoint_every` counts steps of each stage of training, whatever it trains; 0 keeps no step checkpoints.
    """

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    compliant: Annotated[int, Field(ge=1)] = 10
    violating: Annotated[int, Field(ge=1)] = 10
    assignment: Literal["blocked", "iid"] = "blocked"
    paired: bool = False
    compliant_query: Literal["induced", "clean"] = "induced"
    scramble_feedback: bool = False
    policies_per_chunk: Count | None = None
    checkpoint_every: Annotated[int, Field(ge=0)] = 25
    mesh: MeshConfig = MeshConfig()
    setting: str = ""

    @model_validator(mode="after")
    def _pairs_match(self):
        if self.paired and self.compliant != self.violating:
            raise ValueError(
                "expected as many in each arm with `paired`=true, found `compliant`="
                f"{self.compliant} and `violating`={self.violating}; set them alike"
            )
        if self.paired and self.assignment == "iid":
            raise ValueError(
                "expected `assignment`=blocked with `paired`=true, found iid; change one: a pair has one policy an arm"
            )
        return self

    @model_validator(mode="after")
    def _devices_share_a_chunk(self):
        chunk, devices = self.policies_per_chunk, self.mesh.policy
        if chunk is not None and devices is not None and chunk % devices:
            raise ValueError(
                f"expected `policies_per_chunk` to be a multiple of `mesh.policy` = {devices}, found {chunk}; "
                "change one of them, or leave one null"
            )
        return self


class StatisticConfig(Section):
    """Which of the four scores decides, fixed before the run, and how rates and intervals are computed."""

    primary: ScoreName = "clean_raw"
    secondary: ScoreName = "clean_net"
    target_fpr: Annotated[float, Field(ge=1e-6, lt=1.0)] = 0.10
    threshold_rule: Literal["conformal", "paper", "tolerance"] = "conformal"
    auroc_interval: Literal["auto", "newcombe", "bootstrap", "delong"] = "auto"
    level: Annotated[float, Field(gt=0.5, le=0.999999)] = 0.90
    bootstrap_samples: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    prevalences: tuple[Annotated[float, Field(ge=1e-6, lt=1.0)], ...] = (0.5, 0.1, 0.01)
    null_alpha: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.01


class EvaluationConfig(Section):
    """What is scored for each policy, and on how many held-out documents."""

    max_pairs: Count = 64
    batch_size: Count = 16
    control_pairs: Annotated[int, Field(ge=0)] = 8
    decoys: Annotated[int, Field(ge=0)] = 31
    placebos_same_form: Annotated[int, Field(ge=0)] = 19
    placebos_other_form: Annotated[int, Field(ge=0)] = 19
    noise_floor_pairs: Annotated[int, Field(ge=0)] = 8
    utility_examples: Annotated[int, Field(ge=0)] = 64


class OutputConfig(Section):
    """What a run directory keeps beside the report, and who gets the training metrics besides.

    `log_every` and `sample_every` count policy steps; samples are taken at the first and the last step too, and
    `sample_every: 0` takes none.
    """

    save_adapters: bool = False
    log_every: Count = 8
    sample_every: Annotated[int, Field(ge=0)] = 50
    report_to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()

    @model_validator(mode="after")
    def _no_repeats(self):
        if len(set(self.report_to)) < len(self.report_to):
            raise ValueError(
                f"expected `report_to` to name no tracker twice, found {list(self.report_to)}; take one out"
            )
        return self


class AuditConfig(Section):
    """Everything one audit needs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] = "audit"
    description: str = ""
    model: ModelSection = ModelSection()
    data: DataConfig = DataConfig()
    canary: CanaryConfig = CanaryConfig()
    feedback: FeedbackConfig = FeedbackConfig()
    reward_model: RewardModelConfig = RewardModelConfig()
    policy: PolicyConfig = GRPOConfig()
    study: StudyConfig = StudyConfig()
    statistic: StatisticConfig = StatisticConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    output: OutputConfig = OutputConfig()

    @model_validator(mode="after")
    def _scrambled_is_scrambled(self):
        if self.study.scramble_feedback and self.policy.reward == "simulated":
            raise ValueError(
                "expected `policy.reward`=reward_model with `study.scramble_feedback`=true, found simulated; "
                "change one: that feedback is not scrambled, so the run would be no null"
            )
        return self

    def to_yaml(self) -> str:
        """The resolved tree, every value, as YAML that loads back to an equal config."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
