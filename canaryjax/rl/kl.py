"""Estimators of KL(policy || reference) from sampled tokens.

With d = log p_ref(x) - log p(x) at a token x sampled from the policy (Schulman 2020, "Approximating KL divergence"):

| name | value | mean over samples | expected gradient as a loss |
|---|---|---|---|
| k1 | -d | exact, may be negative | zero: the score function's mean; it penalises nothing |
| k2 | d^2 / 2 | biased, never negative | exact |
| k3 | e^d - 1 - d | exact, never negative | of KL(reference || policy): biased |
| k3_weighted | ratio * (e^d - 1 - d) | exact, never negative | exact |

The ratio p / p_sampler has value 1 when the policy itself sampled, but not gradient 0: that gradient is what makes the
last row exact. `k3` is what GRPO and the stacks built on it use, and the default here.
"""

import jax
import jax.numpy as jnp

from canaryjax.errors import UserError
from canaryjax.rl.settings import KL_ESTIMATORS, KlEstimator

SMALL = 1e-2  # below it exp(d) - 1 - d loses its digits, and its sign, to cancellation in float32


def estimate_kl(
    estimator: KlEstimator, token_logps: jax.Array, ref_token_logps: jax.Array, old_token_logps: jax.Array | None = None
) -> jax.Array:
    """Per-token estimate, to be averaged over tokens the policy sampled.

    Args:
      estimator: See the module's table.
      token_logps: float32, nats, any shape; the policy's.
      ref_token_logps: The reference's, the same shape.
      old_token_logps: Those of the policy that sampled; None when that is the policy itself. Read by `k3_weighted`.

    Returns:
      float32, nats, the same shape; exactly 0 where both log-probs are equal.
    """
    d = ref_token_logps - token_logps
    match estimator:
        case "k1":
            return -d
        case "k2":
            return 0.5 * jnp.square(d)
        case "k3":
            return _k3(d)
        case "k3_weighted":
            old = jax.lax.stop_gradient(token_logps if old_token_logps is None else old_token_logps)
            return jnp.exp(token_logps - old) * _k3(d)
    raise UserError(f"expected a KL estimator among {KL_ESTIMATORS}; found {estimator!r}; choose one of them")


def _k3(d):
    # The series is right to 1e-11 at |d| = 0.01 and never negative.
    series = jnp.square(d) * (0.5 + d * (1.0 / 6.0 + d / 24.0))
    return jnp.where(jnp.abs(d) < SMALL, series, jnp.expm1(d) - d)
