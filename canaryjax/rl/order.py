"""In which order each policy sees its rows: fixed by its own key, whoever trains beside it."""

from typing import TypeVar

import jax
import numpy as np

Rows = TypeVar("Rows")


def row_order(key: jax.Array, rows: np.ndarray, epochs: int) -> np.ndarray:
    """The given row numbers in one permutation an epoch, one after the other.

    Args:
      key: One policy's typed key.
      rows: int `[n]`.
      epochs: Permutations to draw; epoch e's depends on the key and e alone.

    Returns:
      int32 `[epochs * n]`.
    """
    words = np.asarray(jax.random.key_data(key)).tolist()
    drawn = [np.random.default_rng([*words, epoch]).permutation(rows) for epoch in range(epochs)]
    return np.concatenate(drawn).astype(np.int32)


def padded_batches(order: np.ndarray, batch: int, batches: int) -> np.ndarray:
    """Row numbers cut into batches, -1 where there is no row left: int32 `[batches, batch]`."""
    padded = np.full(batches * batch, -1, np.int32)
    padded[: len(order)] = order
    return padded.reshape(batches, batch)


def take_rows(tree: Rows, index: jax.Array) -> Rows:
    """Rows of every array of one policy; -1 takes row 0, which the caller must give weight 0."""
    return jax.tree.map(lambda x: x[index.clip(0)], tree)
