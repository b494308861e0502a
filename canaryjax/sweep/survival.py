"""What a simulated provider left of the canary in each cell that had one: a row a canary design (BC-24, BC-70)."""

from collections.abc import Mapping, Sequence
from typing import Any

from canaryjax.report.text import pick

STEPS = ("perplexity", "near_duplicate")  # those that a canary's design can move; subsampling is by lot
DESIGN = ("family", "placement", "instruction")
CANARY = "triggered"  # the kind of trace that carries it


def survival_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the table over cells whose report tells of a provider, in their order.

    Args:
      rows: One a cell, as `summarise` takes them.

    Returns:
      By cell the canary's design, the configured rate, the realised rates in all and by split, of the canary traces the
      share that each step of `STEPS` left of what it was given (None where it was off), and the share that no step
      dropped, as the reports have them.
    """
    return [
        _row(row["name"], row["report"]["provider"])
        for row in rows
        if pick(row, "report.provider.curated", default=False)
    ]


def _row(cell: str, provider: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {own["kind"]: own for own in provider["survival"]}
    steps = {own["step"]: own for own in provider["steps"]}
    return {
        "cell": cell,
        "design": {name: kinds[CANARY].get(name) for name in DESIGN},  # a textual canary has no instruction
        "configured_rate": provider["configured_rate"],
        "realised_rate": provider["realised_rate"],
        "steps": {name: _share(steps[name]) if name in steps else None for name in STEPS},
        "survived": {name: kinds[CANARY][name] for name in ("value", "count", "n", "interval", "reason")},
    }


def _share(step: Mapping[str, Any]) -> dict[str, Any]:
    count, n = step["kept"][CANARY], step["kept"][CANARY] + step["dropped"][CANARY]
    return {"value": count / n if n else None, "count": count, "n": n, "reason": None if n else "there were none"}
