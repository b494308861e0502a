"""What the machine can do, measured in the process that is benchmarked."""

import time

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

MATMUL_SIDE = 4096
COPY_BYTES = 2**28  # far beyond any cache


def matmul_rate(side: int = MATMUL_SIDE, dtype: DTypeLike = jnp.float32) -> float:
    """Operations a second: the best of five products of two square matrices."""
    a = jnp.ones((side, side), dtype)
    return 2 * side**3 / _best(jax.jit(jnp.matmul), a, a)


def copy_rate(size: int = COPY_BYTES) -> float:
    """Bytes a second, read and written counted: the best of five passes over a float32 array."""
    a = jnp.ones(size // 4, jnp.float32)
    return 2 * size / _best(jax.jit(jnp.negative), a)  # a plain copy could be left out by the compiler


def measured_limits(tiny: bool) -> dict[str, float]:
    """Both rates, as a result states them; the sizes of a smoke test are too small to mean anything."""
    return {
        "matmul_flops_per_s": matmul_rate(64 if tiny else MATMUL_SIDE),
        "copy_bytes_per_s": copy_rate(2**16 if tiny else COPY_BYTES),
    }


def _best(work, *args) -> float:
    jax.block_until_ready(work(*args))
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        jax.block_until_ready(work(*args))
        seconds.append(time.perf_counter() - started)
    return min(seconds)
