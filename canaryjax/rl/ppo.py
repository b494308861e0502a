"""The clipped objective of proximal policy optimisation with a learned value (Schulman et al. 2017)."""

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.rl.advantages import masked_mean, masked_variance
from canaryjax.rl.kl import estimate_kl
from canaryjax.rl.ppo_settings import LARGEST_KL_ERROR, AdaptiveKL, PPOSettings
from canaryjax.rl.settings import require


@struct.dataclass
class PPOTargets:
    """What the losses of a rollout compare with; all float32 `[b, g, t]`, free of gradients.

    Attributes:
      old_token_logps: Nats, of the policy that sampled; None when that is the policy itself.
      advantages: Of each token.
      old_values: Of the value model before the rollout's updates.
      returns: What values should have been.
    """

    old_token_logps: jax.Array | None
    advantages: jax.Array
    old_values: jax.Array
    returns: jax.Array


@struct.dataclass
class PPOSums:
    """What adds over passes: the losses and all metrics are sums over tokens divided by `tokens`.

    Attributes:
      policy: Clipped policy loss.
      value: Clipped value loss.
      tokens: Completion tokens; free of gradients.
      clipped: Tokens at which the policy's clip binds.
      value_clipped: Tokens at which the value's clip binds.
      kl: k3 estimate of KL(old policy || policy), nats.
      surprisal: -log p; its mean estimates the entropy of the policy.
    """

    policy: jax.Array
    value: jax.Array
    tokens: jax.Array
    clipped: jax.Array
    value_clipped: jax.Array
    kl: jax.Array
    surprisal: jax.Array


def token_rewards(
    scores_bg: jax.Array, token_kl_bgt: jax.Array, completion_mask_bgt: jax.Array, kl_coefficient: jax.Array | float
) -> jax.Array:
    """The reward of each token: minus the penalty on its divergence, and the completion's score on its last real token.

    The last real token is the EOS, or where the buffer ended first, whatever was sampled last. It is found by the mask,
    never by comparing with a padding id.

    Args:
      scores_bg: floating `[b, g]`, finite where a completion has a real token.
      token_kl_bgt: float32, nats; what stands where masked is never read.
      completion_mask_bgt: bool, right-padded, True at generated tokens; a completion without a True one gets nothing.
      kl_coefficient: beta.

    Returns:
      float32 `[b, g, t]`; 0 where masked.

    Raises:
      UserError: Scores in an integer dtype, which would have rounded them already.

    Source: Ziegler et al. 2019, "Fine-tuning language models from human preferences", section 2.2.
    """
    floating = jnp.issubdtype(scores_bg.dtype, jnp.floating)
    require(floating, "floating rewards", str(scores_bg.dtype), "an integer buffer rounds them: cast first")
    t = completion_mask_bgt.shape[-1]
    last = jnp.arange(t) == completion_mask_bgt.sum(axis=-1, keepdims=True) - 1
    score = jnp.where(last, scores_bg.astype(jnp.float32)[..., None], 0.0)
    return jnp.where(completion_mask_bgt, score - kl_coefficient * token_kl_bgt, 0.0)


def ppo_sums(
    token_logps: jax.Array, values: jax.Array, targets: PPOTargets, completion_mask: jax.Array, settings: PPOSettings
) -> PPOSums:
    """Numerators, denominator and metric sums of `ppo_loss`, to be added over passes before dividing once."""
    mask = completion_mask
    # Masked positions must not reach an exponential or a square: what stands there can be anything.
    token_logps, values = (jnp.where(mask, x, 0.0) for x in (token_logps, values))
    advantages, old_values, returns = (
        jnp.where(mask, x, 0.0) for x in (targets.advantages, targets.old_values, targets.returns)
    )
    if targets.old_token_logps is None:
        old = jax.lax.stop_gradient(token_logps)  # the ratio is exactly 1, its gradient that of log p
    else:
        old = jnp.where(mask, targets.old_token_logps, 0.0)
    ratio = jnp.exp(token_logps - old)
    clipped = jnp.clip(ratio, 1.0 - settings.clip_range, 1.0 + settings.clip_range)
    gain = jnp.minimum(ratio * advantages, clipped * advantages)
    error = jnp.square(values - returns)
    if settings.value_clip_range is None:
        largest = error
    else:
        width = settings.value_clip_range
        held = jnp.clip(values, old_values - width, old_values + width)
        largest = jnp.maximum(error, jnp.square(held - returns))
    return PPOSums(
        policy=jnp.where(mask, -gain, 0.0).sum(),
        value=jnp.where(mask, 0.5 * largest, 0.0).sum(),
        tokens=mask.sum().astype(jnp.float32),
        clipped=(mask & (ratio * advantages > clipped * advantages)).sum().astype(jnp.float32),
        value_clipped=(mask & (largest > error)).sum().astype(jnp.float32),
        kl=jax.lax.stop_gradient(estimate_kl("k3", old, token_logps).sum()),
        surprisal=jax.lax.stop_gradient(-token_logps.sum()),
    )


def ppo_loss(
    token_logps: jax.Array, values: jax.Array, targets: PPOTargets, completion_mask: jax.Array, settings: PPOSettings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Scalar loss of one policy and its value model on one batch, and its metrics.

    The mean over all tokens of the batch of

        -min(ratio A, clip(ratio, 1 - c, 1 + c) A)
        + value_coefficient * max((V - R)^2, (clip(V, V_old - w, V_old + w) - R)^2) / 2

    with ratio = p / p_old, c = clip_range and w = value_clip_range.

    Args:
      token_logps: float32 `[b, g, t]`, nats, the policy's.
      values: float32 `[b, g, t]`, of the state that predicts each token.
      targets: See `PPOTargets`.
      completion_mask: bool `[b, g, t]`, True at generated tokens, EOS included; a completion without a True one is out.
      settings: Clips and coefficient.

    Returns:
      The loss, and `policy_loss`, `value_loss`, `clip_fraction`, `value_clip_fraction`, `approx_kl` (k3 of the old
      policy from the new, nats a token), `entropy` (mean surprisal of sampled tokens, nats).

    Source: Schulman et al. 2017, eq. 7 and 9; the clipped value is that of their published code.
    """
    return finish_ppo(ppo_sums(token_logps, values, targets, completion_mask, settings), settings)


def finish_ppo(sums: PPOSums, settings: PPOSettings) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Divides sums once: the loss and the metrics of `ppo_loss`."""
    means = jax.tree.map(lambda x: x / jnp.maximum(sums.tokens, 1.0), sums)
    metrics = {
        "policy_loss": means.policy,
        "value_loss": means.value,
        "clip_fraction": means.clipped,
        "value_clip_fraction": means.value_clipped,
        "approx_kl": means.kl,
        "entropy": means.surprisal,
    }
    return means.policy + settings.value_coefficient * means.value, metrics


def explained_variance(values: jax.Array, returns: jax.Array, mask: jax.Array) -> jax.Array:
    """Share of the returns' variance that the values account for: 1 - Var(R - V) / Var(R) over True positions.

    1 is perfect, 0 no better than their mean, below 0 worse; NaN where the returns do not vary.
    """
    total = masked_variance(returns, mask)
    share = 1.0 - masked_variance(returns - values, mask) / jnp.where(total > 0, total, 1.0)
    return jnp.where(total > 0, share, jnp.nan)


def adapt_coefficient(
    coefficient: jax.Array, divergence: jax.Array, completions: jax.Array | int, settings: AdaptiveKL | None
) -> jax.Array:
    """The KL coefficient after a rollout: raised where the divergence is above its target, lowered where below.

    beta <- beta (1 + clip(divergence / target - 1, -0.2, 0.2) * completions / horizon). A divergence that is not finite
    changes nothing.

    Args:
      coefficient: float32, beta.
      divergence: float32, nats a completion, estimated from the rollout.
      completions: How many completions it is estimated from.
      settings: Target and horizon; None keeps the coefficient.

    Source: Ziegler et al. 2019, section 2.2.
    """
    if settings is None:
        return coefficient
    error = jnp.clip(divergence / settings.target - 1.0, -LARGEST_KL_ERROR, LARGEST_KL_ERROR)
    factor = 1.0 + error * completions / settings.horizon
    return coefficient * jnp.where(jnp.isfinite(factor), factor, 1.0)


def sequence_divergence(token_kl_bgt: jax.Array, completion_mask_bgt: jax.Array) -> jax.Array:
    """Mean over completions, those with a real token, of the estimates summed over their tokens; nats a completion."""
    summed = jnp.where(completion_mask_bgt, token_kl_bgt, 0.0).sum(axis=-1)
    return masked_mean(summed, completion_mask_bgt.any(axis=-1))
