"""What every side of the PPO benchmark is given: one model, prompts, and one stored rollout to agree on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from canaryjax.rl.ppo_settings import PPOSettings
from canaryjax.rl.settings import AdapterSettings, OptimizerSettings
from harness.model import random_ids, write_adapter, write_model, write_tokenizer
from harness.shape import Shape

PASSES, MINI_BATCHES = 4, 2  # Table 4: of one completion each, so that a rollout holds eight


@dataclass(frozen=True, eq=False)
class PpoCase:
    """A step on some prompts with G completions each, and a rollout whose losses and gradients are compared.

    Attributes:
      shape: Sizes; `group` is the completions of a prompt.
      model, adapter, tokenizer: Directories; policy and value model start from the same adapter.
      head: float32 `[d]`, of the values.
      contexts: int32 `[b, s]`, the prompts.
      completions: int32 `[b, g, t]`, the stored rollout's, 0 after the end.
      mask: bool `[b, g, t]`; the completions' lengths differ.
      drift: float32 `[b, g, t]`, by how much log-probs have moved since the rollout, nats; some of it is clipped.
      advantages, old_values, returns: float32 `[b, g, t]`.
    """

    shape: Shape
    model: Path
    adapter: Path
    tokenizer: Path
    head: np.ndarray
    contexts: np.ndarray
    completions: np.ndarray
    mask: np.ndarray
    drift: np.ndarray
    advantages: np.ndarray
    old_values: np.ndarray
    returns: np.ndarray

    @property
    def settings(self) -> PPOSettings:
        """Table 4's step with one sample a prompt; with more, as many completions in one pass and one update."""
        group, completions = self.shape.group, self.contexts.shape[0] * self.shape.group
        passes, mini_batches = (completions // MINI_BATCHES, MINI_BATCHES) if group == 1 else (1, 1)
        return PPOSettings(
            train_batch_size=completions // passes // mini_batches,
            grad_accumulation=passes,
            mini_batches=mini_batches,
            rollout_forward_batch_size=completions,
            samples_per_prompt=group,
            max_completion_length=self.shape.completion,
            remat=False,
            adapter=AdapterSettings(self.shape.rank, 2.0 * self.shape.rank),
            optimizer=OptimizerSettings(5e-6, "constant"),
        )

    def flat(self, x: np.ndarray) -> np.ndarray:
        """`[b, g, ...]` -> `[b * g, ...]`, for stacks that know no groups."""
        return x.reshape(-1, *x.shape[2:])

    def repeated(self) -> np.ndarray:
        """Each completion's prompt: int32 `[b * g, s]`."""
        return np.repeat(self.contexts, self.shape.group, axis=0)


def write_ppo_case(shape: Shape, prompts: int, directory: Path) -> PpoCase:
    """Writes the model, the adapter and a tokenizer, and draws the prompts and the rollout."""
    size = prompts, shape.group, shape.completion
    rows, t = prompts * shape.group, shape.completion
    lengths = np.maximum(1, t - np.arange(rows) * t // (2 * rows)).reshape(size[:2])
    mask, draws = np.arange(t) < lengths[..., None], np.random.default_rng(50)
    values = (0.5 * draws.standard_normal((4, *size))).astype(np.float32)
    return PpoCase(
        shape=shape,
        model=write_model(shape, directory / "model"),
        adapter=write_adapter(shape.config(), shape.rank, directory / "adapter"),
        tokenizer=write_tokenizer(shape.vocab, directory / "tokenizer"),
        head=(0.02 * draws.standard_normal(shape.width)).astype(np.float32),
        contexts=random_ids(shape, (prompts, shape.context), 51),
        completions=np.where(mask, random_ids(shape, size, 52), 0).astype(np.int32),
        mask=mask,
        drift=values[0],
        advantages=values[1],
        old_values=values[2],
        returns=values[3],
    )
