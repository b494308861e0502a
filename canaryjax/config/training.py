"""The sections that say how reward models are trained, and with which adapter and optimiser anything is."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from canaryjax.config.fields import Alpha, Count, NonNegative, Positive, Rank, Section, Temperature

Target = Literal["q", "k", "v", "o", "gate", "up", "down", "head"]


class LoraConfig(Section):
    """Low-rank adapter of a reward model, a policy or a warm start.

    `rank_stabilised` scales the update by alpha / sqrt(rank) instead of alpha / rank, so that a higher rank does not
    learn more slowly (Kalajdzievski 2023). The target `head` is the output head; where it is tied to the embedding, the
    embedding stays as it is.
    """

    rank: Rank = 16
    """Columns of each of the adapter's two factors, r."""
    alpha: Alpha = 32.0
    """The update is scaled by alpha / rank, or by alpha / sqrt(rank) with `rank_stabilised`."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of an adapter's inputs dropped, while it trains only."""
    targets: tuple[Target, ...] = ("q", "k", "v", "o", "gate", "up", "down")
    """Projections with an adapter; `head` is the output head, which a reward model has not."""
    rank_stabilised: bool = False
    """Scale by alpha / sqrt(rank), so that a higher rank does not learn more slowly (Kalajdzievski 2023)."""

    @model_validator(mode="after")
    def _no_repeats(self):
        if not self.targets or len(set(self.targets)) < len(self.targets):
            found = list(self.targets)
            raise ValueError(f"expected `targets` to name at least one and none twice, found {found}; correct the list")
        return self


class OptimizerConfig(Section):
    """AdamW and its schedule; the paper gives the rate only, the rest is assumed."""

    learning_rate: Positive = 1e-5
    """Highest rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """After the warm-up: constant, or a linear or cosine fall to zero at the end of training."""
    warmup_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of all updates in which the rate rises linearly."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay (Loshchilov & Hutter 2019)."""
    max_grad_norm: Positive = 1.0
    """A gradient of larger norm is scaled down to it; each policy has a norm of its own."""


class RewardModelConfig(Section):
    """Scalar reward model (the paper's Table 3); batch sizes count completions.

    `balance` weighs the two labels alike over all rows, or (`prompt`) first among the responses to each prompt: good
    and bad then come from one pool, and how often a prompt's answers are good on average teaches nothing.
    """

    sampled_responses: Annotated[int, Field(ge=0)] = 2
    """Responses a prompt that the base samples."""
    constructed_responses: Annotated[int, Field(ge=0)] = 2
    """Responses a prompt that are made from the reference answer: with the whole canary, parts of it, none, or wrong.
    """
    sampling_temperature: Temperature = 1.0
    """Temperature of sampled responses."""
    train_batch_size: Count = 8
    """Responses a forward and backward pass; a multiple of a prompt's."""
    eval_batch_size: Count = 8
    """Responses a held-out pass; a multiple of a prompt's."""
    grad_accumulation: Count = 2
    """Passes an update."""
    epochs: Count = 3
    """Times each training row is seen."""
    max_length: Count = 1024
    """Tokens of prompt and response; a longer prompt loses the tail of its document."""
    max_response_tokens: Count = 64
    """Tokens of a sampled response, at most; prompts leave room for so many."""
    eval_every: Count = 100
    """Updates between held-out evaluations, for early stopping."""
    early_stopping_patience: Count | None = 2
    """Evaluations without a new lowest held-out loss before a policy's reward model stops and returns to its best; null
    trains to the end, as heldout_share=0 does.
    """
    center_coefficient: NonNegative = 0.01
    """Weight of the squared mean reward in the loss, which holds rewards near 0 on average."""
    balance: Literal["all", "prompt"] = "all"
    """Give both labels the same weight over all rows, or first among each prompt's responses (`prompt`)."""
    heldout_share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Share of the reward split's documents that is held out."""
    gradient_checkpointing: bool = True
    """Compute layers again in the backward pass: less memory, the same numbers."""
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0, dropout=0.05)
    """The reward model's adapter."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-5)
    """How reward models are optimised."""

    @model_validator(mode="after")
    def _whole_rows(self):
        responses = self.sampled_responses + self.constructed_responses
        if responses < 1:
            raise ValueError("expected `sampled_responses` + `constructed_responses` of at least 1, found 0; raise one")
        for name in ("train_batch_size", "eval_batch_size"):
            if (size := getattr(self, name)) % responses:
                raise ValueError(
                    f"expected `{name}` a multiple of the {responses} responses of a prompt (`sampled_responses` + "
                    f"`constructed_responses`), found {size}; change one of them"
                )
        if self.max_response_tokens >= self.max_length:
            raise ValueError(
                f"expected `max_response_tokens` below `max_length`={self.max_length}, found "
                f"{self.max_response_tokens}; lower it, or raise the other"
            )
        if "head" in self.lora.targets:
            raise ValueError(
                f"expected `lora.targets` without head, found {list(self.lora.targets)}; take it out: a reward model "
                "reads no vocabulary"
            )
        return self
