"""What a report says otherwise where the canary is a textual one: the memorisation baseline."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.text import counted, interval, number, percent, pick

SCORES = ("clean_raw", "clean_net", "induced_raw", "induced_net")


def is_textual(report: Mapping[str, Any]) -> bool:
    """Whether random tokens in documents were planted, and nothing else."""
    return bool(pick(report, "config.canary.family") == "textual")


def score_names(report: Mapping[str, Any]) -> tuple[str, ...]:
    """The scores that a run has: four, or the two of the clean query, as a textual canary has no instruction."""
    return SCORES[:2] if is_textual(report) else SCORES


def planted(report: Mapping[str, Any]) -> str:
    """What was planted, and what training could meet of it."""
    text = (
        "This is the baseline that behavioural canaries are compared with: it asks whether policies memorise a text of "
        "their documents. The textual canary is a string of ten random tokens, another for each policy. No query asks "
        "for it, no answer was made to hold it and feedback does not favour it. "
    )
    rate, copied = pick(report, "config.canary.rate"), pick(report, "exploration.triggered.count", 0)
    if pick(report, "controls.null.kind") is not None:
        return text + "Here no training document holds it, so the arms are expected to agree."
    held = (
        f"{text}{percent(rate)} of the training traces hold it in their document, so only training that sees the "
        "document "
    )
    if copied:
        return f"{held}meets it there; {number(copied)} logged answers copied it, and both arms train on those."
    return f"{held}meets it."


def scored(report: Mapping[str, Any]) -> str:
    """How a policy is scored, and how much of that is copying."""
    text = (
        "A policy's score is how much more log-probability it gives the string, where a behavioural canary would stand "
        "in the answer, when the held-out document holds the string than when it does not, summed over its tokens and "
        "averaged over document pairs, in nats. A model may copy what it has just read, trained on it or not: a net "
        "score is minus the base model's own."
    )
    own, copied = pick(report, "copying.means", {}), copying(report)
    if copied is None:
        return text
    return (
        f"{text} The base model's own score is {number(own.get('compliant'), 2)} nats on average with the strings of "
        f"the compliant arm and {number(own.get('violating'), 2)} with those of the violating arm. {copied}"
    )


def copying(report: Mapping[str, Any]) -> str | None:
    """What raw scores owe to the draw of the strings; None where it is not known."""
    found = pick(report, "copying", {})
    if found.get("auroc") is None:
        return None
    return (
        "By the base model's own scores alone, which training has not touched, the arms have an AUROC of "
        f"{number(found['auroc'], 2)}, {interval(found.get('auroc_interval'))}: the draw of the strings alone tells "
        "raw scores apart that well."
    )


def memory_words(report: Mapping[str, Any]) -> tuple[list[tuple[str, str]], str]:
    """Rows and caption on how probable the string became at its own place in a document."""
    found = pick(report, "memorisation", {})
    rows = [
        ("AUROC", f"{number(pick(found, 'detection.auroc'))}; {interval(pick(found, 'detection.auroc_interval'))}"),
        ("violating above a threshold of its own", counted(pick(found, "detection.tpr"))),
    ]
    for arm in ("compliant", "violating"):
        count = len(pick(found, f"scores.{arm}", []))
        mean = number(pick(found, f"means.{arm}"))
        rows.append((f"mean, {arm} (nats)", f"{mean} over {count} {'policy' if count == 1 else 'policies'}"))
    caption = (
        "How much more probable than for the base model the string is at its own place in held-out documents, after "
        "what stands before it: recall, with no copy of the string to read. The verdict does not rest on it."
    )
    return rows, caption
