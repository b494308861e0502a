"""The sections that say how reward models and policies are trained."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from canaryjax.config.fields import Alpha, Count, NonNegative, Positive, Rank, Section, Share, Temperature

Target = Literal["q", "k", "v", "o", "gate", "up", "down", "head"]


class LoraConfig(Section):
    """Low-rank adapter of a reward model, a policy or a warm start.

    `rank_stabilised` scales the update by alpha / sqrt(rank) instead of alpha / rank, so that a higher rank does not
    learn more slowly (Kalajdzievski 2023). The target `head` is the output head; where it is tied to the embedding, the
    embedding stays as it is.
    """

    rank: Rank = 16
    alpha: Alpha = 32.0
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    targets: tuple[Target, ...] = ("q", "k", "v", "o", "gate", "up", "down")
    rank_stabilised: bool = False

    @model_validator(mode="after")
    def _no_repeats(self):
        if not self.targets or len(set(self.targets)) < len(self.targets):
            found = list(self.targets)
            raise ValueError(f"expected `targets` to name at least one and none twice, found {found}; correct the list")
        return self


class OptimizerConfig(Section):
    """AdamW and its schedule; the paper gives the rate only, the rest is assumed."""

    learning_rate: Positive = 1e-5
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    warmup_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0


class RewardModelConfig(Section):
    """Scalar reward model (the paper's Table 3); batch sizes count completions.

    `balance` weighs the two labels alike over all rows, or (`prompt`) first among the responses to each prompt: good
    and bad then come from one pool, and how often a prompt's answers are good on average teaches nothing.
    """

    sampled_responses: Annotated[int, Field(ge=0)] = 2
    constructed_responses: Annotated[int, Field(ge=0)] = 2
    sampling_temperature: Temperature = 1.0
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


class PolicySection(Section):
    """What both algorithms of policy optimisation take; batch sizes count completions."""

    reward: Literal["reward_model", "simulated"] = "reward_model"
    epochs: Count = 1
    max_prompt_length: Count = 1600
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0)


class GRPOConfig(PolicySection):
    """Group-relative policy optimisation (the paper's Table 4, GRPO column)."""

    algorithm: Literal["grpo"] = "grpo"
    generation_batch_size: Count = 32
    train_batch_size: Count = 8
    grad_accumulation: Count = 1
    updates_per_rollout: Count = 1
    num_generations: Annotated[int, Field(ge=2)] = 8
    max_completion_length: Count = 64
    temperature: Temperature = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    kl_coefficient: NonNegative = 0.04
    kl: Literal["k1", "k2", "k3", "k3_weighted"] = "k3"
    clip_low: Share = 0.2
    clip_high: NonNegative = 0.2
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    scale_advantages: bool = True
    loss_normalisation: Literal["sequence", "token", "constant"] = "sequence"
    missing_eos_penalty: NonNegative = 0.0
    gradient_checkpointing: bool = False
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-5)

    @property
    def samples_per_prompt(self) -> int:
        """Completions a prompt."""
        return self.num_generations

    @property
    def completions_per_step(self) -> int:
        """Completions of one rollout."""
        return self.generation_batch_size

    @property
    def batch_keys(self) -> str:
        """What makes a rollout as large as it is, for messages."""
        return "policy.generation_batch_size"

    @property
    def passes_per_step(self) -> int:
        """Times a rollout is gone through."""
        return self.updates_per_rollout

    @model_validator(mode="after")
    def _whole_groups(self):
        for name in ("generation_batch_size", "train_batch_size"):
            if getattr(self, name) % self.num_generations:
                raise ValueError(
                    f"expected `{name}` to be a multiple of `num_generations`={self.num_generations} (a group is never "
                    f"split), found {getattr(self, name)}; change one of them"
                )
        update = self.train_batch_size * self.grad_accumulation
        if self.generation_batch_size % update:
            raise ValueError(
                f"expected `generation_batch_size` to be a multiple of `train_batch_size` * `grad_accumulation` "
                f"= {update}, found {self.generation_batch_size}; change one of them"
            )
        updates = self.generation_batch_size // update * self.updates_per_rollout
        once = "updates_per_rollout=1 and train_batch_size * grad_accumulation to generation_batch_size"
        if self.top_p < 1.0 and updates > 1:  # the filter is not part of the law in training: no old log-probs
            raise ValueError(
                f"expected `top_p`=1 with {updates} updates a rollout (`updates_per_rollout`), found {self.top_p}; "
                f"set top_p=1, or {once}"
            )
        if self.lora.dropout > 0 and updates > 1:
            raise ValueError(
                f"expected `lora.dropout`=0 with {updates} updates a rollout (`updates_per_rollout`), found "
                f"{self.lora.dropout}; the ratio of new to old log-probs would hold its noise: set it to 0, or {once}"
            )
        return self


class AdaptiveKLConfig(Section):
    """A KL coefficient that follows a target, in nats a completion (Ziegler et al. 2019)."""

    target: Positive = 6.0
    horizon: Count = 10_000


class PPOConfig(PolicySection):
    """Proximal policy optimisation (the paper's Table 4, PPO column); what it does not give is TRL's default, assumed.

    A rollout holds train_batch_size * grad_accumulation * mini_batches completions.
    """

    algorithm: Literal["ppo"] = "ppo"
    train_batch_size: Count = 1
    grad_accumulation: Count = 4
    mini_batches: Count = 2
    ppo_epochs: Count = 1
    rollout_forward_batch_size: Count = 16
    samples_per_prompt: Count = 1
    max_completion_length: Count = 32
    temperature: Temperature = 0.7
    kl_coefficient: NonNegative = 0.01
    adaptive_kl: AdaptiveKLConfig | None = None
    kl: Literal["k1", "k2", "k3"] = "k1"
    clip_range: Share = 0.2
    value_clip_range: Positive | None = 0.2
    value_coefficient: NonNegative = 0.1
    gamma: Share = 1.0
    gae_lambda: Share = 0.95
    whiten_rewards: bool = False
    whiten_advantages: bool = True
    missing_eos_penalty: NonNegative = 1.0
    gradient_checkpointing: bool = True
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=5e-6)

    @property
    def completions_per_step(self) -> int:
        """Completions of one rollout."""
        return self.train_batch_size * self.grad_accumulation * self.mini_batches

    @property
    def batch_keys(self) -> str:
        """What makes a rollout as large as it is, for messages."""
        return "policy.train_batch_size, grad_accumulation or mini_batches"

    @property
    def passes_per_step(self) -> int:
        """Times a rollout is gone through."""
        return self.ppo_epochs

    @model_validator(mode="after")
    def _whole_prompts(self):
        for name in ("train_batch_size", "rollout_forward_batch_size"):
            if (size := getattr(self, name)) % self.samples_per_prompt:
                raise ValueError(
                    f"expected `{name}` to be a multiple of `samples_per_prompt`={self.samples_per_prompt} (the "
                    f"completions of a prompt are never split), found {size}; change one of them"
                )
        return self

    @model_validator(mode="after")
    def _no_dropout(self):
        if self.lora.dropout > 0:
            raise ValueError(
                f"expected `lora.dropout`=0 with `algorithm`=ppo, found {self.lora.dropout}; the ratio of new to old "
                "log-probs would hold its noise: set it to 0"
            )
        return self

    @model_validator(mode="after")
    def _coefficient_can_adapt(self):
        if self.adaptive_kl is None:
            return self
        if self.kl_coefficient == 0:
            raise ValueError(
                "expected `kl_coefficient` above 0 with `adaptive_kl`, found 0; raise it: no factor moves it from 0"
            )
        horizon, completions = self.adaptive_kl.horizon, self.completions_per_step
        if horizon < completions:
            raise ValueError(
                f"expected `adaptive_kl.horizon` of at least the {completions} completions of a rollout, found "
                f"{horizon}; raise it: the coefficient would jump"
            )
        return self


def chosen_algorithm(section: Any) -> Any:
    """The algorithm that a policy section names, `grpo` where it names none: which of the two classes it is."""
    if isinstance(section, Mapping):
        return section.get("algorithm", "grpo")
    return getattr(section, "algorithm", "grpo")


ALGORITHMS: dict[str, type[GRPOConfig] | type[PPOConfig]] = {"grpo": GRPOConfig, "ppo": PPOConfig}
PolicyConfig = Annotated[
    Annotated[GRPOConfig, Tag("grpo")] | Annotated[PPOConfig, Tag("ppo")],
    Discriminator(
        chosen_algorithm,
        custom_error_type="algorithm",
        custom_error_message="expected grpo or ppo",
    ),
]
