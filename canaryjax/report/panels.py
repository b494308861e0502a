"""The panels of a sweep on its page: tables, and sentences that each say one number of `sweep.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canaryjax.report.panel_words import compared
from canaryjax.report.tables import Table
from canaryjax.report.text import MISSING, brackets, label, number, percent

TESTED_FIRST = ("violating", "compliant")
HEAD = ("cell", "violating policies", "their mean score [95 %]", "compliant policies", "their mean score [95 %]")
HEAD_PER_TOKEN = ("tokens of the string", "violating, nats a token", "compliant, nats a token")
SURVIVAL_HEAD = (
    *("cell", "canary", "configured rate", "realised rate", "for the reward model", "for the policy"),
    *("after the perplexity filter", "after near-duplicates", "kept by the provider [interval]"),
)
MOST_KEYS = 6  # that cells differ in besides, told with their values


@dataclass(frozen=True)
class PanelText:
    """A panel as the page shows it."""

    title: str
    table: Table
    sentences: Sequence[str]


def panel_texts(sweep: Mapping[str, Any]) -> list[PanelText]:
    """The panels of a `sweep.json`, in its order; one of an earlier version has none."""
    return [PanelText(panel_title(panel), _table(panel), _sentences(panel)) for panel in sweep.get("panels") or ()]


def panel_lines(sweep: Mapping[str, Any]) -> list[str]:
    """One line a panel for the terminal: what was compared, and the test."""
    return [f"{panel_title(panel)}: {compared(panel)[0]}" for panel in sweep.get("panels") or ()]


def panel_title(panel: Mapping[str, Any]) -> str:
    """A panel's name: the paper's letter where it has one, the key, and in a grid what the others are.

    >>> panel_title({"letter": "A", "title": "canary family", "at": {"canary.rate": 0.5}})
    'Panel A, canary family, at canary.rate 0.5'
    """
    at = ", ".join(f"{key} {value}" for key, value in panel["at"].items())
    lettered = f"Panel {panel['letter']}, {panel['title']}" if panel["letter"] else f"Panel of {panel['title']}"
    return f"{lettered}, at {at}" if at else lettered


def section_notes(sweep: Mapping[str, Any]) -> list[str]:
    """What holds for all panels."""
    panels = sweep.get("panels") or ()
    notes = [
        "A panel compares the primary scores of violating policies between cells; the compliant arm stands beside "
        "them. Brackets and bars are 95 % Student t intervals of a mean over policies, which are the unit.",
        "No p-value is corrected for there being several panels: each asks a question of its own. Pairs within a panel "
        "are corrected by Holm's method. Panels that have a cell in common have no independent p-values.",
    ]
    tests = [panel["test"] for panel in panels if panel["test"]["kind"]]
    if any(test["independent"] for test in tests):
        notes.append(
            "Tests take the policies of two cells as independent where no trial is in both. Policies of one cell share "
            "its base model and, where there is one, its warm start: what another warm start would change is in no "
            "p-value."
        )
    if any(test["independent"] is False for test in tests):
        notes.append(
            "Where cells share their trials, tests for independent groups are refused, and trials of one number are "
            "compared with one another instead. With `seeds: own` each cell has trials of its own."
        )
    if any(panel["at"] for panel in panels):
        notes.append(
            "There is a panel for each value of the other keys. Pooled over those, cells would differ in more than the "
            "panel's key, and an effect that depends on the others would be averaged."
        )
    return notes


def survival_table(sweep: Mapping[str, Any]) -> Table | None:
    """What the simulated providers left of the canary, a row a cell that had one; None where none had."""
    rows = sweep.get("survival") or ()
    if not rows:
        return None
    levels = {row["survived"]["interval"]["level"] for row in rows}
    caption = (
        "Of the traces that carry a canary, over the trials of a cell: the share that each step left of those it was "
        "given, and the share that no step dropped. Brackets: Clopper-Pearson, "
        f"{', '.join(percent(level) for level in sorted(levels))}, as if the traces of a trial, which share a canary, "
        "were independent. Realised rates are shares of all traces that were trained on or held out."
    )
    return Table([_survival(row) for row in rows], SURVIVAL_HEAD, caption, numeric=False)


def _survival(row: Mapping[str, Any]) -> tuple[str, ...]:
    rates, kept = row["realised_rate"], row["survived"]
    return (
        row["cell"],
        ", ".join(label(str(value)) for value in row["design"].values() if value is not None),
        percent(row["configured_rate"], 1),
        *(_share(rates[name]) for name in ("overall", "rm", "rl")),
        *("step is off" if step is None else _share(step) for step in row["steps"].values()),
        f"{_share(kept)} {brackets(kept['interval'])}".strip(),
    )


def _share(rate: Mapping[str, Any]) -> str:
    if rate["value"] is None:
        return f"{MISSING}: {rate.get('reason') or 'no reason given'}"
    return f"{percent(rate['value'], 1)} ({number(rate['count'])} of {number(rate['n'])})"


def _table(panel: Mapping[str, Any]) -> Table:
    per_token = panel["test_per_token"] is not None
    rows = [_level(level, per_token) for level in panel["levels"]]
    caption = f"Primary score: {label(panel['primary'] or 'not the same in all cells')}, in nats."
    caption += " Brackets: Student t."
    return Table(rows, (panel["title"], *HEAD, *(HEAD_PER_TOKEN if per_token else ())), caption, numeric=False)


def _level(level: Mapping[str, Any], per_token: bool) -> tuple[str, ...]:
    if level["status"] != "done":
        return (level["label"], f"{level['cell']}: {level['status']}", *[""] * (len(HEAD) - 1 + 3 * per_token))
    cells = [level["label"], level["cell"]]
    for arm in TESTED_FIRST:
        own = level["arms"][arm]
        cells += [str(own["n"]), _mean(own["mean"], own["interval"])]
    if per_token:
        cells.append(span(level["tokens"]))
        cells += [
            _mean(level["arms"][arm]["mean_per_token"], level["arms"][arm]["interval_per_token"])
            if level["arms"][arm]["scores_per_token"] is not None
            else f"{MISSING}: {level['arms'][arm]['per_token_reason']}"
            for arm in TESTED_FIRST
        ]
    return tuple(cells)


def _mean(mean: float | None, interval: Mapping[str, Any]) -> str:
    return f"{number(mean)} {brackets(interval, 3)}".strip()


def span(counts: Sequence[int]) -> str:
    """A count that all share, or its range.

    >>> span([11]), span([3, 4, 7]), span([])
    ('11', '3 to 7', 'not available')
    """
    if not counts:
        return MISSING
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _sentences(panel: Mapping[str, Any]) -> list[str]:
    return [
        *compared(panel),
        *([f"Per token: {text}" for text in compared(panel, per_token=True)] if panel["test_per_token"] else []),
        *_missing(panel),
        *_sizes(panel),
        *_besides(panel),
        *_of_letter(panel),
    ]


def _missing(panel: Mapping[str, Any]) -> list[str]:
    lost = [
        f"{own['label']} (cell {own['cell']}, {own['status']}{': ' + own['error'] if own['error'] else ''})"
        for own in panel["missing"]
    ]
    return [f"Missing from this panel: {'; '.join(lost)}."] if lost else []


def _sizes(panel: Mapping[str, Any]) -> list[str]:
    """The flag on a comparison of unlike sizes (BC-A1)."""
    done = [level for level in panel["levels"] if level["status"] == "done"]
    counts = {arm: [f"{level['label']} {level['arms'][arm]['n']}" for level in done] for arm in TESTED_FIRST}
    return [
        f"Unlike sizes: {', '.join(counts[arm])} {arm} policies." for arm in TESTED_FIRST if panel["unlike_sizes"][arm]
    ]


def _besides(panel: Mapping[str, Any]) -> list[str]:
    shared = [own for own in panel["also_differs"] if own["shared"]]
    own_keys = len(panel["also_differs"]) - len(shared)
    told = [f"{own['key']} ({', '.join('none' if v is None else str(v) for v in own['values'])})" for own in shared]
    more = [f"{len(told) - MOST_KEYS} more"] if len(told) > MOST_KEYS else []
    alone = [f"{own_keys} that only some of them have"] if own_keys else []
    listed = "; ".join([*told[:MOST_KEYS], *more, *alone])
    return (
        [f"These cells differ also in other keys, so that a difference may be due to those: {listed}."]
        if listed
        else []
    )


def _of_letter(panel: Mapping[str, Any]) -> list[str]:
    if panel["letter"] == "B":
        return ["Each dose is reported as it came out; none is taken for a threshold of detection."]
    if panel["test_per_token"] is not None:
        return [
            "Scores are sums over a string's tokens, so strings of other lengths differ in them for that reason too."
        ]
    return []
