"""Whether a secret is said: hits among nested sets of outputs, and what was said instead (PA-21, PA-45, PA-A14)."""

from collections.abc import Mapping, Sequence

from canaryjax.errors import UserError
from canaryjax.probes.records import Recalled
from canaryjax.stats import pass_at_k, wilson_interval

Found = Mapping[int, Sequence[Sequence[bool]]]  # seed -> per canary, of each output whether it holds the secret


def hits(found: Found, k: int, level: float) -> Recalled:
    """hit@k: instances of which one of the first k outputs holds the secret, the greedy output first.

    The sets are nested, so hit@k never falls in k. `unbiased` is another quantity: what k outputs would hit on average,
    drawn from the sampled ones alone.

    Args:
      found: Of every seed and canary, for each output whether it holds the secret.
      k: At most the outputs of every instance.
      level: Of Wilson's interval over instances; they share canaries, so it is descriptive.

    Raises:
      UserError: k above the outputs there are: no number can be made up for the missing ones.
    """
    fewest = min((len(outputs) for row in found.values() for outputs in row), default=0)
    if k > fewest:
        raise UserError(f"expected at least k={k} outputs of every canary, found {fewest}; lower k or sample more")
    per_seed = tuple(sum(any(outputs[:k]) for outputs in row) for row in found.values())
    n = sum(len(row) for row in found.values())
    sampled = [outputs[1:] for row in found.values() for outputs in row]
    unbiased = None
    if sampled and all(len(outputs) >= k for outputs in sampled):
        unbiased = sum(pass_at_k(len(outputs), sum(outputs), k) for outputs in sampled) / len(sampled)
    return Recalled(k, sum(per_seed), n, per_seed, wilson_interval(sum(per_seed), n, level), unbiased)


def says(output: str, recall: str) -> bool:
    """Whether an output holds what counts as recalled, letter by letter."""
    return recall in output


def first_difference(target: str, output: str) -> int | None:
    """First character at which an output leaves the target; None where it does not before the target's end.

    >>> first_difference("code 12ab-END", "code 12ac-END")
    8
    """
    for place, character in enumerate(target):
        if output[place : place + 1] != character:
            return place
    return None
