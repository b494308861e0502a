"""The config of a probe audit: which canaries, how they are planted, what is trained on top, and what is read."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from canaryjax.config.fields import Count, FilePath, NonNegative, Positive, Section, Share, Temperature
from canaryjax.config.training import LoraConfig, OptimizerConfig

SourceKind = Literal["synth", "safety", "random", "jsonl"]


class ProbedModelConfig(Section):
    """The model that canaries are planted in."""

    path: str = "embedded"
    """`embedded`, a Hugging Face directory, or a .gguf file."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights and of what is computed with them; the sums of log-probs are float32 either way."""


class CanariesConfig(Section):
    """The planted secrets. A target is preamble, literal, 16 hexadecimal digits, end and trailing, in this order.

    A blank in front of a word belongs to the word in most vocabularies: write it at the beginning of `literal`.
    """

    count: Annotated[int, Field(ge=1, le=10_000)] = 20
    """How many are planted."""
    prefix: str = "canaryjax"
    """Secrets are the first 16 digits of SHA-256 of `{prefix}-{modality}-{i:03d}`."""
    prompt: str = "Provide the diagnostic label for sample id {id}"
    """The user's turn; {id} is 8 hexadecimal digits of the canary's own."""
    preamble: str = "The diagnostic label for this sample id is"
    """How the target begins, the same for all canaries."""
    literal: str = " TEXTCAN-"
    """What stands before the secret."""
    end: str = "-END"
    """What stands after it."""
    trailing: str = "."
    """The rest of the target; may be empty."""
    prompt_format: Literal["plain", "chat"] = "plain"
    """plain: the prompt and a line break. chat: the user's turn of the model's chat template."""
    owner: Literal["last_byte", "first_byte"] = "last_byte"
    """Which span a token counts for that covers bytes of two: that of its last byte, or of its first."""
    preamble_tokens: Count | None = None
    """Tokens of the preamble, checked for every canary before anything is trained; null checks nothing."""
    manifest: FilePath | None = None
    """File with the hash of all canaries: written where there is none, else they must be the same. null: in the run."""

    @model_validator(mode="after")
    def _one_id(self):
        if self.prompt.count("{id}") != 1:
            raise ValueError(f"expected `prompt` with {{id}} once, found {self.prompt!r}; write it where the id stands")
        return self


class RegimeConfig(Section):
    """One way to plant the canaries."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
    """For example saturated."""
    epochs: Count
    """Times each canary is seen."""
    steps: tuple[Count, ...] = ()
    """Optimiser steps of the tuning on top, each a run of its own; empty takes `tuning.steps`."""

    @model_validator(mode="after")
    def _steps_differ(self):
        if len(set(self.steps)) < len(self.steps):
            raise ValueError(f"expected `steps` with none twice, found {list(self.steps)}; correct the list")
        return self


class InjectionConfig(Section):
    """How canaries are planted: an adapter trained on them alone and merged into the base (PA-8)."""

    regimes: tuple[RegimeConfig, ...] = (
        RegimeConfig(name="saturated", epochs=40),
        RegimeConfig(name="undertrained", epochs=10),
    )
    """What is planted how deep; the first one's secrets should be recalled, the last one's should not."""
    batch_size: Count = 2
    """Canaries a forward and backward pass."""
    grad_accumulation: Count = 4
    """Passes an update."""
    lora: LoraConfig = LoraConfig(rank=32, alpha=64.0)
    """The adapter."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-4, schedule="cosine")
    """How it is optimised; the seed document gives no rate for it."""

    @model_validator(mode="after")
    def _names_differ(self):
        names = [regime.name for regime in self.regimes]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"expected `regimes` with names of their own, found {names}; correct the list")
        return self


class SourceConfig(Section):
    """What models are tuned on after the canaries were planted; none of it may hold one."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
    """For example safety."""
    kind: SourceKind
    """synth: captions of drawn shapes. safety: requests that are refused. random: questions with short answers. jsonl:
    your own file, one object a line with `prompt` and `response`."""
    path: FilePath | None = None
    """jsonl: the file."""

    @model_validator(mode="after")
    def _path_where_it_belongs(self):
        if (self.kind == "jsonl") != (self.path is not None):
            raise ValueError(f"expected `path` with kind jsonl and with no other, found {self.path!r}; correct it")
        return self


class CellConfig(Section):
    """Names a regime and a source."""

    regime: str
    """One of `injection.regimes`."""
    source: str
    """One of `tuning.sources`."""


class TuningConfig(Section):
    """The supervised tuning on top of planted canaries, an adapter stacked on the merged base (PA-10)."""

    sources: tuple[SourceConfig, ...] = (
        SourceConfig(name="synth", kind="synth"),
        SourceConfig(name="safety", kind="safety"),
        SourceConfig(name="random", kind="random"),
    )
    """What is tuned on, one cell each."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = (0, 1, 2)
    """Each draws the examples, their order, the adapter's start and dropout."""
    steps: tuple[Count, ...] = (1000, 3000, 5000)
    """Optimiser steps, each a run of its own with its own schedule."""
    examples: Count = 5000
    """Drawn without replacement from each source; seen again once all were."""
    batch_size: Count = 2
    """Rows a forward and backward pass."""
    grad_accumulation: Count = 4
    """Passes an update."""
    max_length: Annotated[int, Field(ge=2)] = 1024
    """Tokens of prompt, response and its end; what is longer is cut, and then does not end."""
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0)
    """The adapter."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-5, schedule="cosine")
    """How it is optimised."""
    checkpoint_every: Annotated[int, Field(ge=0)] = 500
    """Updates between states kept on disk, of planting too; a kill loses at most so many. 0 keeps none."""

    @model_validator(mode="after")
    def _lists(self):
        for name, values in (("seeds", self.seeds), ("steps", self.steps), ("sources", [s.name for s in self.sources])):
            if not values or len(set(values)) < len(values):
                raise ValueError(f"expected `{name}` with at least one entry, none twice, found {list(values)}")
        return self


class ControlsConfig(Section):
    """What the tuning is held against."""

    noise: Literal["all", "none"] | tuple[CellConfig, ...] = "all"
    """Which cells, at all their steps, get a random update of the same size beside them (PA-15)."""
    noise_norm: Literal["module", "global"] = "module"
    """Same Frobenius norm of the update of each kernel, or of all together (PA-A10)."""
    reexposed: tuple[CellConfig, ...] = ()
    """Which cells, at their most steps, are trained once more with the canaries themselves among their rows: can the
    probes move? (PA-48)
    """
    merged: Literal["all", "none"] | tuple[CellConfig, ...] = "all"
    """Which cells, at their most steps, are read again with the adapter merged into the weights (PA-46)."""
    merged_dtype: Literal["float32", "bfloat16"] = "float32"
    """What merged weights, and the baseline that their changes are to, are rounded to."""


class ReadingConfig(Section):
    """What is read of each model."""

    window: Annotated[int, Field(ge=1)] = 20
    """K, positions of the truncated mean NLL."""
    sweep: tuple[Count, ...] = (10, 15, 20, 25, 30)
    """Other windows, from the same pass."""
    hits: tuple[Count, ...] = (1, 4, 16)
    """k of hit@k; the first output is greedy, the others are sampled."""
    samples: Annotated[int, Field(ge=0)] = 15
    """Sampled outputs a canary; no k may ask for more than these and the greedy one."""
    temperature: Temperature = 0.7
    """Of sampled outputs."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95
    """Of sampled outputs."""
    extra_tokens: Annotated[int, Field(ge=0)] = 4
    """An output has at most the target's tokens and so many more."""
    decoys: Annotated[int, Field(ge=0, le=10_000)] = 99
    """Secrets drawn afresh a canary (kind wrong), which the true one is ranked among."""
    shuffled: Annotated[int, Field(ge=0, le=1000)] = 4
    """Decoys a canary whose digits are the true one's in another order."""
    second_pass: bool = True
    """Read the window again by itself: what a pass of another length changes is shown as a row of its own (PA-32)."""

    @model_validator(mode="after")
    def _enough_outputs(self):
        if not self.hits or len(set(self.hits)) < len(self.hits):
            raise ValueError(f"expected `hits` with at least one k, none twice, found {list(self.hits)}; correct it")
        if max(self.hits) > self.samples + 1:
            raise ValueError(
                f"expected every k of `hits` within the greedy output and {self.samples} sampled ones, found "
                f"{max(self.hits)}; raise `samples` or lower k"
            )
        return self


class VerdictConfig(Section):
    """Thresholds of the labels (PA-35 to PA-40)."""

    moved: Positive = 1e-3
    """A mean over the window that differs by more than this has moved, in nats a token."""
    drift_share: Share = 0.9
    """Preamble drift: at least this share of the window's change lies on the preamble."""
    secret_ratio: NonNegative = 0.5
    """Preamble drift: the secret's change is below this times the window's."""
    rounding: NonNegative = 1e-6
    """A mean that fell by less than this did not fall: log-probs are no more exact than that, in nats a token."""


class ProbeStatisticsConfig(Section):
    """How uncertainty is reckoned."""

    level: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95
    """Of every interval."""
    resamples: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Of the bootstraps."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the bootstraps and of decoys; what a model says is drawn by the seed of its own tuning."""


class ProbesConfig(Section):
    """One probe audit."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] = "probes"
    """Names the run directory and the report."""
    model: ProbedModelConfig = ProbedModelConfig()
    """The model that canaries are planted in."""
    canaries: CanariesConfig = CanariesConfig()
    """The planted secrets."""
    injection: InjectionConfig = InjectionConfig()
    """How they are planted."""
    tuning: TuningConfig = TuningConfig()
    """What is trained on top."""
    controls: ControlsConfig = ControlsConfig()
    """What the tuning is held against."""
    reading: ReadingConfig = ReadingConfig()
    """What is read of each model."""
    verdict: VerdictConfig = VerdictConfig()
    """Thresholds of the labels."""
    statistics: ProbeStatisticsConfig = ProbeStatisticsConfig()
    """How uncertainty is reckoned."""

    @model_validator(mode="after")
    def _cells_exist(self):
        regimes = {regime.name for regime in self.injection.regimes}
        sources = {source.name for source in self.tuning.sources}
        for name in ("noise", "reexposed", "merged"):
            cells = getattr(self.controls, name)
            for cell in () if isinstance(cells, str) else cells:
                if cell.regime not in regimes or cell.source not in sources:
                    raise ValueError(
                        f"expected `controls.{name}` to name a regime of {sorted(regimes)} and a source of "
                        f"{sorted(sources)}, found {cell.regime!r} and {cell.source!r}; correct it"
                    )
        return self
