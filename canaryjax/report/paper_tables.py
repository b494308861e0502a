"""The paper's Tables 1, 2 and 6 over a sweep's cells: ours, the published numbers, and what differs in setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np

from canaryjax import stats
from canaryjax.report import run
from canaryjax.report.published import ROWS, Number, PaperRow
from canaryjax.report.run import ARMS
from canaryjax.report.setting import Differences, arms_of, differences, rate_interval
from canaryjax.report.tables import Table
from canaryjax.report.text import METHODS, MISSING, brackets, number, percent, pick

UTILITY = {"rouge_l": "ROUGE-L", "token_f1": "token F1"}
SAME, OTHER = "the paper's", "another: see below"


@dataclass(frozen=True)
class Stand:
    """A row of the paper and the cell of the sweep that stands for it."""

    row: PaperRow
    cell: Mapping[str, Any]
    differences: Differences

    @property
    def found(self) -> Mapping[str, Any]:
        """What was found in the cell; empty while it is not done."""
        return self.cell.get("found") or {}

    @property
    def report(self) -> dict[str, Any]:
        """What was found of the primary score, under the names that it has in a report."""
        found = self.found
        return {
            "statistic": {"primary": found["primary"], "two_sided": self.cell["setting"].get("statistic.two_sided")},
            "arms": {arm: {"scores": found["arms"][arm]["scores"]} for arm in ARMS},
            "detection": {name: found[name] for name in ("auroc", "auroc_interval", "tpr")},
        }

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of the finished cell's compliant and violating policies, as its detection judged them."""
        compliant, violating = (run.scores(self.report, arm) for arm in ARMS)
        return compliant, violating

    def state(self) -> str:
        """The cell's name, and what became of it where it is not done."""
        return self.cell["name"] if self.found else f"{self.cell['name']}: {self.cell['status']}"


def stands(sweep: Mapping[str, Any], table: str) -> list[Stand]:
    """The cells of a `sweep.json` that stand for rows of a table, in the paper's order."""
    named = {cell["name"]: cell for cell in sweep["cells"]}
    rows = sweep.get("rows") or {}
    pairs = [(row, named[rows[name]]) for name, row in ROWS.items() if row.table == table and rows.get(name) in named]
    return [Stand(row, cell, differences(row, cell)) for row, cell in pairs]


def detection_table(rows: Sequence[Stand], test: bool = False) -> Table:
    """Table 1, or with Welch's `test` of the arms' scores Table 6: AUROC and rate above the threshold."""
    head = [
        "row of the paper",
        "policies",
        "AUROC, ours",
        "AUROC, paper",
        "above threshold, ours",
        "above threshold, paper",
    ]
    head += ["Welch t and p, ours", "t and p, paper"] if test else []
    body = []
    for one in rows:
        tpr = pick(one.found, "tpr", {})
        line = [
            one.row.label,
            " + ".join(map(str, arms_of(one.cell))),
            _words(number(pick(one.found, "auroc")), brackets(pick(one.found, "auroc_interval"), 3)),
            published(one.row, "auroc"),
            _words(count_text(tpr), brackets(rate_interval(one.found), 3)),
            published(one.row, "tpr"),
        ]
        if test:
            told = [one.row.numbers.get(name) for name in ("t", "p")]
            line += [
                _welch(one),
                f"{told[0].value:.2f}, {told[1].value:.2f}" if told[0] and told[1] else "not given",
            ]
        body.append((*line, SAME if one.differences.none else OTHER, one.state()))
    return Table(body, (*head, "setting", "cell"), _detection_caption(rows), numeric=False)


def mechanism_table(rows: Sequence[Stand]) -> Table:
    """Appendix H: score, reward-model bias and their ratio, of the violating arm."""
    body = []
    for one in rows:
        arm = pick(one.found, "arms.violating", {})
        cells = []
        for measure, key in (("score", "mean_score"), ("rm_bias", "rm_bias"), ("ratio", "transmission_ratio")):
            cells.append(_words(number(arm.get(key)), brackets(arm.get(f"{key}_interval"), 3)))
            cells.append(published(one.row, measure, bare=True))
        body.append((one.row.label, *cells))
    head = [
        f"{name}, {whose}" for name in ("score (nats)", "reward-model bias", "ratio") for whose in ("ours", "paper")
    ]
    caption = (
        "Violating policies of the cells of Table 1. Brackets of ours: 95 %, Student t, for the ratio Fieller's. "
        "The ratio divides nats by units of reward, so it depends on the reward's unit."
    )
    for one in rows:
        reason = pick(one.found, "arms.violating.transmission_ratio_reason")
        caption += f" {one.row.label}: {reason}." if reason else ""
    return Table(body, ("row of the paper", *head), caption, numeric=False)


def utility_table(rows: Sequence[Stand]) -> Table:
    """Table 2: ROUGE-L and token F1 of base, RL without canaries and RL with them, both arms, ours and theirs."""
    body = []
    for one in rows:
        cells = []
        for name in UTILITY:
            who = ARMS if one.row.trained else ("base", "base")
            cells += [number(pick(one.found, f"utility.{arm}.{name}")) for arm in who]
            cells.append(published(one.row, name))
        body.append((one.row.label, *cells, SAME if one.differences.none else OTHER, one.state()))
    head = [f"{name}, {whose}" for name in UTILITY.values() for whose in (*ARMS, "paper")]
    caption = (
        "Means over held-out clean documents, answered greedily with the document in the prompt; the base is one for "
        "both arms. The paper gives one number a row and no interval, and says neither of which arm nor of how many "
        "policies."
    )
    return Table(body, ("row of the paper", *head, "setting", "cell"), caption, numeric=False)


def size_notes(rows: Sequence[Stand]) -> list[str]:
    """What is said of a table whose rows are of unlike numbers of policies (BC-A1); nothing where they are alike."""
    sizes = {one.cell["name"]: " + ".join(map(str, arms_of(one.cell))) for one in rows}
    if len(set(sizes.values())) < 2:
        return []
    said = ", ".join(f"{name} {n}" for name, n in sizes.items())
    return [
        f"Our rows are of unlike numbers of policies ({said}): means and thresholds are surer where there are more, so "
        "the rows do not compare like with like."
    ]


def detection_notes(rows: Sequence[Stand]) -> list[str]:
    """What a reader of a table of detection must know of counts and of the threshold's rule, or why there is none."""
    notes = []
    for one in rows:
        value, n = one.row.numbers.get("tpr"), one.row.arms
        if value is not None and n is not None and (odd := impossible(value.value, n[1])):
            notes.append(f"The paper's {one.row.source}, {one.row.label}: {odd}")
        if pick(one.found, "tpr.rule") == "paper" and pick(one.found, "tpr.threshold") is not None:
            notes.append(f"{one.row.label}: {_by_rank(one)}")
        if pick(one.found, "tpr.reason"):
            notes.append(f"{one.row.label}: no share above the threshold, {one.found['tpr']['reason']}.")
    return notes


def _by_rank(one: Stand) -> str:
    """What the conformal rank makes of scores whose threshold is the paper's quantile, which promises less."""
    target, expected = one.found["tpr"]["target_fpr"], one.found["tpr"]["expected_fpr"]
    other = stats.tpr_at_fpr(*one.scores(), target, "conformal")
    above = f"{count_text(other.to_dict())} of ours lie above it" if other.count is not None else str(other.reason)
    return (
        f"a new compliant policy is expected above the quantile with a chance of {percent(expected, 1)}, and above the "
        f"conformal rank with one of at most {percent(target)}; by that rank: {above}."
    )


def mixed_sizes(row: PaperRow) -> str | None:
    """Whether the paper gives a row's numbers elsewhere for other numbers of policies (BC-A1)."""
    mine = {name: row.numbers.get(name) for name in ("auroc", "tpr")}
    for other in ROWS.values():
        same = all(value is not None and value == other.numbers.get(name) for name, value in mine.items())
        if same and row.arms and other.arms and row.arms != other.arms:
            return (
                f"The paper mixes sizes here: its {row.table} is said to be of {row.arms[0]} + {row.arms[1]} policies, "
                f"and its row “{row.label}” repeats the numbers of {other.table}, which are of {other.arms[0]} + "
                f"{other.arms[1]}."
            )
    return None


def impossible(rate: float, n: int) -> str | None:
    """What is wrong with a published rate that is no count of `n`, or None (BC-A2).

    >>> impossible(0.67, 50)
    '0.670 is no count of 50 policies: 33/50 = 0.660, 34/50 = 0.680.'
    >>> impossible(0.6, 50)
    """
    low = floor(round(rate * n, 9))
    near = [(k, f"{k / n:.3f}") for k in (low, low + 1) if k <= n]
    if f"{rate:.3f}" in [text for _, text in near]:
        return None
    return f"{rate:.3f} is no count of {n} policies: " + ", ".join(f"{k}/{n} = {text}" for k, text in near) + "."


def count_text(tpr: Mapping[str, Any]) -> str:
    """A rate as its count and, from the count, three digits (BC-A2).

    >>> count_text({"count": 34, "n": 50}), count_text({})
    ('34/50 = 0.680', 'not available')
    """
    if tpr.get("count") is None or not tpr.get("n"):
        return MISSING
    return f"{tpr['count']}/{tpr['n']} = {tpr['count'] / tpr['n']:.3f}"


def published(row: PaperRow, measure: str, bare: bool = False) -> str:
    """A published number with its interval, or what the paper says in its place.

    >>> published(ROWS["table1.qmsum"], "auroc"), published(ROWS["table1.qmsum"], "kl")
    ('0.762 [0.682,\\xa00.844]', 'not given')
    """
    value = row.numbers.get(measure)
    if value is None:
        return row.words.get(measure, "not given")
    return f"{value.value:g}" if bare else _words(f"{value.value:.3f}", _bounds(value))


def _bounds(value: Number) -> str:
    return "" if value.low is None else f"[{value.low:.3f}, {value.high:.3f}]"


def _words(*parts: str) -> str:
    """The parts, blanks within each of which break no line."""
    return " ".join(part.replace(" ", "\u00a0") for part in parts if part)


def _welch(one: Stand) -> str:
    if not one.found:
        return MISSING
    compliant, violating = one.scores()
    test = stats.welch(violating, compliant)
    return test.reason or f"{number(test.statistic, 2)}, {number(test.p_value)}"


def _detection_caption(rows: Sequence[Stand]) -> str:
    used: dict[str, set[str]] = {"AUROC": set(), "rate": set()}
    for one in rows:
        records = {"AUROC": pick(one.found, "auroc_interval"), "rate": rate_interval(one.found)}
        for name, record in records.items():
            if brackets(record):
                method = str(record["method"])
                used[name].add(f"{percent(record['level'])}, {METHODS.get(method, method)}")
    ours = "; ".join(f"{name}: {' or '.join(sorted(how))}" for name, how in used.items() if how) or "none yet"
    return (
        f"Brackets of ours: {ours}. The paper's: from 5 to 95 %, so 90 %, percentile bootstrap over policies. The unit "
        "is the policy. Policies: compliant + violating. Above threshold: violating policies above the threshold that "
        "compliant ones set."
    )
