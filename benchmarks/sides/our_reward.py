"""A reward model's update on eight responses to one long prompt: ours."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.rl.reward_model import RewardModel, RewardRows, score_rewards
from canaryjax.rl.reward_training import train_reward_models
from canaryjax.rl.settings import AdapterSettings, RewardModelSettings
from canaryjax.weights.checkpoint import load_model
from canaryjax.weights.peft import load_adapter
from harness.agreement import Answers
from harness.model import random_ids, write_adapter, write_model, write_tokenizer
from harness.shape import Shape
from harness.timing import timed
from sides.our_grpo import peft_tensors


@dataclass(frozen=True, eq=False)
class RewardCase:
    """What both sides are given.

    Attributes:
      shape: Sizes.
      model, adapter, tokenizer: Directories.
      head: float32 `[d]`, of the scalar output.
      context: int32 `[s]`.
      responses, mask: int32 and bool `[g, t]`, an even number of them; the first half is the better one.
      weights: float32 `[g]`; the gradient of the rewards' sum under them is compared.
    """

    shape: Shape
    model: Path
    adapter: Path
    tokenizer: Path
    head: np.ndarray
    context: np.ndarray
    responses: np.ndarray
    mask: np.ndarray
    weights: np.ndarray


def write_reward_case(shape: Shape, directory: Path) -> RewardCase:
    """Writes the model and an adapter, and draws the responses; their lengths differ."""
    g, t = shape.group, shape.completion
    mask = np.arange(t) < np.maximum(1, t - np.arange(g) * t // (2 * g))[:, None]
    draws = np.random.default_rng(40)
    return RewardCase(
        shape=shape,
        model=write_model(shape, directory / "model"),
        adapter=write_adapter(shape.config(), shape.rank, directory / "adapter"),
        tokenizer=write_tokenizer(shape.vocab, directory / "tokenizer"),
        head=(0.02 * draws.standard_normal(shape.width)).astype(np.float32),
        context=random_ids(shape, (shape.context,), 41),
        responses=np.where(mask, random_ids(shape, (g, t), 42), 0).astype(np.int32),
        mask=mask,
        weights=draws.standard_normal(g).astype(np.float32),
    )


class OurReward:
    """One reward model, trained anew on the same responses."""

    def __init__(self, case: RewardCase) -> None:
        loaded = load_model(case.model)
        self.model, self.case = loaded.params, case
        self.scorer = RewardModel(load_adapter(loaded, case.adapter), jnp.asarray(case.head), jnp.zeros(()))
        context = jnp.asarray(case.context)[None]
        responses, mask = jnp.asarray(case.responses)[None], jnp.asarray(case.mask)[None]
        self.batch = (context, jnp.ones(context.shape, bool), responses, mask)
        g = case.shape.group
        self.rows = RewardRows(
            context_ids=context[None],
            context_mask=self.batch[1][None],
            response_ids=responses[None],
            response_mask=mask[None],
            labels=(jnp.arange(g) < g // 2)[None, None],
            weights=jnp.ones((1, 1, g)),
            heldout_mask=jnp.zeros((1, 1), bool),
        )
        self.settings = RewardModelSettings(
            train_batch_size=g,
            grad_accumulation=1,
            epochs=1,
            early_stopping_patience=None,
            remat=False,
            adapter=AdapterSettings(case.shape.rank, 2.0 * case.shape.rank),
        )
        self.keys = jax.random.split(jax.random.key(43), 1)

    def seconds(self) -> float:
        """One update through the public trainer, which makes the reward model as well."""
        return timed(lambda: train_reward_models(self.model, self.rows, self.settings, self.keys)[0])()

    def answers(self) -> Answers:
        """Rewards, and the gradient of their weighted sum for the adapter, under PEFT's names."""
        weights = jnp.asarray(self.case.weights)[None]
        rewards, gradient = _rewards_and_gradient(self.model, self.scorer, self.batch, weights)
        return {"rewards": np.asarray(rewards[0]), "gradients": peft_tensors(gradient.adapter)}


@jax.jit
def _rewards_and_gradient(model, scorer, batch, weights):
    def total(scorer):
        rewards = score_rewards(model, scorer, *batch)
        return (rewards * weights).sum(), rewards

    gradient, rewards = jax.grad(total, has_aux=True)(scorer)
    return rewards, gradient
