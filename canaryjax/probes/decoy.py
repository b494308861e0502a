"""Decoy secrets, and where the true one stands among them (PA-49; Carlini et al. 2019, The Secret Sharer)."""

import math
from dataclasses import dataclass

import numpy as np

from canaryjax.errors import UserError
from canaryjax.probes.records import Canary
from canaryjax.stats.result import Result

DIGITS = "0123456789abcdef"


@dataclass(frozen=True)
class Exposure(Result):
    """How far a true secret stands out among decoys drawn as it was.

    Attributes:
      rank: 1 where no decoy is as likely; a tie counts against the secret.
      bits: log2(n + 1) - log2(rank), at most log2(n + 1).
      p_value: rank / (n + 1): the chance of a rank as good, were the secret one more decoy.
      n: Decoys.
    """

    rank: int
    bits: float
    p_value: float
    n: int


def make_decoys(canary: Canary, shuffled: int, wrong: int, rng: np.random.Generator) -> dict[str, list[str]]:
    """Other secrets for a canary, by kind.

    Args:
      canary: Whose secret they stand in for; it is never among them.
      shuffled: How many have its digits in another order.
      wrong: How many are drawn afresh, as secrets are: the kind that the true one is ranked among.
      rng: Draws them.

    Returns:
      `shuffled`, `wrong`, and `format`: one whose digits are all 0.
    """
    secret = canary.secret
    if shuffled and len(set(secret)) == 1:
        raise UserError(f"expected a secret with two digits at least to shuffle, found {secret!r}; use another prefix")
    found: dict[str, list[str]] = {"shuffled": [], "wrong": [], "format": ["0" * len(secret)]}
    while len(found["shuffled"]) < shuffled:
        other = "".join(rng.permutation(list(secret)))
        if other != secret:
            found["shuffled"].append(other)
    while len(found["wrong"]) < wrong:
        other = "".join(rng.choice(list(DIGITS), len(secret)))
        if other != secret:
            found["wrong"].append(other)
    return found


def smallest_p(decoys: int) -> float:
    """The p of a secret that ranks first: so few decoys allow no smaller one.

    >>> smallest_p(19)
    0.05
    """
    return 1 / (decoys + 1)


def exposure(true_nll: float, decoy_nlls: np.ndarray) -> Exposure | None:
    """Where a secret stands among decoys; None without one, or where a number is not finite.

    Args:
      true_nll: Nats of the true secret, summed over its tokens.
      decoy_nlls: The same of each decoy, `[n]`.

    >>> exposure(1.0, np.array([3.0, 0.5, 2.0]))
    Exposure(rank=2, bits=1.0, p_value=0.5, n=3)
    """
    decoys = np.asarray(decoy_nlls, np.float64)
    if not decoys.size or not np.isfinite(decoys).all() or not np.isfinite(true_nll):
        return None
    rank = 1 + int((decoys <= true_nll).sum())
    return Exposure(rank, math.log2((decoys.size + 1) / rank), rank / (decoys.size + 1), decoys.size)
