"""Rows of ids of unequal lengths as one array."""

from collections.abc import Sequence

import numpy as np

from canaryjax.errors import UserError


def pad_rows(rows: Sequence[Sequence[int] | np.ndarray], length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids as one left-aligned array, padded on the right.

    Arguments: rows of at most `length` ids each; `length` columns; `pad_id` in [0, vocabulary).
    Returns ids int32 (b, t) and a bool mask (b, t), True at real tokens.
    Raises UserError for a row longer than `length`.

    >>> pad_rows([[5, 6], [7]], 3, 0)[0].tolist()
    [[5, 6, 0], [7, 0, 0]]
    """
    ids = np.full((len(rows), length), pad_id, np.int32)
    mask = np.zeros((len(rows), length), bool)
    for b, row in enumerate(rows):
        if len(row) > length:
            raise UserError(
                f"expected rows of at most {length} tokens, found {len(row)} in row {b}: use a larger bucket"
            )
        ids[b, : len(row)] = row
        mask[b, : len(row)] = True
    return ids, mask
