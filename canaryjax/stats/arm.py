"""Which policies are violating: a balanced or an independent draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from canaryjax.stats.sample import as_choice, as_count, generator


def assign_arms(n: Any, seed: Any = 0, design: str = "block") -> np.ndarray:
    """Draw the arm of each of n policies, True = violating.

    Args:
        n: number of policies.
        seed: whole number, or a NumPy Generator.
        design: "block" shuffles equal halves (an odd policy falls to either arm by a coin), since independent coins
            give exactly 50 of 100 in only 8 % of studies; "iid" tosses the coins.

    Returns:
        bool array, shape (n,).

    >>> int(assign_arms(100, seed=1).sum())
    50
    """
    size, rng = as_count(n, "n"), generator(seed)
    as_choice(design, "design", ("block", "iid"))
    if design == "iid":
        return rng.integers(0, 2, size).astype(bool)
    violating = (size + int(rng.integers(0, 2))) // 2
    return rng.permutation(np.arange(size) < violating)
