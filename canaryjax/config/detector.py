"""The config of a detector run: which site, which model, how it is asked, and how answers are weighed."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from canaryjax.config.fields import Count, FilePath, NonNegative, Positive, Section, Share

ProbeName = Literal["completion", "who", "year", "archive", "paraphrase"]


class SiteConfig(Section):
    """The site's own files; all of them are secret."""

    folder: FilePath
    """Folder that `canaryjax detector generate` wrote: word lists, shapes, manifest; famous facts in positives.yaml."""
    secrets: FilePath
    """Folder of the files seed, control_seed and edge_secret, which nobody but their owner may read."""
    request_log: FilePath | None = None
    """Log that the edge wrote, one JSON object a line; null where no edge stamps pages."""
    vendor: str | None = None
    """The model's maker, as the request log names crawlers' owners; null where the prior is not read from the log."""


class ModelConfig(Section):
    """The model that is asked."""

    backend: Literal["local", "api"] = "local"
    """local: weights run here. api: an endpoint that speaks OpenAI's chat completions."""
    path: FilePath | None = None
    """local: a Hugging Face folder, a .gguf file, or embedded."""
    base_url: str | None = None
    """api: address of the endpoint, up to and with /v1; null is OpenAI's own."""
    name: str | None = None
    """api: the model's name there."""
    api_key_variable: str = "OPENAI_API_KEY"
    """api: environment variable that holds the key."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """api: most calls under way at once. local: prompts a batch."""
    timeout: Positive = 60.0
    """api: seconds that one call may take."""
    retries: Annotated[int, Field(ge=0, le=20)] = 6
    """api: further tries of a call after status 408, 409, 429, 5xx or a lost connection."""
    logprobs: Literal["auto", "off"] = "auto"
    """Whether log-probs of whole sentences are asked for where the backend proves that it gives them."""
    price_in: NonNegative = 0.0
    """Price of a million tokens read, in the currency of `spending_limit`."""
    price_out: NonNegative = 0.0
    """Price of a million tokens written."""
    spending_limit: Positive | None = None
    """Most that a run may cost by these prices; null has no limit, and then prices are not needed."""

    @model_validator(mode="after")
    def _consistent(self):
        if self.backend == "local" and self.path is None:
            raise ValueError("expected model.path with backend local, found none; name the model's folder or file")
        if self.backend == "api" and self.name is None:
            raise ValueError("expected model.name with backend api, found none; name the model as the endpoint does")
        if self.spending_limit is not None and self.price_in == 0 and self.price_out == 0:
            raise ValueError(
                "expected model.price_in or model.price_out with a spending limit, found neither; without prices "
                "nothing would ever be spent"
            )
        return self


class ProbingConfig(Section):
    """How often, and how, each target is asked about."""

    kinds: tuple[ProbeName, ...] = ("completion", "who", "year", "archive", "paraphrase")
    """Probes of each target."""
    greedy: bool = True
    """Ask once at temperature 0."""
    temperature: Annotated[float, Field(gt=0.0, le=2.0)] = 0.8
    """The higher temperature."""
    repeats: Annotated[int, Field(ge=0, le=100)] = 2
    """Times that each probe is asked at the higher temperature."""
    max_tokens: Annotated[int, Field(ge=4, le=4096)] = 64
    """Longest answer, in tokens."""
    prompt_format: Literal["chat", "plain"] = "chat"
    """local: whether the model's chat template is used. An endpoint of chat completions uses its own."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the sampler at the higher temperature."""
    negatives: Annotated[int, Field(ge=1)] = 20
    """Never-published sentences that are asked about."""
    positives: Annotated[int, Field(ge=0)] = 8
    """Famous facts that are asked about; fewer where positives.yaml holds fewer."""
    most_per_group: Count | None = None
    """Most canaries asked about of each tier and occurrence count, chosen by lot; null asks about all."""
    max_calls: Count | None = None
    """A run that would need more calls is refused before the first; null has no limit."""

    @model_validator(mode="after")
    def _consistent(self):
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise ValueError(f"expected one or more probes, each once, found {list(self.kinds)}; correct probing.kinds")
        if not self.greedy and self.repeats == 0:
            raise ValueError("expected answers, found greedy false and repeats 0; ask at one of the two temperatures")
        return self


class PriorConfig(Section):
    """Probability, before anything is asked, that a group of sentences was trained on, by what the log shows."""

    no_log: Share = 0.5
    """Where no request log is given, or the maker is not named."""
    no_fetch: Share = 0.05
    """No verified crawler of the maker fetched any of the group's pages."""
    some_pages: Share = 0.3
    """Verified crawlers fetched some of them."""
    all_pages: Share = 0.5
    """Verified crawlers fetched each of them."""


class EvidenceConfig(Section):
    """How answers become findings; declared before the run."""

    rule: Literal["literal", "bits"] = "literal"
    """literal: a full decode, or four net fields in each of two answers. bits: a full decode, or two answers of at
    least `bits` bits each.
    """
    bits: Positive = 36.0
    """Evidence that an answer must carry under the rule bits: log2 of the vocabulary sizes of its net fields."""
    level: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95
    """Of all intervals."""
    alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """False-positive rate over all looks at one model together."""
    permutations: Annotated[int, Field(ge=999, le=10_000_000)] = 99_999
    """Random permutations where there are too many to go through all."""
    min_k_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    """Share of a sentence's tokens, the least likely, that Min-K% averages."""
    prior: PriorConfig = PriorConfig()
    """Prior probabilities by what the request log shows."""


class DetectorConfig(Section):
    """A detector run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] = "detector"
    """Of the run and its default folder."""
    site: SiteConfig
    """The site's files and secrets."""
    model: ModelConfig
    """The model that is asked."""
    probing: ProbingConfig = ProbingConfig()
    """How often, and how."""
    evidence: EvidenceConfig = EvidenceConfig()
    """How answers become findings."""
