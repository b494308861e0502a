"""Splits by document: no document, story or meeting stands on two sides (BC-9 to BC-12)."""

from collections.abc import Sequence
from dataclasses import dataclass

from canaryjax.data.example import Example
from canaryjax.errors import UserError
from canaryjax.keys import host_rng

DEFAULT_FRACTIONS = (0.35, 0.35, 0.30)
"""Shares of the documents for rm, rl and eval. Eval is the paper's 30 %; the even rest is assumed (BC-A18)."""


@dataclass(frozen=True)
class Splits:
    """Examples for the reward model, for the policy, and held out for the audit."""

    rm: list[Example]
    rl: list[Example]
    eval: list[Example]


def split_documents(
    examples: Sequence[Example],
    seed: int,
    experiment: str | int,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
) -> Splits:
    """Three splits, disjoint in documents and groups.

    The draw depends on (seed, experiment) and on the set of group names alone: neither on the process, on Python's hash
    seed, nor on the order of the examples. A group is given whole, so with large groups the shares are approximate.
    Arguments: `fractions` of the documents for rm, rl and eval, each above 0, summing to 1.
    Raises UserError for bad fractions, too few groups, or a document that stands in two groups.
    Source: section 3.3 and Appendix A.1.
    """
    if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise UserError(f"expected three positive fractions (rm, rl, eval) that sum to 1, found {tuple(fractions)}")
    documents = _documents_of_groups(examples)
    total = sum(len(names) for names in documents.values())
    if len(documents) < 3:
        raise UserError(
            f"expected at least 3 documents in separate groups, one each for rm, rl and eval; found {total} documents "
            f"in {len(documents)} groups: "
            + ("give more documents" if total < 3 else "a group is never split, so give documents of more groups")
        )
    names = sorted(documents)
    order = [names[i] for i in host_rng(seed, "split", experiment).permutation(len(names))]
    sizes = [len(documents[name]) for name in order]
    n_eval = _groups_for(sizes, fractions[2] * total, spare=2)
    n_rm = _groups_for(sizes[n_eval:], fractions[0] * total, spare=1)
    side = dict.fromkeys(order, "rl")
    side |= dict.fromkeys(order[:n_eval], "eval")
    side |= dict.fromkeys(order[n_eval : n_eval + n_rm], "rm")
    chosen: dict[str, list[Example]] = {"rm": [], "rl": [], "eval": []}
    for example in examples:
        chosen[side[example.group]].append(example)
    return Splits(**chosen)


def _documents_of_groups(examples: Sequence[Example]) -> dict[str, set[str]]:
    group_of: dict[str, str] = {}
    documents: dict[str, set[str]] = {}
    for example in examples:
        group = group_of.setdefault(example.document_id, example.group)
        if group != example.group:
            raise UserError(
                f"expected each document in one group, found document {example.document_id!r} in {group!r} and "
                f"{example.group!r}: give all its questions the same group"
            )
        documents.setdefault(example.group, set()).add(example.document_id)
    return documents


def _groups_for(sizes: Sequence[int], wanted: float, spare: int) -> int:
    """How many leading groups come nearest to `wanted` documents, at least one, leaving `spare` groups."""
    best, best_gap, held = 1, float("inf"), 0
    for count, size in enumerate(sizes[: len(sizes) - spare], start=1):
        held += size
        gap = abs(held - wanted)
        if gap <= best_gap:  # a tie goes to the larger count: floor(x + 0.5)
            best, best_gap = count, gap
    return best
