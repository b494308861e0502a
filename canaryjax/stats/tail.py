"""Estimators over tokens and samples whose edge cases invent certainty: Min-K% and pass@k."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from canaryjax.errors import UserError
from canaryjax.stats.sample import as_choice, as_count, as_fraction, as_hits, as_measures, exact_product

ROUNDINGS = ("floor", "ceil")


def min_k_mean(token_logps: Any, share: float = 0.2, rounding: str = "floor") -> float | None:
    """Mean of the lowest share of a text's token log-probs (Min-K%), over max(1, floor(share × n)) tokens.

    Given log-probs standardised under the next token's law, it is Min-K%++.

    Args:
        token_logps: natural-log probabilities, shape (n,), each finite.
        share: part of the tokens to keep, 0 <= share <= 1; at least one token is kept, however short the text.
        rounding: "floor", as the paper's code, or "ceil", at least that share: 5 rather than 4 of 24 tokens.

    Returns:
        The mean in nats, or None for a text without tokens.

    Raises:
        UserError: a NaN or infinite log-prob (position named), share out of range, an unknown rounding.

    Source: Shi et al., ICLR 2024; standardised, Zhang et al., ICLR 2025.

    >>> min_k_mean([-1.0, -4.0, -2.0, -3.0])
    -4.0
    """
    logps, part = as_measures(token_logps, "token_logps"), as_fraction(share, "share")
    if not logps.size:
        return None
    exact = exact_product(logps.size, part)
    kept = max(1, math.ceil(exact) if as_choice(rounding, "rounding", ROUNDINGS) == "ceil" else math.floor(exact))
    return float(np.sort(logps)[:kept].mean())


def pass_at_k(n: Any, c: Any, k: Any) -> float:
    """Unbiased chance that at least one of k samples hits, from c hits in n samples: 1 − C(n − c, k)/C(n, k).

    Args:
        n: samples drawn, at least 1.
        c: hits among them, 0 <= c <= n.
        k: samples of the estimate, 1 <= k <= n.

    Raises:
        UserError: k > n (the formula would answer 1 without evidence), or counts out of range.

    Source: Chen et al., 2021 (Codex), eq. 1.

    >>> pass_at_k(5, 2, 2)
    0.7
    """
    total, wanted = as_count(n, "n", 1), as_count(k, "k", 1)
    hits, _ = as_hits(c, total)
    if wanted > total:
        raise UserError(f"k: expected at most n = {total} samples; found {wanted}; draw more samples or lower k")
    ways = math.comb(total, wanted)
    return (ways - math.comb(total - hits, wanted)) / ways
