"""A scalar reward model: its own adapter and a linear head on the shared base."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from canaryjax.inference.forward import forward_shared
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import Adapter, init_adapter
from canaryjax.models.transformer import Transformer
from canaryjax.rl.settings import AdapterSettings

HEAD_STDDEV = 0.02  # as Hugging Face starts a classification head; at 0 the adapter's first gradient would be 0


@struct.dataclass
class RewardModel:
    """What a reward model adds to the base.

    Attributes:
      adapter: Its low-rank updates.
      head_w: float32 `[d]`.
      head_b: float32 scalar.
    """

    adapter: Adapter
    head_w: jax.Array
    head_b: jax.Array


@struct.dataclass
class RewardRows:
    """Labelled responses, the same number of rows for every policy.

    Attributes:
      context_ids: int32 `[p, n, s]`, right-padded, at least one real token a row.
      context_mask: bool `[p, n, s]`.
      response_ids: int32 `[p, n, g, t]`, right-padded, EOS included.
      response_mask: bool `[p, n, g, t]`.
      labels: `[p, n, g]`, feedback in {0, 1}.
      weights: float32 `[p, n, g]`, at least 0; 0 is padding.
      heldout_mask: bool `[p, n]`, True for rows kept for evaluation.
    """

    context_ids: jax.Array
    context_mask: jax.Array
    response_ids: jax.Array
    response_mask: jax.Array
    labels: jax.Array
    weights: jax.Array
    heldout_mask: jax.Array


@struct.dataclass
class RewardSums:
    """What adds over passes; every sum is weighted.

    Attributes:
      cross_entropy: Of the labels under sigmoid(reward), nats.
      reward: Of the rewards.
      correct: Of responses whose reward has the sign of their label.
      weight: Of the weights.
    """

    cross_entropy: jax.Array
    reward: jax.Array
    correct: jax.Array
    weight: jax.Array


def init_reward_model(key: jax.Array, config: ModelConfig, settings: AdapterSettings) -> RewardModel:
    """A new reward model: a new adapter and a small random head."""
    adapter_key, head_key = jax.random.split(key)
    return RewardModel(
        adapter=new_adapter(adapter_key, config, settings),
        head_w=HEAD_STDDEV * jax.random.normal(head_key, (config.width,), jnp.float32),
        head_b=jnp.zeros((), jnp.float32),
    )


def new_adapter(key: jax.Array, config: ModelConfig, settings: AdapterSettings) -> Adapter:
    """A new adapter by its settings; equals the base."""
    return init_adapter(key, config, settings.rank, settings.alpha, settings.targets, settings.rank_stabilised)


def score_rewards(
    model: Transformer,
    reward_model: RewardModel,
    context_ids_bs: jax.Array,
    context_mask_bs: jax.Array,
    response_ids_bgt: jax.Array,
    response_mask_bgt: jax.Array,
    *,
    remat: bool = False,
) -> jax.Array:
    """Scalar reward of each response, read at its last real token.

    The last token is found by the mask, never by comparing with a padding id, which may be the EOS id.

    Args:
      model: The base.
      reward_model: One policy's.
      context_ids_bs: int32 `[b, s]`, right-padded.
      context_mask_bs: bool `[b, s]`.
      response_ids_bgt: int32 `[b, g, t]`, right-padded, with its EOS; see `append_eos`.
      response_mask_bgt: bool `[b, g, t]`; a response without a real token gets a number without meaning.
      remat: Recompute layers in the backward pass.

    Returns:
      float32 `[b, g]`, log-odds of good feedback.
    """
    hidden = forward_shared(
        model, reward_model.adapter, context_ids_bs, context_mask_bs, response_ids_bgt, remat=remat
    ).continuation_bgtd
    last = jnp.maximum(response_mask_bgt.sum(axis=-1) - 1, 0)
    state = jnp.take_along_axis(hidden, last[..., None, None], axis=2)[:, :, 0].astype(jnp.float32)
    return state @ reward_model.head_w + reward_model.head_b


def append_eos(
    ids_bgt: jax.Array, mask_bgt: jax.Array, finished_bg: jax.Array, eos_id: int
) -> tuple[jax.Array, jax.Array]:
    """Sampled responses in the form the reward model was trained on: EOS last, one column more.

    Finished responses hold their EOS already; the others get one after their last token. Ids are never re-encoded.
    """
    pad = [(0, 0)] * (ids_bgt.ndim - 1) + [(0, 1)]
    ids, mask = jnp.pad(ids_bgt, pad), jnp.pad(mask_bgt, pad)
    here = (jnp.arange(ids.shape[-1]) == mask_bgt.sum(axis=-1, keepdims=True)) & ~finished_bg[..., None]
    return jnp.where(here, eos_id, ids), mask | here


def reward_sums(rewards: jax.Array, labels: jax.Array, weights: jax.Array) -> RewardSums:
    """Sums of `reward_loss`, to be added over passes before dividing once; all arguments `[...]`."""
    labels = labels.astype(jnp.float32)
    real = weights > 0
    rewards = jnp.where(real, rewards, 0.0)
    # softplus(r) - r * f = -log sigmoid(r) for f = 1, -log(1 - sigmoid(r)) for f = 0
    cross_entropy = jax.nn.softplus(rewards) - rewards * labels
    return RewardSums(
        cross_entropy=(weights * cross_entropy).sum(),
        reward=(weights * rewards).sum(),
        correct=(weights * ((rewards > 0) == (labels > 0.5))).sum(),
        weight=weights.sum(),
    )


def finish_reward(sums: RewardSums, center_coefficient: float) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Divides sums once: the loss and metrics of `reward_loss`."""
    weight = jnp.where(sums.weight > 0, sums.weight, 1.0)
    mean = sums.reward / weight
    loss = sums.cross_entropy / weight + center_coefficient * jnp.square(mean)
    return loss, {"loss": loss, "accuracy": sums.correct / weight, "reward_mean": mean}


def reward_loss(
    rewards: jax.Array, labels: jax.Array, weights: jax.Array, *, center_coefficient: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Weighted binary cross-entropy of the labels plus c * mean(reward)^2, both means under the weights.

    Args:
      rewards: float32, any shape.
      labels: Feedback in {0, 1}, the same shape.
      weights: float32, at least 0; 0 takes a response out.
      center_coefficient: c; keeps rewards near 0, where a sigmoid is not flat (Eisenstein et al. 2023).

    Returns:
      The loss in nats, and `loss`, `accuracy`, `reward_mean`.
    """
    return finish_reward(reward_sums(rewards, labels, weights), center_coefficient)


def balance_weights(labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rescales weights so that both labels carry the same total and the grand total stays.

    A policy whose responses all have one label keeps its weights.

    >>> balance_weights(np.array([1, 1, 1, 0]), np.ones(4)).round(3).tolist()
    [0.667, 0.667, 0.667, 2.0]
    """
    positive = np.asarray(labels) > 0.5
    total = np.array([weights[~positive].sum(), weights[positive].sum()])
    if not (total > 0).all():
        return weights
    return weights * (total.sum() / 2 / total)[positive.astype(int)]
