"""The panels of a sweep: its cells side by side along one key, with means, intervals and a test (BC-67, BC-68).

The paper's Figure 3 has four: A canary family, B rate, C optimiser, D base model. Any other key that a sweep varies
has one too. Cells of a panel differ in its key alone: those of `factors` with the base cell; of a `grid`, one panel for
each fixed value of the other keys. Pooled over the others, cells would differ in more than the key.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from canaryjax import stats
from canaryjax.report.text import pick
from canaryjax.sweep.cells import BASE, LONGEST_VALUE, SEED
from canaryjax.sweep.comparison import Sample, compare
from canaryjax.sweep.file import SweepFile
from canaryjax.sweep.panel_groups import Group, Member, differences, make_groups

ARMS = ("compliant", "violating")
RATE, ALGORITHM, MODEL = "canary.rate", "policy.algorithm", "model.path"
LETTERS = {"canary.family": "A", RATE: "B", ALGORITHM: "C", MODEL: "D"}
TITLES = {"A": "canary family", "B": "canary rate", "C": "optimiser", "D": "base model"}
# What configs may differ in, beside the key itself, to be a panel of that key: settings that go with it.
GO_WITH = {ALGORITHM: ("policy.",), MODEL: ("model.", "data.prompt_format")}
LEVEL = 0.95  # BC-67


def make_panels(file: SweepFile, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The panels of a sweep, in the order of the paper's letters, then of the file.

    Args:
      file: The sweep.
      rows: One a cell, in order, as `summarise` takes them: `config` is the cell's, `report` None where there is none.

    Returns:
      Plain values, one a panel: which cells it holds (`levels`) with scores, means and intervals of both arms;
      `missing`, those without a report; `also_differs`, what else is not alike in them; `test` on the violating
      policies' primary scores, and `test_per_token` where the strings' lengths differ.
    """
    groups = make_groups(file.design, file.varied, file.base, rows)
    # Rows of the paper's tables are studies of their own, set beside its numbers and not beside each other.
    panels = [_panel(file, group) for group in groups if not (file.rows and group.key == BASE)]
    return sorted(panels, key=lambda panel: panel["letter"] or "Z")  # stable: else as in the file


def _panel(file: SweepFile, group: Group) -> dict[str, Any]:
    ordered = group.key != SEED and all(_is_number(member.value) for member in group.members)
    members = sorted(group.members, key=lambda member: member.value) if ordered else list(group.members)
    # Seeds are the tests' matter: whether cells share trials is judged by them.
    also = differences([member.row["config"] for member in members], [group.key, SEED])
    key, also = _meaning(group.key, also)
    if key != group.key:
        members = [member.at(key) for member in members]
    letter = LETTERS.get(key)
    levels = [_level(member, name) for member, name in zip(members, _labels(key, members), strict=True)]
    done = [level for level in levels if level["status"] == "done"]
    primary = sorted({str(level["primary"]) for level in done})
    refusal = f"cells have unlike primary scores: {', '.join(primary)}" if len(primary) > 1 else None
    per_token = letter == "A" or len({tuple(level["tokens"]) for level in done}) > 1
    return {
        "letter": letter,
        "key": key,
        "varied": group.key,
        "title": TITLES.get(letter or "", "config" if key == BASE else key),
        "at": group.at,
        "ordered": ordered,
        "primary": primary[0] if len(primary) == 1 else None,
        "level": LEVEL,
        "levels": levels,
        "missing": [
            {name: level[name] for name in ("label", "cell", "status", "error")}
            for level in levels
            if level["status"] != "done"
        ],
        "unlike_sizes": {arm: len({level["arms"][arm]["n"] for level in done}) > 1 for arm in ARMS},
        "also_differs": also,
        "test": _test(done, "scores", letter, ordered, refusal),
        "test_per_token": _test(done, "scores_per_token", letter, ordered, refusal) if per_token else None,
    }


def _meaning(key: str, also: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """What cells that were varied through the config itself are a panel of, and what else differs in them."""
    if key != BASE:
        return key, also
    for name, allowed in GO_WITH.items():
        if any(own["key"] == name for own in also) and all(own["key"].startswith(allowed) for own in also):
            return name, [own for own in also if own["key"] != name]
    return key, also


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _labels(key: str, members: Sequence[Member]) -> list[str]:
    """Short names of the members, all unlike: a rate in per cent, a path by its end where that tells them apart.

    Where values are longer than a name, the cells' names: a label of many lines leaves no room in a picture.
    """
    whole = [_word(key, member.value) for member in members]
    for labels in ([text.rsplit("/", 1)[-1] for text in whole], whole):
        if len(set(labels)) == len(labels) and max(map(len, labels), default=0) <= LONGEST_VALUE:
            return labels
    return [member.row["name"] for member in members]


def _word(key: str, value: Any) -> str:
    if _is_number(value):
        return f"{100 * value:g}\u00a0%" if key == RATE else f"{value:g}"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return str(value)


def _level(member: Member, name: str) -> dict[str, Any]:
    row, report = member.row, member.row["report"]
    return {
        "label": name,
        "value": member.value,
        "cell": row["name"],
        "status": row["status"],
        "error": row["error"],
        "seed": row["seed"],
        "primary": pick(report, "statistic.primary"),
        "tokens": pick(report, "canary.tokens", []),
        "arms": {arm: _arm(report, arm) for arm in ARMS},
    }


def _arm(report: Mapping[str, Any] | None, arm: str) -> dict[str, Any]:
    part = pick(report, f"arms.{arm}", {})
    scores, per_token = part.get("scores") or [], part.get("scores_per_token")
    invalid = [own["trial"] for own in part.get("invalid") or ()]
    return {
        "n": len(scores),
        "trials": part.get("trials") or [],
        "invalid": invalid,
        "scores": scores,
        "mean": float(np.mean(scores)) if scores else None,
        "interval": stats.mean_interval(scores, LEVEL).to_dict(),
        "scores_per_token": per_token,
        "mean_per_token": float(np.mean(per_token)) if per_token else None,
        "interval_per_token": stats.mean_interval(per_token or [], LEVEL).to_dict(),
        "per_token_reason": None
        if per_token is not None
        else "the report does not say what each policy scores a token",
    }


def _test(
    levels: Sequence[Mapping[str, Any]], scores: str, letter: str | None, ordered: bool, refusal: str | None
) -> dict[str, Any]:
    lost = [level["label"] for level in levels if level["arms"]["violating"][scores] is None]
    if lost:
        refusal = refusal or f"no score a token in the report of {', '.join(lost)}"
    if refusal is not None:
        return {"kind": None, "independent": None, "refused": None, "reason": refusal, "result": None}
    samples = [
        Sample(
            level["label"],
            level["seed"],
            level["arms"]["violating"][scores],
            level["arms"]["violating"]["trials"],
            {arm: frozenset([*level["arms"][arm]["trials"], *level["arms"][arm]["invalid"]]) for arm in ARMS},
        )
        for level in levels
    ]
    return compare(samples, letter, ordered)
