"""Gradient accumulation that divides summed numerators by summed denominators once."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

Sums = TypeVar("Sums")
Batch = TypeVar("Batch")


def sum_passes(body: Callable[[Batch], Sums], batch: Batch, passes: int) -> Sums:
    """Adds `body(part)` over equal parts of a batch, holding one part's activations at a time.

    Differentiate a function of the result: each part is then run again in the backward pass, and any loss of the sums
    (a ratio, a squared mean) gets its exact gradient. Means of means over unequal lengths cannot arise.

    Args:
      body: From one part to a pytree of sums; pure.
      batch: Pytree whose arrays have rows in front, a multiple of `passes` of them.
      passes: How many parts; 1 runs the body on the batch as it is, without recomputation.
    """
    if passes == 1:
        return body(batch)
    parts = jax.tree.map(lambda x: x.reshape(passes, x.shape[0] // passes, *x.shape[1:]), batch)
    one = jax.eval_shape(body, jax.tree.map(lambda x: x[0], parts))
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)

    def add(total, part):
        return jax.tree.map(jnp.add, total, jax.checkpoint(body)(part)), None

    return jax.lax.scan(add, zero, parts)[0]
