"""A value model: a scalar for each token to come, from its own adapter and a linear head on the shared base."""

import dataclasses

import jax
import jax.numpy as jnp

from canaryjax.inference.forward import forward_shared
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import HEAD, PROJECTIONS
from canaryjax.models.transformer import Transformer
from canaryjax.rl.reward_model import RewardModel, new_adapter
from canaryjax.rl.settings import AdapterSettings


def init_value_model(key: jax.Array, config: ModelConfig, settings: AdapterSettings) -> RewardModel:
    """A new value model, of a reward model's parts: a new adapter, and a head of zeros, so that every value is 0.

    It reads no vocabulary: of a policy's settings it takes the projections, all where the policy adapts the head alone.
    """
    projections = tuple(name for name in settings.targets if name != HEAD) or PROJECTIONS
    return RewardModel(
        adapter=new_adapter(key, config, dataclasses.replace(settings, targets=projections)),
        head_w=jnp.zeros((config.width,), jnp.float32),
        head_b=jnp.zeros((), jnp.float32),
    )


def score_values(
    model: Transformer,
    value_model: RewardModel,
    context_ids_bs: jax.Array,
    context_mask_bs: jax.Array,
    completion_ids_bgt: jax.Array,
    *,
    remat: bool = False,
) -> jax.Array:
    """What is still to be earned before each completion token, read at the state that predicts it.

    Entry 0 is read at the context's last token: it knows the prompt alone. A value that could see its own token would
    leave that token no advantage.

    Args:
      model: The base.
      value_model: One policy's.
      context_ids_bs: int32 `[b, s]`, right-padded, at least one real token a row.
      context_mask_bs: bool `[b, s]`.
      completion_ids_bgt: int32 `[b, g, t]`, right-padded; the last token of a row is never read.
      remat: Recompute layers in the backward pass.

    Returns:
      float32 `[b, g, t]`; numbers without meaning where a completion has no token.
    """
    states = forward_shared(
        model, value_model.adapter, context_ids_bs, context_mask_bs, completion_ids_bgt, remat=remat
    )
    return states.predictors().astype(jnp.float32) @ value_model.head_w + value_model.head_b
