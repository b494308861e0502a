"""The clipped, group-relative objective with a KL penalty (Shao et al. 2024)."""

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.rl.kl import estimate_kl
from canaryjax.rl.settings import GRPOSettings


@struct.dataclass
class GRPOSums:
    """What adds over passes: the loss is `objective / denominator`, and each metric its sum over its own count.

    Attributes:
      objective: Summed loss.
      denominator: What to divide it by; free of gradients.
      tokens: Completion tokens.
      kl: Summed k3 over tokens, whatever estimator the loss uses.
      clipped: Tokens at which the clip binds.
      surprisal: Summed -log p over tokens; its mean estimates the entropy of the policy.
    """

    objective: jax.Array
    denominator: jax.Array
    tokens: jax.Array
    kl: jax.Array
    clipped: jax.Array
    surprisal: jax.Array


def grpo_sums(
    token_logps: jax.Array,
    ref_token_logps: jax.Array,
    old_token_logps: jax.Array | None,
    advantages: jax.Array,
    completion_mask: jax.Array,
    settings: GRPOSettings,
) -> GRPOSums:
    """Numerator, denominator and metric sums of `grpo_loss`, to be added over passes before dividing once."""
    mask = completion_mask
    # Masked positions must not reach an exponential: what stands there can be anything.
    token_logps, ref_token_logps = (jnp.where(mask, x, 0.0) for x in (token_logps, ref_token_logps))
    if old_token_logps is None:
        old = jax.lax.stop_gradient(token_logps)  # the ratio is exactly 1, its gradient that of log p
    else:
        old = jax.lax.stop_gradient(jnp.where(mask, old_token_logps, 0.0))
    ratio = jnp.exp(token_logps - old)
    advantage = advantages[..., None]
    clipped = jnp.clip(ratio, 1.0 - settings.clip_low, 1.0 + settings.clip_high)
    gain = jnp.minimum(ratio * advantage, clipped * advantage)
    if settings.dual_clip is not None:
        gain = jnp.where(advantage < 0, jnp.maximum(gain, settings.dual_clip * advantage), gain)
    loss = -gain
    if settings.kl_coefficient > 0:
        loss = loss + settings.kl_coefficient * estimate_kl(settings.kl, token_logps, ref_token_logps, old)
    loss = jnp.where(mask, loss, 0.0)
    lengths = mask.sum(axis=-1)
    match settings.loss_normalisation:
        case "sequence":
            objective = (loss.sum(axis=-1) / jnp.maximum(lengths, 1)).sum()
            denominator = (lengths > 0).sum()
        case "token":
            objective, denominator = loss.sum(), lengths.sum()
        case "constant":
            objective, denominator = loss.sum(), (lengths > 0).sum() * settings.max_completion_length
    binds = mask & (ratio * advantage > clipped * advantage)
    kl = estimate_kl("k3", token_logps, ref_token_logps)
    return GRPOSums(
        objective=objective,
        denominator=denominator.astype(jnp.float32),
        tokens=lengths.sum().astype(jnp.float32),
        kl=jax.lax.stop_gradient(jnp.where(mask, kl, 0.0).sum()),
        clipped=binds.sum().astype(jnp.float32),
        surprisal=jax.lax.stop_gradient(-token_logps.sum()),
    )


def grpo_loss(
    token_logps: jax.Array,
    ref_token_logps: jax.Array,
    old_token_logps: jax.Array | None,
    advantages: jax.Array,
    completion_mask: jax.Array,
    settings: GRPOSettings,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Scalar loss of one policy on one batch, and its metrics.

    Per token: -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A) + beta * KL, ratio = p / p_old. Then

    - `sequence`: mean over tokens of each completion, mean over completions (Shao et al. 2024): short completions
      weigh more per token;
    - `token`: mean over all tokens of the batch (DAPO, Yu et al. 2025): long completions weigh more;
    - `constant`: sum over tokens / (completions * max_completion_length) (Dr. GRPO, Liu et al. 2025).

    Args:
      token_logps: float32 `[b, g, t]`, nats, the policy's.
      ref_token_logps: The reference's, under the same law.
      old_token_logps: Those of the policy that sampled; None when that is the policy itself.
      advantages: float32 `[b, g]`.
      completion_mask: bool `[b, g, t]`, True at generated tokens, EOS included; a completion without a True one is out.
      settings: Coefficients and normalisation.

    Returns:
      The loss, and `kl` (k3, nats a token), `clip_fraction`, `entropy` (mean surprisal of sampled tokens, nats).
    """
    sums = grpo_sums(token_logps, ref_token_logps, old_token_logps, advantages, completion_mask, settings)
    return finish_grpo(sums)


def finish_grpo(sums: GRPOSums) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Divides sums once: the loss and the metrics of `grpo_loss`."""
    tokens = jnp.maximum(sums.tokens, 1.0)
    metrics = {"kl": sums.kl / tokens, "clip_fraction": sums.clipped / tokens, "entropy": sums.surprisal / tokens}
    return sums.objective / jnp.maximum(sums.denominator, 1.0), metrics
