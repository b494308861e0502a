"""Which cells are shown as cases, out of how many, and that they were chosen after the fact (PA-40)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from canaryjax.config.probes import VerdictConfig
from canaryjax.probes.estimate import side
from canaryjax.probes.records import Estimate

POOLS = ("saturated", "undertrained", "between", "not read")


@dataclass(frozen=True)
class Candidate:
    """One tuned cell as the screens see it.

    Attributes:
      cell: Its name.
      window, secret: Estimates of their changes.
      preamble_share: Of the window's change; None where that is 0 or unknown.
      hits_before, hits_after: Rates of hit@1; None where nothing was generated.
    """

    cell: str
    window: Estimate
    secret: Estimate
    preamble_share: float | None
    hits_before: float | None
    hits_after: float | None

    @property
    def pool(self) -> str:
        """By what the baseline recalls: `saturated` all, `undertrained` none, else `between`; `not read` if unknown."""
        if self.hits_before is None:
            return "not read"
        return {1.0: "saturated", 0.0: "undertrained"}.get(self.hits_before, "between")


def screen(candidates: Sequence[Candidate], limits: VerdictConfig) -> dict[str, Any]:
    """Every screen on every cell, and the first cell of each kind of case with its pool and rank.

    The thresholds stand in the config; which cell is shown is decided by the results, so each case says `post_hoc`.
    """
    rows = [_row(candidate, limits) for candidate in candidates]
    pools = {pool: sum(candidate.pool == pool for candidate in candidates) for pool in POOLS}
    saturated = [c for c in candidates if c.pool == "saturated"]
    undertrained = [c for c in candidates if c.pool == "undertrained"]
    flat = [c for c in saturated if c.window.value is not None and abs(c.window.value) <= limits.moved and _drop(c) > 0]
    passing = {row["cell"] for row in rows if row["passes"]}
    drifted = [c for c in saturated if c.cell in passing and (c.preamble_share or 0.0) >= limits.drift_share]
    fallen = [c for c in undertrained if side(c.window.nested) < 0]
    cases = [
        _case("window flat, recall lost", flat, len(saturated), lambda c: -_drop(c)),
        _case("window moved on the preamble", drifted, len(saturated), lambda c: -abs(c.window.value or 0.0)),
        _case("window fell, undertrained", fallen, len(undertrained), lambda c: c.window.value or 0.0),
    ]
    thresholds = {"moved": limits.moved, "secret_ratio": limits.secret_ratio, "drift_share": limits.drift_share}
    return {"thresholds": thresholds, "pools": pools, "rows": rows, "cases": cases}


def _row(c: Candidate, limits: VerdictConfig) -> dict[str, Any]:
    window, secret = c.window.value, c.secret.value
    moved = None if window is None else abs(window) > limits.moved
    small = None if window is None or secret is None else abs(secret) < limits.secret_ratio * abs(window)
    recalled = [None if rate is None else rate == 1.0 for rate in (c.hits_before, c.hits_after)]
    screens = (moved, small, *recalled)
    return {
        "cell": c.cell,
        "pool": c.pool,
        "moved": moved,
        "secret_small": small,
        "recalled_before": recalled[0],
        "recalled_after": recalled[1],
        "negative": side(c.window.nested) < 0,
        "passes": None if None in screens else all(screens),
    }


def _case(kind: str, fitting: Sequence[Candidate], pool: int, order) -> dict[str, Any]:
    ranked = sorted(fitting, key=lambda c: (order(c), c.cell))
    first = ranked[0].cell if ranked else None
    found = f"{len(ranked)} of {pool} cells" if pool else "no cell"
    return {
        "case": kind,
        "cell": first,
        "pool": pool,
        "fitting": len(ranked),
        "rank": 1 if ranked else None,
        "post_hoc": True,
        "text": f"{found} of the pool fit; shown is the first by size" if ranked else f"{found} of the pool fit",
    }


def _drop(c: Candidate) -> float:
    return 0.0 if c.hits_before is None or c.hits_after is None else c.hits_before - c.hits_after
