"""What PPO takes: frozen, validated where it is made, defaults from the paper's Table 4."""

import math
from dataclasses import dataclass, field
from typing import Literal

from canaryjax.rl.settings import (
    NO_DROPOUT,
    AdapterSettings,
    OptimizerSettings,
    require,
    require_count,
    require_finite,
)

RewardKl = Literal["k1", "k2", "k3"]

REWARD_KLS: tuple[RewardKl, ...] = ("k1", "k2", "k3")
LARGEST_KL_ERROR = 0.2  # Ziegler et al. 2019 clip the controller's proportional error to this


@dataclass(frozen=True)
class AdaptiveKL:
    """A coefficient that follows a target divergence (Ziegler et al. 2019, section 2.2).

    Attributes:
      target: Divergence to hold, nats a completion.
      horizon: Completions in which an error of 1 would double the coefficient; errors count as at most 0.2.
    """

    target: float
    horizon: int

    def __post_init__(self):
        require(0 < self.target < math.inf, "adaptive_kl target above 0", self.target, "correct target")
        require_count("horizon", self.horizon)


@dataclass(frozen=True)
class PPOSettings:
    """Proximal policy optimisation (Table 4, PPO column); batch sizes count completions.

    A rollout holds train_batch_size * grad_accumulation * mini_batches completions, as in TRL.

    Attributes:
      train_batch_size: Completions a forward and backward pass.
      grad_accumulation: Passes an update.
      mini_batches: Updates each time a rollout is gone through.
      ppo_epochs: Times a rollout is gone through, each in a new order.
      rollout_forward_batch_size: Completions a pass of the reference and of the value model over a rollout, at most.
      samples_per_prompt: Completions a prompt; they share one pass over their prompt and are never split.
      epochs: Times each prompt is seen.
      max_completion_length: Tokens, EOS included.
      temperature: Of sampling; all log-probs in training are under the same law.
      kl_coefficient: beta, of the penalty in each token's reward; where adaptive, at the start.
      adaptive_kl: How the coefficient follows the divergence; None keeps it.
      kl: Estimator of the penalty; see `canaryjax.rl.kl`. The weighted k3 differs from k3 in its gradient alone, and a
        reward has none.
      clip_range: The ratio is clipped to [1 - clip_range, 1 + clip_range].
      value_clip_range: A new value is held within this distance of the old one (assumed, as in TRL); None is off.
      value_coefficient: Of the value loss beside the policy loss (assumed, as in TRL).
      gamma: Discount a token (assumed 1).
      gae_lambda: lambda of `canaryjax.rl.gae`.
      whiten_rewards: Scale token rewards to unit variance over a rollout, their mean kept (assumed off, as in TRL).
      whiten_advantages: Scale advantages to mean 0 and variance 1 over a rollout (assumed on, as in TRL); it enlarges
        the noise of rewards that tell nothing.
      missing_eos_penalty: Taken once from the reward of a completion that did not end.
      remat: Recompute layers in the backward pass.
      adapter, optimizer: Their settings; the value model has an adapter like the policy's unless a reward model gives
        it one, and the same optimiser. Without dropout, as in TRL: the ratio of new to old log-probs would hold its
        noise.
    """

    train_batch_size: int = 1
    grad_accumulation: int = 4
    mini_batches: int = 2
    ppo_epochs: int = 1
    rollout_forward_batch_size: int = 16
    samples_per_prompt: int = 1
    epochs: int = 1
    max_completion_length: int = 32
    temperature: float = 0.7
    kl_coefficient: float = 0.01
    adaptive_kl: AdaptiveKL | None = None
    kl: RewardKl = "k1"
    clip_range: float = 0.2
    value_clip_range: float | None = 0.2
    value_coefficient: float = 0.1
    gamma: float = 1.0
    gae_lambda: float = 0.95
    whiten_rewards: bool = False
    whiten_advantages: bool = True
    missing_eos_penalty: float = 1.0
    remat: bool = True
    adapter: AdapterSettings = field(default_factory=AdapterSettings)
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(5e-6))

    def __post_init__(self):
        counts = ("train_batch_size", "grad_accumulation", "mini_batches", "ppo_epochs", "rollout_forward_batch_size")
        for name in (*counts, "samples_per_prompt", "epochs", "max_completion_length"):
            require_count(name, getattr(self, name))
        for name in ("train_batch_size", "rollout_forward_batch_size"):
            size, samples = getattr(self, name), self.samples_per_prompt
            require(size % samples == 0, f"{name} a multiple of samples_per_prompt={samples}", size, NO_SPLIT)
        usable = 1e-3 <= self.temperature <= 1e3
        require(usable, "temperature in [0.001, 1000]", self.temperature, "sampling greedily teaches nothing: raise it")
        require(self.kl in REWARD_KLS, f"kl among {REWARD_KLS}", self.kl, "choose one of them")
        for name in ("kl_coefficient", "missing_eos_penalty", "value_coefficient"):
            require_finite(name, getattr(self, name), 0.0)
        for name in ("gamma", "gae_lambda", "clip_range"):
            require_finite(name, getattr(self, name), 0.0, 1.0)
        require(self.adapter.dropout == 0, "adapter dropout 0 with PPO", self.adapter.dropout, NO_DROPOUT)
        if self.value_clip_range is not None:
            width = self.value_clip_range
            require(0 < width < math.inf, "value_clip_range above 0", width, "use None to switch it off")
        if self.adaptive_kl is not None:
            beta, horizon, completions = self.kl_coefficient, self.adaptive_kl.horizon, self.completions_per_step
            require(beta > 0, "kl_coefficient above 0 with adaptive_kl", beta, "a factor cannot raise 0")
            least = f"adaptive_kl horizon of at least the {completions} completions of a rollout"
            require(horizon >= completions, least, horizon, "raise it: the coefficient would jump")

    @property
    def top_p(self) -> float:
        """Always 1: rewards and ratios compare log-probs under the law that was sampled from."""
        return 1.0

    @property
    def completions_per_step(self) -> int:
        """Completions of one rollout."""
        return self.train_batch_size * self.grad_accumulation * self.mini_batches

    @property
    def prompts_per_step(self) -> int:
        """Prompts of one rollout."""
        return self.completions_per_step // self.samples_per_prompt

    @property
    def updates_per_step(self) -> int:
        """Optimiser updates on one rollout."""
        return self.mini_batches * self.ppo_epochs


NO_SPLIT = "the completions of a prompt are never split over passes: change one of them"
