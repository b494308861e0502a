"""Min-K% and Min-K%++ of whole sentences against the never-published: a fourth signal, as rows of text."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.detector_text import p_words
from canaryjax.report.tables import Table
from canaryjax.report.text import MISSING, brackets, label, number, percent, pick

METHODS = {"min_k": "Min-K%", "min_k_plus_plus": "Min-K%++"}


def membership_table(report: Mapping[str, Any]) -> Table | None:
    """Threshold, area, p and how many of each group lie above the threshold; None where no method has a threshold."""
    every = [(name, pick(report, f"membership.{key}", {})) for key, name in METHODS.items()]
    found = [(name, own) for name, own in every if own.get("threshold") is not None or own.get("auroc") is not None]
    if not found:
        return None
    groups = list(dict.fromkeys(group for _, own in found for group in own.get("flagged") or ()))
    rows = [
        ("tokens averaged", *(_tokens(own) for _, own in found)),
        ("threshold", *(number(own.get("threshold")) for _, own in found)),
        ("canaries, negatives", *(f"{number(own.get('n'))}, {number(own.get('negatives'))}" for _, own in found)),
        ("AUROC", *(f"{number(own.get('auroc'), 2)} {brackets(own.get('interval'))}".strip() for _, own in found)),
        ("canaries above negatives", *(p_words(own) for _, own in found)),
    ]
    if all(own.get("threshold") is None for _, own in found):
        groups = []  # the caption says why there is none
    for group in groups:
        rows.append((f"above it: {label(group)}", *(_flagged(own, group) for _, own in found)))
    told = [(name, own.get("reason") or own.get("rule")) for name, own in every]
    caption = (
        "Score of a whole sentence: mean log-probability (nats) of its least likely tokens, standardised in "
        "Min-K%++ by the model's own law; higher means seen. Brackets: interval of the AUROC. A signal beside "
        "the tests: its p is not corrected and decides nothing."
    )
    caption = " ".join([caption, *(f"{name}: {text}." for name, text in told if text)])
    return Table(rows, ("", *(name for name, _ in found)), caption, numeric=False)


def _tokens(own: Mapping[str, Any]) -> str:
    share = percent(own.get("share"))
    return f"{share}: {own['tokens']}" if own.get("tokens") else share


def _flagged(own: Mapping[str, Any], group: str) -> str:
    record = pick(own, "flagged", {}).get(group) or {}
    return MISSING if record.get("k") is None else f"{record['k']} of {number(record.get('n'))}"
