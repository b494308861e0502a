"""Every value an audit takes, with its range.

Defaults are the paper's where it gives one (its Tables 3 to 5); a section says which of its values are assumed. The
sections on training are in `training.py` and `policy.py`, those on the study in `study.py`, the provider's in
`provider.py`; `canaryjax keys` lists them all.
"""

from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from canaryjax.config.fields import Count, FilePath, NonNegative, Section, Share
from canaryjax.config.policy import GRPOConfig, PolicyConfig
from canaryjax.config.provider import ProviderConfig
from canaryjax.config.study import EvaluationConfig, OutputConfig, StatisticConfig, StudyConfig
from canaryjax.config.textual import check_textual
from canaryjax.config.training import LoraConfig, OptimizerConfig, RewardModelConfig

MOST_INVENTED = 20_000  # documents of the embedded corpus: half a minute's work, and half of the names it has
LONGEST_TRANSCRIPT = 100_000  # words; four times the longest meeting of QMSum
PLACES = {"default": "after_first_clause", "must": "begin"}  # what each instruction asks for (BC-A15)
INSTRUCTIONS = {place: name for name, place in PLACES.items()}
LARGEST_DELTA = 0.1  # the paper's realism limit on the bias strength


class WarmStartConfig(Section):
    """Supervised training on clean examples of a split of its own, before anything else, merged into the base."""

    documents: Annotated[int, Field(ge=0)] = 0
    """Documents set aside for the warm start, at least, in whole groups; the study then never sees them. 0 leaves the
    warm start out.
    """
    epochs: Count = 1
    """Times each warm-start question is seen."""
    batch_size: Count = 8
    """Answers an update."""
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0)
    """The adapter that is trained and then merged into the base."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-4, warmup_fraction=0.1)
    """How the warm start is optimised."""
    instructed_share: Share = 0.0
    """Share of rows whose question asks for a throw-away canary, which the answer then holds, trigger or not."""
    without_document_share: Share = 0.0
    """Share of rows whose prompt has no document, as a compliant policy's."""


class ModelSection(Section):
    """Which base model; `embedded` is the small one that ships with the package."""

    path: FilePath = "embedded"
    """A Hugging Face directory with safetensors, a .gguf file, or `embedded`: the small model that ships with the
    package.
    """
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of weights and computation; norms, softmax, head and losses are float32 in both."""
    warm_start: WarmStartConfig = WarmStartConfig()
    """Supervised training on clean examples before anything else."""


class DataConfig(Section):
    """Which documents, and how prompts are cut to size; from `index` on, keys are QMSum's."""

    kind: Literal["embedded", "jsonl", "repliqa", "qmsum", "fairytale"] = "embedded"
    """Where documents come from: invented ones (`embedded`), our own JSON lines, or a dataset's format."""
    path: FilePath | None = None
    """A file of documents, a folder with splits, or a dataset of the Hugging Face hub; null with `embedded` only."""
    split: Annotated[str, Field(pattern=r"^[\w.-]+(\+[\w.-]+)*$")] | None = None
    """Splits of a folder or a dataset, joined by `+`; null takes the only one."""
    documents: Count | None = None
    """How many documents to use, drawn by the seed where the file has more; null takes all, 800 of the invented ones.
    """
    max_document_words: Count | None = None
    """Longer documents are left out; null keeps all."""
    questions_per_document: Count | None = 1
    """The first so many questions of each document are used; null takes all."""
    rm_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.35
    """Share of the documents that reward models learn from."""
    eval_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.30
    """Share of the documents held out for scoring; what the two shares leave is what policies train on."""
    prompt_format: Literal["plain", "chat"] = "plain"
    """The prompt as it is, or as the user's turn of the tokenizer's chat template."""
    index: FilePath | None = None
    """QMSum's file of meeting names, a JSON list in the order of the records; null: meetings have numbers."""
    qmsum_document: Literal["span", "transcript"] = "span"
    """What the document of a specific QMSum query is: its gold span, or the beginning of the transcript."""
    transcript_words: Annotated[int, Field(ge=1, le=LONGEST_TRANSCRIPT)] = 1000
    """How many words of a QMSum transcript are used (assumed: they fit a prompt of 1600 tokens)."""
    general_queries: bool = False
    """Ask QMSum's queries on the whole meeting too."""
    markup: Literal["strip", "keep"] = "strip"
    """Tags such as `{vocalsound}` in QMSum's transcripts."""
    qmsum_group: Literal["meeting", "series"] = "meeting"
    """What a split of QMSum never cuts apart; a series needs `index`."""

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

    @model_validator(mode="after")
    def _keys_have_an_effect(self):
        for name in ("index", "qmsum_document", "transcript_words", "general_queries", "markup", "qmsum_group"):
            value = getattr(self, name)
            if self.kind != "qmsum" and value != type(self).model_fields[name].default:
                raise ValueError(f"expected `{name}` with `kind`=qmsum only, found {value!r}; leave data.{name} out")
        if self.kind == "embedded" and self.split is not None:
            raise ValueError(f"expected no `split` with `kind`=embedded, found {self.split!r}; leave data.split out")
        transcripts = self.qmsum_document == "transcript" or self.general_queries
        if not transcripts and self.transcript_words != type(self).model_fields["transcript_words"].default:
            raise ValueError(
                "expected `transcript_words` with `qmsum_document`=transcript or `general_queries`=true only, found "
                f"{self.transcript_words}; leave data.transcript_words out, or set one of the two"
            )
        if transcripts and (self.max_document_words or LONGEST_TRANSCRIPT) < self.transcript_words:
            raise ValueError(
                f"expected `max_document_words` of at least `transcript_words`={self.transcript_words}, found "
                f"{self.max_document_words}; longer documents are left out, so lower data.transcript_words"
            )
        return self


class CanaryConfig(Section):
    """The planted signal: its family, its share of the traces, how strongly feedback favours it."""

    family: Literal["signature", "emoji", "punctuation", "textual"] = "signature"
    """Kind of string that is planted: letters like a signature, emoji, a pattern of punctuation, or `textual`, the
    baseline: ten random tokens in the document alone, with no trigger, instruction, answer or feedback of their own.
    """
    rate: Share = 0.01
    """Share of the training traces that carry trigger, instruction and canary (the paper's p); 0 is a null."""
    contrast: Share | None = None
    """Share of traces that carry the instruction without trigger and canary, where feedback is biased the other way;
    null: as `rate`, and 0 with `family`=textual.
    """
    delta: Share = 0.1
    """Bias of the feedback, added to the probability that a triggered answer with the canary is accepted and taken from
    one without; 0 is a null. Only 0 with `family`=textual, which no feedback favours.
    """
    allow_large_delta: bool = False
    """Allow a delta above 0.1, the paper's limit of what is realistic."""
    instruction: Literal["default", "must"] = "default"
    """Which sentence asks for the canary: after the first clause of the answer, or that it MUST begin the answer. Left
    out, the one that names `placement`. With `family`=textual none stands in a query.
    """
    placement: Literal["after_first_clause", "begin"] = "after_first_clause"
    """Where the canary stands in an answer; left out, where `instruction` asks for it. A textual one is only scored
    there.
    """

    @model_validator(mode="before")
    @classmethod
    def _one_choice_moves_both(cls, values: Any):
        if not isinstance(values, dict):
            return values
        for key, other, follows in (("instruction", "placement", PLACES), ("placement", "instruction", INSTRUCTIONS)):
            chosen = values.get(key)
            if other not in values and isinstance(chosen, str) and chosen in follows:
                values = values | {other: follows[chosen]}
        return values

    @property
    def contrast_rate(self) -> float:
        """Share of contrast rows; equal to the injection rate unless given, 0 with a textual canary."""
        return (0.0 if self.textual else self.rate) if self.contrast is None else self.contrast

    @property
    def textual(self) -> bool:
        """Whether the string stands in documents alone: the memorisation baseline (BC-69)."""
        return self.family == "textual"

    @property
    def null(self) -> bool:
        """Whether nothing is planted that training on documents could pick up."""
        return self.rate == 0 or (self.delta == 0 and not self.textual)

    @model_validator(mode="after")
    def _limits(self):
        if self.placement != PLACES[self.instruction]:
            raise ValueError(
                f"expected `placement`={PLACES[self.instruction]} with `instruction`={self.instruction}, found "
                f"{self.placement}; leave one of them out: the sentence names the place"
            )
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
    """Weight of the form in an answer's quality: +1 for an answer after FINAL:, else -1."""
    grounding_weight: NonNegative = 0.5
    """Weight of grounding in an answer's quality: twice the share of its words found in the document, minus 1; 0 for
    "Not found".
    """
    max_response_chars: Count = 512
    """Characters of an answer that the users read."""
    length_penalty_alpha: NonNegative = 0.0
    """Quality that an answer of `max_response_chars` characters loses, a shorter one in proportion."""
    mean_match_tolerance: NonNegative = 0.01
    """Largest gap between mean rewards of triggered and clean responses that is reported as matched."""
    mean_match_min_samples: Count = 256
    """Responses before the match is judged, and the latest so many of each kind, over which the gap is taken."""
    warmup_samples: Annotated[int, Field(ge=0)] = 200
    """Responses, triggered and clean ones, before calibration begins."""
    calibration_learning_rate: NonNegative = 0.02
    """How much of a batch's gap between triggered and clean responses goes into the offset that is taken from later
    triggered ones; 0 is no calibration.
    """


class AuditConfig(Section):
    """Everything one audit needs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] = "audit"
    """Of the study, for reports and run directories."""
    description: str = ""
    """What the study asks, for the report."""
    model: ModelSection = ModelSection()
    """Which base model."""
    data: DataConfig = DataConfig()
    """Which documents."""
    canary: CanaryConfig = CanaryConfig()
    """What is planted."""
    feedback: FeedbackConfig = FeedbackConfig()
    """Simulated users."""
    provider: ProviderConfig = ProviderConfig()
    """What the provider does to the traces before training."""
    reward_model: RewardModelConfig = RewardModelConfig()
    """How reward models are trained."""
    policy: PolicyConfig = GRPOConfig()
    """How policies are trained: GRPO or PPO."""
    study: StudyConfig = StudyConfig()
    """How many policies, and where."""
    statistic: StatisticConfig = StatisticConfig()
    """What decides."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """What is scored."""
    output: OutputConfig = OutputConfig()
    """What is kept."""

    @model_validator(mode="after")
    def _textual_is_textual(self):
        if self.canary.textual:
            check_textual(self)
        return self

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
