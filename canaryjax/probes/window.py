"""Means of per-token NLL over windows and spans (PA-18 to PA-20).

`mean_K` is always the mean of the first K positions. A span's mean, the secret's above all, is over that span's tokens
alone, wherever they lie, and is no window's.
"""

from collections.abc import Sequence

import numpy as np

ROUNDING = 1e-6  # nats a token: a ratio to less is a ratio of rounding errors
NOTHING = float("nan")  # an instance that has no such quantity: it is left out and counted


def mean_window(nll: np.ndarray, k: int) -> float:
    """Mean of the first k positions; NaN where the target is shorter: a mean over fewer would be another quantity.

    >>> mean_window(np.array([1.0, 3.0, 8.0]), 2)
    2.0
    >>> mean_window(np.array([1.0, 3.0, 8.0]), 4)
    nan
    """
    return NOTHING if len(nll) < k else float(np.mean(nll[:k]))


def span_mean(nll: np.ndarray, owners: Sequence[str], span: str) -> float:
    """Mean over all tokens of a span; NaN where it has none.

    >>> span_mean(np.array([1.0, 3.0, 8.0]), ("preamble", "secret", "secret"), "secret")
    5.5
    """
    chosen = nll[span_positions(owners, span)]
    return float(chosen.mean()) if chosen.size else NOTHING


def span_positions(owners: Sequence[str], span: str) -> np.ndarray:
    """Positions of a span's tokens, int `[n]`.

    >>> span_positions(("preamble", "secret", "secret"), "secret").tolist()
    [1, 2]
    """
    return np.flatnonzero(np.array(owners) == span)
