"""What a training run takes: frozen, validated where it is made, defaults from the paper's Tables 3 and 4.

A value the paper does not give is marked assumed.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from canaryjax.errors import UserError
from canaryjax.models.lora import HEAD, PROJECTIONS, TARGETS

Schedule = Literal["constant", "linear", "cosine"]
KlEstimator = Literal["k1", "k2", "k3", "k3_weighted"]
LossNormalisation = Literal["sequence", "token", "constant"]

SCHEDULES: tuple[Schedule, ...] = ("constant", "linear", "cosine")
KL_ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3", "k3_weighted")
MAX_RANK = 2**16  # wider than any projection; a larger one is a slip
MIN_ALPHA, MAX_ALPHA = 1e-6, 1e6  # beyond, an update is nothing or infinite in float32, and no adapter's file holds it
LOSS_NORMALISATIONS: tuple[LossNormalisation, ...] = ("sequence", "token", "constant")


def require(holds: bool, expected: str, found: object, remedy: str) -> None:
    """Raises `UserError` with the three parts of a message unless `holds`."""
    if not holds:
        raise UserError(f"expected {expected}; found {found!r}; {remedy}")


def require_finite(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raises `UserError` unless a setting is a finite number in `[low, high]`."""
    require(low <= value <= high and math.isfinite(value), f"{name} in [{low}, {high}]", value, f"correct {name}")


def require_count(name: str, value: int) -> None:
    """Raises `UserError` unless a setting is a whole number of at least 1."""
    require(isinstance(value, int) and value >= 1, f"{name} to be a positive whole number", value, f"correct {name}")


@dataclass(frozen=True)
class AdapterSettings:
    """A LoRA adapter.

    Attributes:
      rank: r (Table 3 for the reward model; assumed for the policy).
      alpha: The update is scaled by alpha / rank, or alpha / sqrt(rank) when `rank_stabilised`.
      dropout: Share of an update's input features dropped at each training step; see `canaryjax.rl.dropout`.
      targets: Which of `canaryjax.models.lora.TARGETS` carry an update (assumed: the seven projections, not the head).
      rank_stabilised: Scale by 1 / sqrt(rank) (Kalajdzievski 2023).
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] = PROJECTIONS
    rank_stabilised: bool = False

    def __post_init__(self):
        require_count("rank", self.rank)
        require(self.rank <= MAX_RANK, f"a rank of at most {MAX_RANK}", self.rank, "correct rank")
        require_finite("alpha", self.alpha, MIN_ALPHA, MAX_ALPHA)
        require(0.0 <= self.dropout < 1.0, "dropout in [0, 1)", self.dropout, "correct dropout")
        unknown = sorted(set(self.targets) - set(TARGETS))
        known = bool(self.targets) and not unknown and len(set(self.targets)) == len(self.targets)
        require(known, f"targets among {TARGETS}, none twice", self.targets, "correct the list")


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW with a global-norm clip and a schedule; the paper gives the rate only, the rest is assumed.

    Attributes:
      learning_rate: Highest rate.
      schedule: After the warm-up: constant, or linear or cosine decay, at zero one update after the last.
      warmup_fraction: Share of all updates in which the rate rises linearly, from one such step above zero.
      weight_decay: Decoupled decay (Loshchilov & Hutter 2019).
      max_grad_norm: Largest gradient norm of one policy; policies never share a norm.
    """

    learning_rate: float
    schedule: Schedule = "linear"
    warmup_fraction: float = 0.0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0

    def __post_init__(self):
        for name in ("learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            require(value > 0 and math.isfinite(value), f"{name} above 0", value, f"correct {name}")
        require(self.schedule in SCHEDULES, f"a schedule among {SCHEDULES}", self.schedule, "choose one of them")
        share = self.warmup_fraction
        require(0.0 <= share < 1.0, "warmup_fraction in [0, 1)", share, "leave updates after the warm-up")
        require_finite("weight_decay", self.weight_decay, 0.0)


@dataclass(frozen=True)
class RewardModelSettings:
    """Training of a scalar reward model (Table 3); batch sizes count responses.

    Attributes:
      train_batch_size: Responses a forward and backward pass.
      eval_batch_size: Responses a held-out pass.
      grad_accumulation: Passes an update.
      epochs: Times each training row is seen.
      eval_every: Updates between held-out evaluations while patience is set.
      early_stopping_patience: Evaluations without a new lowest held-out loss before a policy stops and returns to its
        best state; None trains to the end and keeps the last state.
      center_coefficient: c in c * mean(reward)^2, the mean over an update's weighted responses.
      balance: Weigh the two labels of each policy's training rows equally.
      remat: Recompute layers in the backward pass.
      adapter, optimizer: Their settings.
    """

    train_batch_size: int = 8
    eval_batch_size: int = 8
    grad_accumulation: int = 2
    epochs: int = 3
    eval_every: int = 100
    early_stopping_patience: int | None = 2
    center_coefficient: float = 0.01
    balance: bool = True
    remat: bool = True
    adapter: AdapterSettings = field(default_factory=lambda: AdapterSettings(dropout=0.05))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(2e-5))

    def __post_init__(self):
        for name in ("train_batch_size", "eval_batch_size", "grad_accumulation", "epochs", "eval_every"):
            require_count(name, getattr(self, name))
        if self.early_stopping_patience is not None:
            require_count("early_stopping_patience", self.early_stopping_patience)
        targets = self.adapter.targets
        require(HEAD not in targets, "a reward model's targets without the head", targets, "it reads no vocabulary")
        require_finite("center_coefficient", self.center_coefficient, 0.0)


@dataclass(frozen=True)
class GRPOSettings:
    """Group-relative policy optimisation (Table 4, GRPO column); batch sizes count completions, groups stay whole.

    Attributes:
      generation_batch_size: Completions sampled at once.
      train_batch_size: Completions a forward and backward pass.
      grad_accumulation: Passes an update.
      updates_per_rollout: Times a rollout is gone through; each time takes
        generation_batch_size / (train_batch_size * grad_accumulation) updates.
      num_generations: Completions a prompt, G.
      epochs: Times each prompt is seen.
      max_completion_length: Tokens, EOS included.
      temperature: Of sampling; log-probs in training are under the same law (assumed 1).
      top_p: Of sampling; below 1 the filter is not part of the law in training, so only one update a rollout, which
        needs no old log-probs, is allowed.
      kl_coefficient: beta.
      kl: Estimator of the penalty; see `canaryjax.rl.kl`.
      clip_low, clip_high: The ratio is clipped to [1 - clip_low, 1 + clip_high].
      dual_clip: For negative advantages the objective is at least dual_clip * advantage (Ye et al. 2020); None is off.
      scale_advantages: Divide by the group's standard deviation.
      loss_normalisation: See `canaryjax.rl.grpo`.
      missing_eos_penalty: Taken from the reward of a completion that did not end.
      remat: Recompute layers in the backward pass.
      adapter, optimizer: Their settings; several updates a rollout refuse dropout.
    """

    generation_batch_size: int = 32
    train_batch_size: int = 8
    grad_accumulation: int = 1
    updates_per_rollout: int = 1
    num_generations: int = 8
    epochs: int = 1
    max_completion_length: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    kl_coefficient: float = 0.04
    kl: KlEstimator = "k3"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    scale_advantages: bool = True
    loss_normalisation: LossNormalisation = "sequence"
    missing_eos_penalty: float = 0.0
    remat: bool = False
    adapter: AdapterSettings = field(default_factory=AdapterSettings)
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(1e-5))

    def __post_init__(self):
        for name in ("generation_batch_size", "train_batch_size", "grad_accumulation", "updates_per_rollout"):
            require_count(name, getattr(self, name))
        for name in ("num_generations", "epochs", "max_completion_length"):
            require_count(name, getattr(self, name))
        require(self.num_generations >= 2, "num_generations of at least 2", self.num_generations, NO_GROUP)
        whole = self.train_batch_size % self.num_generations == 0
        require(whole, f"train_batch_size a multiple of {self.num_generations}", self.train_batch_size, NO_SPLIT)
        update = self.train_batch_size * self.grad_accumulation
        require(
            self.generation_batch_size % update == 0,
            f"generation_batch_size a multiple of train_batch_size * grad_accumulation = {update}",
            self.generation_batch_size,
            "correct one of them",
        )
        usable = 1e-3 <= self.temperature <= 1e3
        require(usable, "temperature in [0.001, 1000]", self.temperature, "sampling greedily teaches nothing: raise it")
        require(self.kl in KL_ESTIMATORS, f"kl among {KL_ESTIMATORS}", self.kl, "choose one of them")
        require(0 < self.top_p <= 1, "top_p in (0, 1]", self.top_p, "1 keeps every token")
        require(
            self.top_p == 1 or self.updates_per_step == 1,
            "top_p of 1 with several updates a rollout",
            self.top_p,
            "set top_p to 1, or train_batch_size * grad_accumulation to generation_batch_size",
        )
        if self.updates_per_step > 1:
            require(self.adapter.dropout == 0, "adapter dropout 0 with old log-probs", self.adapter.dropout, NO_DROPOUT)
        known = self.loss_normalisation in LOSS_NORMALISATIONS
        require(known, f"loss_normalisation among {LOSS_NORMALISATIONS}", self.loss_normalisation, "choose one of them")
        for name in ("kl_coefficient", "missing_eos_penalty", "clip_high"):
            require_finite(name, getattr(self, name), 0.0)
        require_finite("clip_low", self.clip_low, 0.0, 1.0)
        if self.dual_clip is not None:
            require(1.0 < self.dual_clip < math.inf, "dual_clip above 1", self.dual_clip, "use None to switch it off")

    @property
    def samples_per_prompt(self) -> int:
        """Completions a prompt."""
        return self.num_generations

    @property
    def prompts_per_step(self) -> int:
        """Prompts of one rollout."""
        return self.generation_batch_size // self.num_generations

    @property
    def updates_per_step(self) -> int:
        """Optimiser updates on one rollout."""
        per_pass = self.generation_batch_size // (self.train_batch_size * self.grad_accumulation)
        return per_pass * self.updates_per_rollout


NO_DROPOUT = "the ratio of new to old log-probs would hold its noise: set it to 0"
NO_GROUP = "one completion has no group to be compared with: raise num_generations"
NO_SPLIT = "a group is never split over passes: change train_batch_size"


@dataclass(frozen=True)
class SupervisedSettings:
    """Supervised training of an adapter on reference answers (all values assumed); batch sizes count rows.

    Attributes:
      batch_size: Rows (a context with its answers) a forward and backward pass.
      epochs: Times each row is seen, unless `steps` says otherwise.
      grad_accumulation: Passes an update.
      steps: Updates, whatever share of an epoch or however many they are; None: as many as the epochs take.
      remat: Recompute layers in the backward pass.
      adapter, optimizer: Their settings.
    """

    batch_size: int = 8
    epochs: int = 1
    grad_accumulation: int = 1
    steps: int | None = None
    remat: bool = False
    adapter: AdapterSettings = field(default_factory=AdapterSettings)
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(2e-4, warmup_fraction=0.1))

    def __post_init__(self):
        for name in ("batch_size", "grad_accumulation", "epochs"):
            require_count(name, getattr(self, name))
        if self.steps is not None:
            require_count("steps", self.steps)
