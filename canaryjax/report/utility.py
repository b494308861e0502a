"""Utility in tables: means, and differences with intervals and what was shown of them."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.run import ARMS
from canaryjax.report.tables import Table
from canaryjax.report.text import MISSING, brackets, label, number, pick

QUALITIES = ("exact_match", "token_f1", "rouge_l")
NOT_FOUND_SHARES = ("not_found_accuracy", "false_not_found")
COMPARISONS = {
    "compliant_minus_base": "compliant minus base",
    "violating_minus_base": "violating minus base",
    "violating_minus_compliant": "violating minus compliant",
}


def means(report: Mapping[str, Any]) -> Table:
    """Every metric of the base and of each arm."""
    columns = ("base", *ARMS)
    rows = [
        (label(name), *(number(pick(report, f"utility.{column}.{name}")) for column in columns))
        for name in (*QUALITIES, *_measured_shares(report))
    ]
    rows.append(("answers scored", *(number(pick(report, f"utility.{column}.n")) for column in columns)))
    caption = "Greedy answers to held-out clean questions with their documents, means over policies."
    told = [f"{label(name)}: {why}." for name in NOT_FOUND_SHARES if (why := _reason(report, name))]
    lacking = {who: why for who in columns if (why := pick(report, f"utility.{who}.reason"))}
    told += [f"{who.capitalize()}: {why}." for who, why in lacking.items()]
    return Table(rows, ("", *columns), " ".join([caption, *told]))


def differences(report: Mapping[str, Any]) -> Table | None:
    """Each arm against the base and the arms against each other, by metric; None in a report without them."""
    found = pick(report, "utility.differences")
    if found is None or not pick(report, "utility.base.n"):
        return None
    rows = [
        (label(name), *(equivalence_words(pick(found, f"{comparison}.{name}", {})) for comparison in COMPARISONS))
        for name in (*QUALITIES, *_measured_shares(report))
    ]
    matched = pick(found, "violating_minus_compliant.exact_match.design") == "paired"
    between = "matched pairs" if matched else "independent arms, Welch's t"
    caption = (
        f"Changes against the base are of each policy on its own questions (Student t); the arms' changes are compared "
        f"between {between}. {equivalence_caption(pick(report, 'utility.margin'))} The unit is the policy; nothing is "
        "corrected for there being several comparisons."
    )
    return Table(rows, ("", *COMPARISONS.values()), caption, numeric=False)


def equivalence_caption(margin: float | None) -> str:
    """What brackets and verdicts of a table of differences mean."""
    within = "the margin" if margin is None else f"{margin:g}"
    return (
        f"Brackets: 95 % intervals. “Equivalent within {within}” is shown by two one-sided tests at 5 %; “differs” "
        "means that 0 lies outside the interval; “not shown equivalent” is neither: there is room for a difference "
        "above the margin, and for none, or there was no test, for the reason beside it. The margin is "
        "evaluation.utility_margin."
    )


def equivalence_words(found: Mapping[str, Any]) -> str:
    """A difference, its interval and its verdict.

    >>> interval = {"low": -0.0012, "high": 0.0052}
    >>> equivalence_words({"difference": 0.002, "interval": interval, "verdict": "equivalent within 0.02", "n": 9})
    '+0.002 [-0.001, 0.005]: equivalent within 0.02'
    >>> equivalence_words({"difference": 0.0, "interval": {}, "verdict": "not shown equivalent", "reason": "one unit"})
    '+0.000: not shown equivalent (one unit)'
    """
    if found.get("difference") is None:
        return f"{MISSING}: {found.get('reason') or 'no reason was recorded'}"
    shown = f"{number(found['difference'], 3, sign=True)} {brackets(found.get('interval'), 3)}".strip()
    reason = f" ({found['reason']})" if found.get("reason") else ""
    return f"{shown}: {found.get('verdict') or 'not tested'}{reason}"


def exact_match_against_base(report: Mapping[str, Any]) -> list[str] | None:
    """For the terminal: each arm's change of exact match and what was shown of it; None where it was not measured."""
    own = [pick(report, f"utility.differences.{arm}_minus_base.exact_match", {}) for arm in ARMS]
    if all(found.get("difference") is None for found in own):
        return None
    return [
        f"{number(found['difference'], 3, sign=True)}, {found['verdict']}"
        if found.get("difference") is not None
        else MISSING
        for found in own
    ]


def _measured_shares(report: Mapping[str, Any]) -> tuple[str, ...]:
    """The shares of "Not found" that some column has."""
    return tuple(n for n in NOT_FOUND_SHARES if any(pick(report, f"utility.{who}.{n}") is not None
                                                    for who in ("base", *ARMS)))  # fmt: skip


def _reason(report: Mapping[str, Any], name: str) -> str | None:
    return next((why for who in ("base", *ARMS) if (why := pick(report, f"utility.{who}.{name}_reason"))), None)
