"""What was run, and what it may spend of alpha, as rows of name and value."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.tables import Table
from canaryjax.report.text import MISSING, label, number, pick


def ledger(report: Mapping[str, Any]) -> Table:
    """Which look this is, and what it leaves of alpha."""
    look, total = pick(report, "look", {}), report.get("alpha")
    spent, own = look.get("spent_before"), look.get("alpha")
    known = spent is not None and own is not None
    rows = [
        ("look at this model", number(look.get("number"))),
        ("alpha of this look", number(own, 4)),
        ("spent by earlier looks", number(spent, 4)),
        ("spent with this one", number(spent + own, 4) if known else MISSING),
        ("left for later looks", number(max(total - spent - own, 0.0), 4) if known and total is not None else MISSING),
        ("all looks together", number(total, 4)),
    ]
    return Table(rows, kind="pairs", numeric=False)


def calls(report: Mapping[str, Any]) -> Table:
    """Calls planned, answered, failed and why; empty answers and refusals."""
    own = pick(report, "calls", {})
    answered, planned = own.get("answered"), own.get("planned")
    failures = "; ".join(f"{reason}: {number(n)}" for reason, n in pick(own, "failures", {}).items())
    rows = [
        ("calls planned", number(planned)),
        ("calls a target", number(own.get("per_target"))),
        ("answered", f"{number(answered)} of {number(planned)}"),
        ("failed", number(own.get("failed")) + (f" ({failures})" if failures else "")),
        ("empty answers, counted as answers", number(own.get("empty"))),
        ("refusals, counted as answers", number(own.get("refusals"))),
    ]
    return Table(rows, kind="pairs", numeric=False)


def setting(report: Mapping[str, Any]) -> Table:
    """The model, the site by fingerprint, the rule, and when."""
    able = pick(report, "model.capabilities", {})
    rows = [
        ("model", pick(report, "model.label", "not recorded")),
        ("backend", pick(report, "model.backend", "not recorded")),
        *((f"able to: {label(key)}", number(value) if value is not None else MISSING) for key, value in able.items()),
        ("rule of a hit", pick(report, "rule.text", pick(report, "rule.name", "not recorded"))),
        ("started (UTC)", report.get("started") or "not recorded"),
        ("finished (UTC)", report.get("finished") or "not recorded"),
        ("canary code", f"version {number(pick(report, 'code.version'))}"),
        ("site, as a fingerprint", pick(report, "site.fingerprint", "not recorded")),
        ("commitment to the lot", pick(report, "site.commitment", "not recorded")),
        ("committed (UTC)", pick(report, "site.commitment_time", "not recorded")),
    ]
    return Table([(str(name), str(value)) for name, value in rows], kind="pairs", numeric=False)
