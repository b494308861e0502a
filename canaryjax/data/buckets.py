"""Row lengths from a short list, so that few programs are compiled."""

from collections.abc import Sequence

import numpy as np

from canaryjax.errors import UserError


def bucket_length(n: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds n tokens.

    Raises UserError when none does: a row is never cut to fit.

    >>> bucket_length(5, [4, 8, 16])
    8
    """
    fitting = [length for length in buckets if length >= n]
    if not fitting:
        raise UserError(
            f"expected rows of at most {max(buckets, default=0)} tokens (the largest bucket), found one of {n}: "
            f"add a larger bucket or shorten the documents"
        )
    return min(fitting)


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
