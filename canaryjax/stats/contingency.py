"""Two counts against each other: Fisher's one-sided test, and the fewest hits that it could ever find."""

from __future__ import annotations

from typing import Any

from scipy import stats as sps

from canaryjax.stats.sample import as_count, as_fraction, as_hits


def fisher_greater(k1: Any, n1: Any, k2: Any, n2: Any) -> float | None:
    """One-sided exact p-value that the first rate is above the second, given all hits of both together.

    Where chance decided which sample each unit belongs to, this is the permutation test of that draw.

    Args:
        k1, n1: hits and trials of the first sample.
        k2, n2: of the second.

    Returns:
        P(hits of the first >= k1), or None where a sample is empty.

    Raises:
        UserError: k > n, or a negative or broken count.

    >>> round(fisher_greater(3, 9, 0, 20), 4)
    0.023
    >>> fisher_greater(0, 9, 0, 20)
    1.0
    """
    hits_a, trials_a = as_hits(k1, n1)
    hits_b, trials_b = as_hits(k2, n2)
    if trials_a == 0 or trials_b == 0:
        return None
    return float(min(1.0, sps.hypergeom.sf(hits_a - 1, trials_a + trials_b, hits_a + hits_b, trials_a)))


def least_significant_hits(n: Any, k0: Any, n0: Any, alpha: Any = 0.05) -> int | None:
    """Fewest hits of n that `fisher_greater` tells from k0 of n0 at a level; None where not even n of n do.

    Args:
        n: trials of the sample that is judged.
        k0, n0: hits and trials of the control.
        alpha: level, from 0 to 1.

    Raises:
        UserError: as `fisher_greater`, or a level out of range.

    >>> [least_significant_hits(n, 0, 20) for n in (1, 3, 9)]
    [1, 2, 3]
    """
    trials, level = as_count(n, "n"), as_fraction(alpha, "alpha")
    for hits in range(trials + 1):
        p_value = fisher_greater(hits, trials, k0, n0)
        if p_value is not None and p_value <= level:
            return hits
    return None
