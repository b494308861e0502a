"""The tables on the simulated provider: what it dropped, and how much of the canary survived."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.tables import Table
from canaryjax.report.text import MISSING, brackets, label, number, percent, pick

KINDS = ("clean", "triggered", "contrast")
SPLITS = {"overall": "in all", "rm": "for the reward model", "rl": "for the policy"}
STEPS = {
    "collected": "collected",
    "perplexity": "after the perplexity filter",
    "near_duplicate": "after near-duplicates",
    "subsample": "after subsampling",
    "equal_sizes": "after the cut to equal sizes",
    "dilution": "after dilution",
}


def curated(report: Mapping[str, Any]) -> bool:
    """Whether a provider was simulated."""
    return bool(pick(report, "provider.curated", False))


def provider_facts(report: Mapping[str, Any]) -> Table:
    """Rates, what survived of each kind, contradictory feedback."""
    found = pick(report, "provider", {})
    rows = [("configured rate", percent(found.get("configured_rate"), 1))]
    rows += [(f"realised rate, {text}", _share(pick(found, f"realised_rate.{s}", {}))) for s, text in SPLITS.items()]
    level = None
    for own in pick(found, "survival", []):
        level = pick(own, "interval.level", level)
        shown = f"{_share(own)} {brackets(own.get('interval'))}".strip()
        rows.append((f"{own.get('kind')} traces that the provider kept", shown))
    against = pick(found, "contradicted.overall", {})
    if any(against.values()):
        told = ", ".join(f"{number(n)} {kind}" for kind, n in against.items() if n)
        rows.append(("traces with contradictory feedback", told))
    design = [label(str(value)) for own in pick(found, "survival", [])[:1] for value in _design(own)]
    caption = (
        f"Canary design: {', '.join(design) or MISSING}. Counts are over {number(found.get('trials'))} trials; brackets"
        f" are {percent(level)} intervals, Clopper-Pearson, as if the traces of a trial, which share a canary, were "
        "independent. The cut to equal sizes is the study's own and drops no trace for the provider."
    )
    return Table(rows, caption=caption, kind="pairs", numeric=False)


def provider_steps(report: Mapping[str, Any]) -> Table:
    """Traces of each kind after each step, and by how many the step changed them."""
    rows = []
    for own in pick(report, "provider.steps", []):
        cells = [_changed(pick(own, f"kept.{kind}", 0), pick(own, f"dropped.{kind}", 0)) for kind in KINDS]
        rows.append((STEPS.get(own.get("step"), str(own.get("step"))), *cells))
    return Table(rows, ("traces of all trials", *KINDS), "In parentheses the change by the step.")


def provider_words(report: Mapping[str, Any]) -> str:
    """One sentence on what curation made of the rate."""
    return (
        "A simulated provider then curated the traces, in both arms alike: of the configured rate of "
        f"{percent(pick(report, 'provider.configured_rate'), 1)} it left a realised one of "
        f"{_share(pick(report, 'provider.realised_rate.overall', {}))}."
    )


def _design(own: Mapping[str, Any]) -> list[Any]:
    return [own[name] for name in ("family", "placement", "instruction") if own.get(name) is not None]


def _share(rate: Mapping[str, Any]) -> str:
    if rate.get("value") is None:
        return MISSING
    return f"{percent(rate['value'], 1)} ({number(rate['count'])} of {number(rate['n'])})"


def _changed(kept: int, dropped: int) -> str:
    return f"{number(kept)} ({number(-dropped, sign=True)})" if dropped else number(kept)
