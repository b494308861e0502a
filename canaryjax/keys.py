"""Named random streams: adding a consumer never reshuffles another.

A stream is addressed by (seed, purpose, indices). Names are hashed by blake2b: nothing depends on Python's hash seed.
"""

import hashlib

import jax
import numpy as np


def stream_id(*parts: str | int) -> int:
    """A 63-bit integer that is a fixed function of the parts, the same in every process and on every machine."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def host_rng(seed: int, purpose: str, *indices: int | str) -> np.random.Generator:
    """NumPy generator of the stream (seed, purpose, *indices), for choices made on the host."""
    return np.random.default_rng(stream_id(seed, purpose, *indices))


def device_key(seed: int, purpose: str, *indices: int | str) -> jax.Array:
    """JAX key of the stream (seed, purpose, *indices), for draws made inside a program."""
    word = stream_id(seed, purpose, *indices)
    return jax.random.fold_in(jax.random.key(word & 0x7FFFFFFF), (word >> 31) & 0x7FFFFFFF)
