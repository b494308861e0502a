"""The test of a panel: of independent groups where cells have trials of their own, of paired trials where they share.

Which test: Kruskal-Wallis with Dunn's pairs for families, Jonckheere-Terpstra for rates, Welch for two settings of
anything else (the paper's Appendix E, BC-68, BC-A13). Cells that share trials are refused these and get Page's trend or
sign flips, on the trials that are valid in all of them.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from canaryjax import stats
from canaryjax.errors import UserError

Kind = Literal["kruskal_wallis", "jonckheere_terpstra", "welch", "page", "sign_flips"]
NAMES: dict[Kind, str] = {
    "kruskal_wallis": "Kruskal-Wallis",
    "jonckheere_terpstra": "Jonckheere-Terpstra",
    "welch": "Welch's t",
    "page": "Page's",
    "sign_flips": "sign flips",
}
LEAST = 2  # policies a cell, and cells a panel
SEED = 0  # of all permutations: equal scores give equal files


@dataclass(frozen=True)
class Sample:
    """The violating policies of one cell.

    Attributes:
      label: Of the cell in the panel, unlike the others'.
      seed: Of its study; trials of equal seed and number have the same documents in the same splits.
      scores: Of valid policies, one number each.
      trials: The trials of these, in the same order.
      assigned: By arm, all of its trials, valid or not.
    """

    label: str
    seed: int
    scores: Sequence[float]
    trials: Sequence[int]
    assigned: dict[str, frozenset[int]]


def compare(samples: Sequence[Sample], letter: str | None, ordered: bool) -> dict[str, Any]:
    """The test between the finished cells of a panel.

    Args:
      samples: One a finished cell, in the order of the panel.
      letter: The paper's panel, where it has one: A and B keep their tests where two cells are left.
      ordered: Whether the cells are doses in rising order.

    Returns:
      Plain values: `kind`, None with a `reason` where nothing was computed; `independent`; `refused`, the test that
      shared trials ruled out and why; `result`, as the function of `stats` gives it; for a trend `permuted` and
      `rising`, for sign flips `pairs`; for paired tests `trials`, those that were compared, and `left_out`, those that
      are not valid in every cell.
    """
    reason = _too_few(samples)
    if reason is not None:
        return _none(reason)
    kind = _wanted(len(samples), letter, ordered)
    try:
        # By seed and number: the same number under another seed has other documents.
        ids = {s.label: [f"{t} of seed {s.seed}" for t in sorted(s.assigned["violating"])] for s in samples}
        stats.require_independent(ids, NAMES[kind])
    except UserError as error:
        return _paired(samples, ordered) | {"refused": {"kind": kind, "reason": str(error)}}
    return {"kind": kind, "independent": True, "refused": None, "reason": None} | _independent(samples, kind)


def _too_few(samples: Sequence[Sample]) -> str | None:
    if len(samples) < LEAST:
        return f"a panel needs {LEAST} finished cells, found {len(samples)}"
    small = [f"{s.label} {len(s.scores)}" for s in samples if len(s.scores) < LEAST]
    if small:
        return f"a test needs {LEAST} valid violating policies in each cell, found {', '.join(small)}"
    lost = [s.label for s in samples if len(s.trials) != len(s.scores)]
    return f"the report of {', '.join(lost)} does not say which trial each score is of" if lost else None


def _none(reason: str) -> dict[str, Any]:
    return {"kind": None, "independent": None, "refused": None, "reason": reason, "result": None}


def _wanted(cells: int, letter: str | None, ordered: bool) -> Kind:
    if cells == 2 and letter not in ("A", "B"):
        return "welch"
    return "jonckheere_terpstra" if ordered else "kruskal_wallis"


def _independent(samples: Sequence[Sample], kind: Kind) -> dict[str, Any]:
    groups = {s.label: list(s.scores) for s in samples}
    if kind == "kruskal_wallis":
        return {"result": stats.kruskal_with_pairwise(groups).to_dict()}
    if kind == "welch":
        first, second = groups.values()
        return {"result": stats.welch(first, second).to_dict()}
    trend = stats.jonckheere_terpstra(groups)
    permuted = stats.jonckheere_terpstra(groups, method="permutation", seed=SEED)
    # Pairs of policies of two doses; the expectation of J is half of them.
    rising = None if trend.statistic is None or trend.expected is None else trend.statistic / (2 * trend.expected)
    return {"result": trend.to_dict(), "permuted": permuted.to_dict(), "rising": rising}


def _paired(samples: Sequence[Sample], ordered: bool) -> dict[str, Any]:
    """Tests on trials paired by id; a trial that some cell has no valid policy for says nothing about the others."""
    if len({s.seed for s in samples}) > 1:
        return _none(
            "some cells share trials and others do not, so trials can neither be paired nor taken as independent"
        )
    if any(s.assigned != samples[0].assigned for s in samples):
        return _none("cells of one seed have unlike trials in their arms, so their trials cannot be paired")
    common = sorted(set.intersection(*(set(s.trials) for s in samples)))
    lost = sorted(set.union(*(set(s.trials) for s in samples)) - set(common))
    told = {"independent": False, "trials": common, "left_out": lost}
    if len(common) < LEAST:
        return _none(f"a test needs {LEAST} trials that are valid in every cell, found {len(common)}") | told
    table = np.array([[dict(zip(s.trials, s.scores, strict=True))[t] for s in samples] for t in common])
    if ordered and len(samples) > 2:
        return {"kind": "page", "reason": None, "result": stats.page_trend(table, seed=SEED).to_dict()} | told
    return {"kind": "sign_flips", "reason": None, "result": None, "pairs": _flips(samples, table)} | told


def _flips(samples: Sequence[Sample], table: np.ndarray) -> list[dict[str, Any]]:
    """Sign flips of each pair of cells, Holm-adjusted where there are several; differences are first minus second."""
    pairs = list(itertools.combinations(range(len(samples)), 2))
    tests = [stats.sign_flip_test(table[:, a] - table[:, b], seed=SEED) for a, b in pairs]
    adjusted = stats.holm([test.p_value for test in tests])
    return [
        {"first": samples[a].label, "second": samples[b].label} | test.to_dict() | {"adjusted_p": p}
        for (a, b), test, p in zip(pairs, tests, adjusted, strict=True)
    ]
