"""LoRA dropout by masking the adapter instead of its inputs."""

import dataclasses

import jax
import jax.numpy as jnp

from canaryjax.models.lora import HEAD, Adapter, adapter_pairs, from_pairs


def drop_inputs(adapter: Adapter, key: jax.Array, rate: float) -> Adapter:
    """The adapter with a random share of its input features dropped and the rest scaled up, for one training step.

    Zeroing feature i of a projection's input is zeroing row i of `a`, so one mask `[l, in]` a projection, and `[in]` of
    the head, serves all tokens of the step. PEFT draws a mask for each token; the expectation is the same, the draws
    fewer by the number of tokens. Only training calls this: scoring, sampling and references never do.

    Args:
      adapter: One policy's.
      key: A key for this step.
      rate: In [0, 1); 0 returns the adapter itself.
    """
    if rate == 0.0:
        return adapter
    pairs = {}
    # Sorted, the head last: with or without one, the projections' draws are the same.
    for index, (name, pair) in enumerate(sorted(adapter_pairs(adapter).items(), key=lambda x: (x[0] == HEAD, x[0]))):
        kept = jax.random.bernoulli(jax.random.fold_in(key, index), 1.0 - rate, pair.a.shape[:-1])
        pairs[name] = dataclasses.replace(pair, a=jnp.where(kept[..., None], pair.a / (1.0 - rate), 0.0))
    return from_pairs(pairs, adapter.scale)
