"""How much better a completion is than its group, and masked whitening."""

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.errors import UserError

STD_FLOOR = 1e-4  # added to a group's standard deviation, as in TRL


@struct.dataclass
class GroupAdvantages:
    """Advantages of completions within their prompts' groups.

    Attributes:
      advantages: float32 `[b, g]`; 0 where not usable and in groups without variance.
      usable: bool `[b, g]`; False where the reward is not finite.
      zero_variance: bool `[b]`; True where all usable rewards of a group are equal.
    """

    advantages: jax.Array
    usable: jax.Array
    zero_variance: jax.Array


def group_advantages(rewards_bg: jax.Array, *, scale: bool) -> GroupAdvantages:
    """Reward minus the group's mean, divided by the group's standard deviation if asked.

    A_i = (r_i - mean(r)) / (std(r) + 1e-4), with the sample standard deviation (n - 1), as in TRL; n counts finite
    rewards only. A reward that is not finite leaves the mean and gets advantage 0. A group whose finite rewards are all
    equal, or that has fewer than two, gets exactly 0 (the rounding of a mean divided by 1e-4 would not be).

    Args:
      rewards_bg: floating `[b, g]`.
      scale: Divide by the standard deviation; without it advantages keep the reward's unit and small differences
        (reward noise) stay small (Liu et al. 2025).

    Returns:
      See `GroupAdvantages`.

    Raises:
      UserError: Groups of one, or rewards in an integer dtype, which would have rounded them already.

    Source: Shao et al. 2024 (GRPO), section 4.1.
    """
    if rewards_bg.shape[-1] < 2:
        raise UserError(
            f"expected groups of at least 2 completions; found {rewards_bg.shape[-1]}; "
            "one completion has no group to be compared with: raise num_generations"
        )
    if not jnp.issubdtype(rewards_bg.dtype, jnp.floating):
        raise UserError(
            f"expected floating rewards; found {rewards_bg.dtype}; an integer buffer rounds them: cast first"
        )
    rewards = rewards_bg.astype(jnp.float32)
    usable = jnp.isfinite(rewards)
    rewards = jnp.where(usable, rewards, 0.0)
    count = usable.sum(axis=-1, keepdims=True)
    mean = rewards.sum(axis=-1, keepdims=True) / jnp.maximum(count, 1)
    difference = jnp.where(usable, rewards - mean, 0.0)
    lowest = jnp.where(usable, rewards, jnp.inf).min(axis=-1, keepdims=True)
    highest = jnp.where(usable, rewards, -jnp.inf).max(axis=-1, keepdims=True)
    flat = highest <= lowest  # an empty group is flat too
    if scale:
        variance = jnp.square(difference).sum(axis=-1, keepdims=True) / jnp.maximum(count - 1, 1)
        difference = difference / (jnp.sqrt(variance) + STD_FLOOR)
    return GroupAdvantages(
        advantages=jnp.where(flat, 0.0, difference), usable=usable, zero_variance=jnp.squeeze(flat, axis=-1)
    )


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean over True positions; 0 when there are none."""
    return jnp.where(mask, values, 0.0).sum() / jnp.maximum(mask.sum(), 1)


def masked_variance(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Population variance over True positions: one position gives 0, where n - 1 would give NaN."""
    return masked_mean(jnp.square(values - masked_mean(values, mask)), mask)


def whiten(values: jax.Array, mask: jax.Array, *, shift_mean: bool = True) -> jax.Array:
    """Scales values to unit variance over True positions and, if asked, to zero mean; 0 where masked.

    Args:
      values: float32, any shape.
      mask: bool, the same shape.
      shift_mean: False keeps the mean, as for rewards (Huang et al. 2022).
    """
    mean = masked_mean(values, mask)
    scaled = (values - mean) * jax.lax.rsqrt(masked_variance(values, mask) + 1e-8)  # TRL's floor
    return jnp.where(mask, scaled if shift_mean else scaled + mean, 0.0)
