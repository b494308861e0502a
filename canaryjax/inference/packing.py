"""Rows of different lengths -> few batches of few shapes, so that few programs are compiled.

Sizes are rounded up to a short ladder and rows of one size meet in a batch; what stands in a batch beside a row changes
its result by float32 rounding at most.
"""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

BATCH_TOKENS = 8192  # tokens of one batch: enough to fill the matrix units, little enough for a small machine
FEWEST_TOKENS = 8
LONG = 1024


def round_up(n: int, least: int = 1) -> int:
    """The smallest size of the ladder that is at least n and `least`.

    It has two steps an octave (1, 2, 3, 4, 6, 8, 12, ...), so that at most a third is padding; eight above `LONG`,
    where padding costs more than another program does.

    >>> [round_up(n) for n in (1, 3, 5, 13, 200, 1600)]
    [1, 3, 6, 16, 256, 1664]
    """
    n = max(n, least)
    octave = 1 << max((n - 1).bit_length() - 1, 0)
    step = max(octave // (8 if n > LONG else 2), 1)
    return -(-n // step) * step


def batches(sizes: Sequence[tuple[Hashable, int]]) -> Iterator[tuple[list[int], int]]:
    """Groups row indices by shape and cuts each group into batches.

    Args:
      sizes: Per row its shape (rows of one batch agree on it) and how many tokens that is.

    Yields:
      Row indices and how many rows the batch is to have; the caller repeats a row to fill it.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, (shape, _) in enumerate(sizes):
        groups.setdefault(shape, []).append(index)
    for indices in groups.values():
        most = 1
        while most * 2 * sizes[indices[0]][1] <= BATCH_TOKENS:
            most *= 2
        for start in range(0, len(indices), most):
            part = indices[start : start + most]
            rows = 1
            while rows < len(part):
                rows *= 2
            yield part, rows


def cut(rows: Sequence[int], s: int, t: int) -> Iterator[Sequence[int]]:
    """Cuts one context's continuations so that a pass over it and them holds at most `BATCH_TOKENS`, or one of them.

    Args:
      rows: Their indices.
      s: Tokens of the padded context.
      t: Tokens of the longest continuation, padded.

    Yields:
      Indices in order, so few that their number rounded up to the ladder still fits.
    """
    most = 1
    while s + round_up(most + 1) * t <= BATCH_TOKENS:
        most = round_up(most + 1)
    for start in range(0, len(rows), most):
        yield rows[start : start + most]


def filled(part: list[int], rows: int) -> list[int]:
    """The batch's rows, its last one repeated to the full number: a copy ends when its original does."""
    return part + part[-1:] * (rows - len(part))


def pad(rows: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids int32 `(b, length)`, padded on the right with 0, and the mask of real ones."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(length) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int32)
    ids[mask] = np.concatenate(rows)
    return ids, mask
