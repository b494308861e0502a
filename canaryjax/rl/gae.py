"""Generalised advantage estimation over the tokens of completions (Schulman et al. 2016)."""

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.rl.settings import require


@struct.dataclass
class TokenAdvantages:
    """Advantages of tokens and what values should have been.

    Attributes:
      advantages: float32 `[..., t]`; 0 where masked.
      returns: float32 `[..., t]`, advantages + values; 0 where masked.
    """

    advantages: jax.Array
    returns: jax.Array


def estimate_gae(
    rewards: jax.Array, values: jax.Array, mask: jax.Array, *, gamma: float, gae_lambda: float
) -> TokenAdvantages:
    """Advantages by the recursion of generalised advantage estimation, from the last token to the first:

        delta_t = r_t + gamma V_{t+1} - V_t
        A_t     = delta_t + gamma lambda A_{t+1}
        R_t     = A_t + V_t

    where r_t is paid for token t, V_t is the value of the state that predicts token t, and V and A are 0 behind the
    last real token: a completion ends there, whether by EOS or because the buffer ended.

    Args:
      rewards: floating `[..., t]`.
      values: float32 `[..., t]`, in the reward's unit.
      mask: bool `[..., t]`, True at real tokens; padding stands behind them and is never read.
      gamma: Discount a token, in [0, 1].
      gae_lambda: In [0, 1]; 0 is the one-step error (little variance, the values' bias), 1 the return minus the value.

    Returns:
      See `TokenAdvantages`.

    Raises:
      UserError: Rewards in an integer dtype, which would have rounded them already.

    Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", eq. 16.
    """
    floating = jnp.issubdtype(rewards.dtype, jnp.floating)
    require(floating, "floating rewards", str(rewards.dtype), "an integer buffer rounds them: cast first")
    rewards, values = (jnp.where(mask, x, 0.0).astype(jnp.float32) for x in (rewards, values))

    def step_back(later, now):
        next_value, next_advantage = later
        reward, value, real = now
        delta = reward + gamma * next_value - value
        advantage = jnp.where(real, delta + gamma * gae_lambda * next_advantage, 0.0)
        return (value, advantage), advantage

    zero = jnp.zeros(rewards.shape[:-1], jnp.float32)
    tokens = tuple(jnp.moveaxis(x, -1, 0) for x in (rewards, values, mask))
    _, advantages = jax.lax.scan(step_back, (zero, zero), tokens, reverse=True)
    advantages = jnp.moveaxis(advantages, 0, -1)
    return TokenAdvantages(advantages=advantages, returns=jnp.where(mask, advantages + values, 0.0))
