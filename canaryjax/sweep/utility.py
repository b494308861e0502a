"""What canaries cost: utility of RL with them against RL without them, between cells that differ in nothing else."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canaryjax import stats
from canaryjax.audit.assignment import ARMS
from canaryjax.audit.null_command import leaves
from canaryjax.audit.utility import METRICS
from canaryjax.audit.utility_summary import NO_ANSWERS
from canaryjax.report.text import pick

# Keys without a bearing on what is trained without canaries, or on which questions are answered.
ASIDE = (
    *("name", "description", "canary.", "statistic.", "evaluation.", "output."),
    *("study.seed", "study.setting", "study.policies_per_chunk", "study.checkpoint_every", "study.mesh."),
)
QUESTIONS = ("evaluation.max_pairs", "evaluation.utility_examples")
MOST_NAMED = 4  # keys in a reason
DEFINITION = (
    "per policy, its metric minus the base's on the same questions; RL with canaries minus RL without, by trial where "
    "both cells have one seed, between independent policies where each has its own"
)


def utility_comparison(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every finished cell with canaries against one at rate 0 that is otherwise the same study (BC-66).

    Cells of one seed have the same documents, splits and arms in trial k, and so its questions: they are paired.

    Args:
      rows: One a cell, with `name` and `report`, which is None where the cell has none.

    Returns:
      Plain values: `comparisons`, one a cell with canaries, each with `Equivalence` records by arm and metric, or
      with a reason; and a `reason` where there is nothing to compare at all.
    """
    done = [row for row in rows if pick(row, "report.config.canary") is not None]
    without = [row for row in done if not _planted(row)]
    planted = [row for row in done if _planted(row)]
    reason = None
    if not without:
        reason = (
            "no finished cell is RL without canaries, at canary.rate and canary.contrast of 0: vary canary.rate over 0 "
            "too, with canary.contrast=null"
        )
    elif not planted:
        reason = "no finished cell has canaries"
    found = [] if reason else [_comparison(row, without) for row in planted]
    return {"definition": DEFINITION, "comparisons": found, "reason": reason}


def check_answers(report: Mapping[str, Any]) -> None:
    """Reads what a comparison would read of a report; raises what it would where that is not as it was written."""
    if pick(report, "utility.margin") is not None and pick(report, "utility.base.n"):
        for arm, name in itertools.product(ARMS, METRICS):
            dict(_changes(report, arm, name))


def _planted(row: Mapping[str, Any]) -> bool:
    rate, contrast = (pick(row, f"report.config.canary.{name}") for name in ("rate", "contrast"))
    return bool(rate) or bool(contrast)  # a contrast of None is as the rate


def _comparison(row: Mapping[str, Any], without: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    own = _rest(row)
    alike = [other for other in without if _rest(other) == own]
    found: dict[str, Any] = {"cell": row["name"], "without": None, "design": None, "arms": None, "reason": None}
    if not alike:
        keys = min((_differing(own, _rest(other)) for other in without), key=len)
        named = ", ".join(keys[:MOST_NAMED]) + (f" and {len(keys) - MOST_NAMED} more" if keys[MOST_NAMED:] else "")
        reason = f"no finished cell without canaries is otherwise the same; the nearest differs in {named}"
        return found | {"reason": reason}
    # Of several cells at rate 0 one of the same trials, which can be paired; then one of the same kind of canary, of
    # which nothing is planted there.
    other = min(alike, key=lambda it: (_seed(it) != _seed(row), len(_differing(_canary(row), _canary(it)))))
    found |= {"without": other["name"], "margin": pick(row, "report.utility.margin")}
    if found["margin"] is None or not all(pick(it, "report.utility.base.n") for it in (row, other)):
        return found | {"reason": NO_ANSWERS}
    shared = _seed(row) == _seed(other)
    arms = {
        arm: {name: _difference(row, other, arm, name, shared, found["margin"]) for name in METRICS} for arm in ARMS
    }
    return found | {"design": "paired" if shared else "independent", "arms": arms}


def _difference(
    row: Mapping[str, Any], other: Mapping[str, Any], arm: str, name: str, shared: bool, margin: float
) -> dict[str, Any]:
    planted, plain = (dict(_changes(it["report"], arm, name)) for it in (row, other))
    if shared:
        gaps = [change - plain[trial] for trial, change in planted.items() if trial in plain]
        return stats.paired_equivalence(gaps, margin).to_dict()
    return stats.welch_equivalence(list(planted.values()), list(plain.values()), margin).to_dict()


def _changes(report: Mapping[str, Any], arm: str, name: str) -> Iterator[tuple[int, float]]:
    """Trials of an arm's valid policies, and their changes against the base."""
    part = report["arms"][arm]
    for trial, own, base in zip(part["trials"], part["utility"][name], part["base_utility"][name], strict=True):
        if own is not None and base is not None:
            yield trial, own - base


def _rest(row: Mapping[str, Any]) -> dict[str, Any]:
    """The config's keys that must be equal."""
    values = leaves(row["report"]["config"])
    return {key: value for key, value in values.items() if key in QUESTIONS or not key.startswith(ASIDE)}


def _seed(row: Mapping[str, Any]) -> Any:
    return pick(row, "report.config.study.seed")


def _canary(row: Mapping[str, Any]) -> dict[str, Any]:
    return leaves(row["report"]["config"]["canary"])


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    keys = dict.fromkeys([*one, *other])
    return [key for key in keys if key not in one or key not in other or one[key] != other[key]]
