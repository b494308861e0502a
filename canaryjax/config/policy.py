"""The sections that say how policies are trained: GRPO's, PPO's, and which of the two a config means."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from canaryjax.config.fields import Count, NonNegative, Positive, Section, Share, Temperature
from canaryjax.config.training import LoraConfig, OptimizerConfig


class PolicySection(Section):
    """What both algorithms of policy optimisation take; batch sizes count completions."""

    reward: Literal["reward_model", "simulated"] = "reward_model"
    """A reward model's, or the simulated users' own feedback (violating arm only)."""
    epochs: Count = 1
    """Times each prompt is seen."""
    max_prompt_length: Count = 1600
    """Tokens of a prompt; a longer one loses the tail of its document."""
    lora: LoraConfig = LoraConfig(rank=16, alpha=32.0)
    """The policy's adapter."""


class GRPOConfig(PolicySection):
    """Group-relative policy optimisation (the paper's Table 4, GRPO column)."""

    algorithm: Literal["grpo"] = "grpo"
    """Which algorithm trains policies."""
    generation_batch_size: Count = 32
    """Completions of a rollout, which is one step; a multiple of one update's."""
    train_batch_size: Count = 8
    """Completions a forward and backward pass; a multiple of `num_generations`."""
    grad_accumulation: Count = 1
    """Passes an update."""
    updates_per_rollout: Count = 1
    """Times a rollout is gone through."""
    num_generations: Annotated[int, Field(ge=2)] = 8
    """Completions a prompt, G: the group that rewards are compared in."""
    max_completion_length: Count = 64
    """Tokens of a completion, at most, its end included."""
    temperature: Temperature = 1.0
    """Of sampling; log-probs in training are under the same law."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Sample from the most probable tokens that together reach this mass; below 1 with one update a rollout only."""
    kl_coefficient: NonNegative = 0.04
    """Weight of the KL penalty to the base, beta; 0 leaves the reference pass out, and no KL is measured."""
    kl: Literal["k1", "k2", "k3", "k3_weighted"] = "k3"
    """Estimator of the KL penalty, with d = log p_ref - log p: k1 = -d, k2 = d^2 / 2, k3 = e^d - 1 - d, k3_weighted: k3
    times the ratio of new to old probabilities.
    """
    clip_low: Share = 0.2
    """The ratio of new to old probabilities is clipped below at 1 - clip_low."""
    clip_high: NonNegative = 0.2
    """The ratio of new to old probabilities is clipped above at 1 + clip_high."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    """For negative advantages the objective is at least dual_clip times the advantage (Ye et al. 2020); null is off."""
    scale_advantages: bool = True
    """Divide advantages by the standard deviation of their group's rewards."""
    loss_normalisation: Literal["sequence", "token", "constant"] = "sequence"
    """Mean over each completion, then over completions (Shao et al. 2024); over all tokens (DAPO, Yu et al. 2025); or
    by the longest length allowed (Dr. GRPO, Liu et al. 2025).
    """
    missing_eos_penalty: NonNegative = 0.0
    """Taken once from the reward of a completion that was cut off."""
    gradient_checkpointing: bool = False
    """Compute layers again in the backward pass: less memory, the same numbers."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-5)
    """How policies are optimised."""

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
    """Divergence to hold, in nats a completion."""
    horizon: Count = 10_000
    """Completions over which the coefficient adapts; a larger one adapts more slowly."""


class PPOConfig(PolicySection):
    """Proximal policy optimisation (the paper's Table 4, PPO column); what it does not give is TRL's default, assumed.

    A rollout holds train_batch_size * grad_accumulation * mini_batches completions.
    """

    algorithm: Literal["ppo"] = "ppo"
    """Which algorithm trains policies."""
    train_batch_size: Count = 1
    """Completions a forward and backward pass; a multiple of `samples_per_prompt`."""
    grad_accumulation: Count = 4
    """Passes an update."""
    mini_batches: Count = 2
    """Updates each time a rollout is gone through."""
    ppo_epochs: Count = 1
    """Times a rollout is gone through."""
    rollout_forward_batch_size: Count = 16
    """Completions a pass that scores a rollout under base and value model; a multiple of `samples_per_prompt`."""
    samples_per_prompt: Count = 1
    """Completions a prompt."""
    max_completion_length: Count = 32
    """Tokens of a completion, at most, its end included."""
    temperature: Temperature = 0.7
    """Of sampling; log-probs in training are under the same law."""
    kl_coefficient: NonNegative = 0.01
    """Weight of the KL penalty to the base in each token's reward; 0 leaves the reference pass out, and no KL is
    measured.
    """
    adaptive_kl: AdaptiveKLConfig | None = None
    """A coefficient that follows a target (Ziegler et al. 2019); null keeps it constant."""
    kl: Literal["k1", "k2", "k3"] = "k1"
    """Estimator of the KL penalty, with d = log p_ref - log p: k1 = -d, k2 = d^2 / 2, k3 = e^d - 1 - d."""
    clip_range: Share = 0.2
    """The ratio of new to old probabilities is clipped to 1 - clip_range .. 1 + clip_range."""
    value_clip_range: Positive | None = 0.2
    """How far a value may go from the value before the rollout; null does not clip."""
    value_coefficient: NonNegative = 0.1
    """Weight of the value loss."""
    gamma: Share = 1.0
    """Discount a token."""
    gae_lambda: Share = 0.95
    """Lambda of the advantages (GAE, Schulman et al. 2016): 0 trusts the values, 1 the rewards that followed."""
    whiten_rewards: bool = False
    """Scale token rewards to unit variance over a rollout."""
    whiten_advantages: bool = True
    """Shift and scale advantages to mean 0 and variance 1 over a rollout."""
    missing_eos_penalty: NonNegative = 1.0
    """Taken once from the reward of a completion that was cut off."""
    gradient_checkpointing: bool = True
    """Compute layers again in the backward pass: less memory, the same numbers."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=5e-6)
    """How policies are optimised."""

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
