"""What every side of the GRPO benchmark is given: one model, one prompt, one reward, one batch to agree on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from canaryjax.rl.settings import AdapterSettings, GRPOSettings, OptimizerSettings
from harness.model import random_ids, write_adapter, write_model, write_tokenizer
from harness.shape import Shape


@dataclass(frozen=True, eq=False)
class GrpoCase:
    """A step on one prompt with G completions, and a batch of completions whose loss and gradient are compared.

    Attributes:
      shape: Sizes.
      model, adapter, tokenizer: Directories.
      context: int32 `[s]`, the prompt.
      completions: int32 `[g, t]`, the batch's, 0 after the end.
      mask: bool `[g, t]`; the completions' lengths differ.
      advantages: float32 `[g]`.
    """

    shape: Shape
    model: Path
    adapter: Path
    tokenizer: Path
    context: np.ndarray
    completions: np.ndarray
    mask: np.ndarray
    advantages: np.ndarray

    @property
    def settings(self) -> GRPOSettings:
        """The step as our own trainer takes it; peers are given the same numbers."""
        group = self.shape.group
        return GRPOSettings(
            generation_batch_size=group,
            train_batch_size=group,
            num_generations=group,
            max_completion_length=self.shape.completion,
            adapter=AdapterSettings(self.shape.rank, 2.0 * self.shape.rank),
            optimizer=OptimizerSettings(1e-5, "constant"),
        )


def write_case(shape: Shape, directory: Path) -> GrpoCase:
    """Writes the model, the adapter and a tokenizer, and draws the prompt and the batch."""
    g, t = shape.group, shape.completion
    lengths = np.maximum(1, t - np.arange(g) * t // (2 * g))
    mask = np.arange(t) < lengths[:, None]
    advantages = np.random.default_rng(6).standard_normal(g).astype(np.float32)
    return GrpoCase(
        shape=shape,
        model=write_model(shape, directory / "model"),
        adapter=write_adapter(shape.config(), shape.rank, directory / "adapter"),
        tokenizer=write_tokenizer(shape.vocab, directory / "tokenizer"),
        context=random_ids(shape, (shape.context,), 7),
        completions=np.where(mask, random_ids(shape, (g, t), 8), 0).astype(np.int32),
        mask=mask,
        advantages=advantages,
    )


def reward_of(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A reward that costs nothing and differs between completions: the share of even ids, float32 `[...]`."""
    return ((ids % 2 == 0) & mask).sum(axis=-1, dtype=np.float32) / np.maximum(mask.sum(axis=-1), 1)


def group_advantages(rewards: np.ndarray) -> np.ndarray:
    """Rewards of one group less their mean, over their standard deviation, float32 `[g]`."""
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
