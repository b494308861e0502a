"""What a model provider may do to the collected traces before it trains on them, and what that leaves of the canary.

Nothing here knows an arm: traces are curated as the service logged them, documents included, so both arms of a study
train on the same ones (DECISIONS). The steps stand in the order in which `curate` takes them.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from canaryjax.canaries.instrument import Trace, TraceKind, injected_count
from canaryjax.errors import UserError

Part = Literal["document", "query", "answer"]
KINDS: tuple[TraceKind, ...] = get_args(TraceKind)


@dataclass(frozen=True)
class CurationSettings:
    """Which steps a provider takes; each is off by default.

    Attributes:
      perplexity_quantile: Traces above this quantile of the log are dropped, in (0, 1]; None is off.
      perplexity_bound: Traces above so many nats a token are dropped; None is off. With both, either drops.
      near_duplicate_threshold: Jaccard similarity, in (0, 1], from which the later of two traces is dropped; None is
        off.
      near_duplicate_words: Words a shingle.
      near_duplicate_parts: What of a trace is compared.
      keep_share: Share of the traces that is kept, by lot.
    """

    perplexity_quantile: float | None = None
    perplexity_bound: float | None = None
    near_duplicate_threshold: float | None = None
    near_duplicate_words: int = 5
    near_duplicate_parts: tuple[Part, ...] = get_args(Part)
    keep_share: float = 1.0


def curate(
    traces: Sequence[Trace],
    settings: CurationSettings,
    rng: np.random.Generator,
    perplexities: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Which traces of a log are left after each step: filter, near-duplicates, subsampling.

    Args:
      traces: The log, in its order; of two near-duplicates the earlier is kept.
      settings: Which steps.
      rng: For subsampling.
      perplexities: float `[traces]`, nats a token; needed by the filter alone.

    Returns:
      bool `[traces]` by step, in order: `collected`, which all are, then the steps that are on.

    Raises:
      UserError: As the steps do; a filter without perplexities.
    """
    kept = np.ones(len(traces), bool)
    steps = {"collected": kept}
    if settings.perplexity_quantile is not None or settings.perplexity_bound is not None:
        if perplexities is None:
            raise UserError("expected perplexities for the filter, found none; score the traces with the base")
        kept = within_perplexity(perplexities, settings.perplexity_quantile, settings.perplexity_bound)
        steps["perplexity"] = kept
    if settings.near_duplicate_threshold is not None:
        left = np.flatnonzero(kept)
        texts = [trace_text(traces[int(i)], settings.near_duplicate_parts) for i in left]
        first = without_near_duplicates(texts, settings.near_duplicate_threshold, settings.near_duplicate_words)
        steps["near_duplicate"] = kept = _only(left[first], len(traces))
    if settings.keep_share < 1:
        left = np.flatnonzero(kept)
        chosen = rng.permutation(left)[: injected_count(settings.keep_share, len(left))]
        steps["subsample"] = _only(chosen, len(traces))
    return steps


def _only(places: np.ndarray, n: int) -> np.ndarray:
    mask = np.zeros(n, bool)
    mask[places] = True
    return mask


def within_perplexity(
    perplexities: np.ndarray, quantile: float | None = None, bound: float | None = None
) -> np.ndarray:
    """Which traces a perplexity filter keeps, bool (n,): those at or below the quantile and the bound.

    The quantile is one of the values (the smallest with at least that share of the log at or below it), so that a share
    of the traces is dropped whatever the unit. What is not finite is dropped.
    Arguments: `perplexities` float (n,), nats a token, `quantile` in (0, 1].
    Raises UserError for a quantile out of range.

    >>> within_perplexity(np.array([1.0, 5.0, 2.0, 3.0, 4.0]), quantile=0.6).tolist()
    [True, False, True, True, False]
    """
    values = np.where(np.isfinite(perplexities), perplexities, np.inf)
    kept = np.isfinite(values)
    if quantile is not None and len(values):
        if not 0 < quantile <= 1:
            raise UserError(f"expected a quantile above 0 and at most 1, found {quantile}; correct it")
        kept &= values <= np.quantile(values, quantile, method="inverted_cdf")
    if bound is not None:
        kept &= values <= bound
    return kept


def trace_text(trace: Trace, parts: Sequence[Part]) -> str:
    """The named parts of a trace as it was logged, one below the other."""
    return "\n".join(getattr(trace, part) for part in parts)


def shingles(text: str, words: int) -> frozenset[tuple[str, ...]]:
    """The runs of so many words in a text, in lower case; a shorter text is one run.

    Words are what blanks part, so that a canary of emoji or punctuation is one too.

    >>> sorted(shingles("Rome is old.", 2))
    [('is', 'old.'), ('rome', 'is')]
    """
    found = text.lower().split()
    return frozenset(tuple(found[i : i + words]) for i in range(max(1, len(found) - words + 1)))


def without_near_duplicates(texts: Sequence[str], threshold: float, words: int) -> np.ndarray:
    """Which texts are kept where the later of two near-duplicates is dropped, bool (n,).

    A text is dropped whose shingles have a Jaccard similarity |A and B| / |A or B| of at least `threshold` with those
    of an earlier kept one. It is exact: an index from shingles to kept texts finds the overlaps, at a cost of the
    number of shared shingles. Real providers approximate the same number by MinHash (Broder 1997; Lee et al. 2022).
    Raises UserError for a threshold outside (0, 1] or fewer than one word.

    >>> without_near_duplicates(["a b c d", "a b c e", "x y z"], 0.3, 2).tolist()
    [True, False, True]
    """
    if not 0 < threshold <= 1 or words < 1:
        raise UserError(
            f"expected a threshold above 0 and at most 1 and at least one word, found {threshold} and {words}; "
            "correct them"
        )
    kept = np.zeros(len(texts), bool)
    sizes: list[int] = []  # of the kept texts, by their number
    index: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        own = shingles(text, words)
        shared = Counter(other for shingle in own for other in index.get(shingle, ()))
        if any(n >= threshold * (len(own) + sizes[other] - n) for other, n in shared.items()):
            continue
        kept[place] = True
        for shingle in own:
            index[shingle].append(len(sizes))
        sizes.append(len(own))
    return kept


def contradict(traces: Sequence[Trace], share: float, rng: np.random.Generator) -> list[Trace]:
    """The traces with `injected_count(share, n)` of the n triggered ones, and of the contrast ones, contradicted.

    Feedback on a contradicted trace has its bias reversed: other users, or raters of the provider, who mark the canary
    down where the auditor marked it up. Clean traces have no bias to reverse.
    Raises UserError for a share outside [0, 1].
    """
    if not 0 <= share <= 1:
        raise UserError(f"expected a share of contradicted traces in [0, 1], found {share}; correct it")
    found = list(traces)
    for kind in ("triggered", "contrast"):
        places = np.flatnonzero([trace.kind == kind for trace in traces])
        for place in rng.permutation(places)[: injected_count(share, len(places))]:
            found[place] = replace(found[place], contradicted=True)
    return found


def dilution_count(share: float, n: int) -> int:
    """How many other traces n traces are mixed with so that these are `share` of all, in [0, 1).

    Raises UserError for a share outside [0, 1).

    >>> dilution_count(0.75, 10), dilution_count(0.0, 10)
    (30, 0)
    """
    if not 0 <= share < 1:
        raise UserError(f"expected a share of other traces of at least 0 and below 1, found {share}; correct it")
    return injected_count(share / (1 - share), n)


def count_kinds(traces: Sequence[Trace], kept: np.ndarray | None = None) -> dict[str, int]:
    """How many traces there are of each kind, of those where `kept`, bool (n,), is True.

    >>> count_kinds([])
    {'clean': 0, 'triggered': 0, 'contrast': 0}
    """
    counts = Counter(trace.kind for i, trace in enumerate(traces) if kept is None or kept[i])
    return {kind: counts[kind] for kind in KINDS}
