"""The tables of a probe audit's page, each from `report.json` alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from canaryjax.report.tables import Table

NOT_KNOWN = "-"
Row = Mapping[str, Any]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], numeric: bool = True) -> Table:
    return Table(rows, head, numeric=numeric)


def signed(value: Any, digits: int = 4) -> str:
    """A change with its sign; one too small for its digits is written in powers of ten.

    >>> signed(0.01334), signed(-0.0000123), signed(None)
    ('+0.0133', '-1.2e-05', '-')
    """
    if not isinstance(value, (int, float)):
        return NOT_KNOWN
    return f"{value:+.1e}" if value and abs(value) < 0.5 * 10**-digits else f"{value:+.{digits}f}"


def plain(value: Any, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else NOT_KNOWN


def interval(bounds: Any) -> str:
    """`[low, high]`, or a dash where it is undefined."""
    if not isinstance(bounds, Mapping) or bounds.get("low") is None or bounds.get("high") is None:
        return NOT_KNOWN
    return f"[{signed(bounds['low'])}, {signed(bounds['high'])}]"


def hit(cell: Row, k: int) -> str:
    """hit@k as a count, or a dash where it was not read."""
    found = next((one for one in cell.get("hits") or () if one.get("k") == k), None)
    return NOT_KNOWN if found is None else f"{found['hits']}/{found['n']}"


def ks_of(report: Row) -> list[int]:
    """Every k of hit@k that some cell has, rising."""
    return sorted({one["k"] for cell in report["cells"] for one in cell.get("hits") or ()})


def spans(report: Row) -> Table:
    """Where each span's tokens lie (the paper's Table 1)."""
    rows = []
    for one in report["tokens"]["positions"]:
        counts = one["tokens"]
        size = str(counts["min"]) if counts["min"] == counts["max"] else f"{counts['min']} to {counts['max']}"
        rows.append((one["span"], f"{one['first']} to {one['last']}", size, plain(counts["mean"], 2),
                     plain(one["in_window_mean"], 2)))  # fmt: skip
    window = report["tokens"]["window"]
    return _table(("Span", "Positions", "Tokens", "Mean", f"Inside K = {window}"), rows)


def verdicts(report: Row) -> Table:
    """Each tuned cell's three probes side by side, and what the rules say (Table 2)."""
    ks = ks_of(report)
    head = ("Cell", "Window", "Secret", *(f"hit@{k}" for k in ks), "Labels")
    rows = [
        (
            cell["name"],
            "0" if cell["delta"] is None else signed(cell["delta"]["window"]["value"]),
            "0" if cell["delta"] is None else signed(cell["delta"]["secret"]["value"]),
            *(hit(cell, k) for k in ks),
            "baseline" if cell["verdict"] is None else ", ".join(cell["verdict"]["labels"]),
        )
        for cell in report["cells"]
        if cell["kind"] in ("baseline", "sft", "reexposed")
    ]
    return _table(head, rows)


def models(reports: Sequence[Row]) -> Table:
    """Tuned cells of several models beside each other (Table 3): point estimates, no test between models."""
    ks = sorted({k for report in reports for k in ks_of(report)})
    rows = []
    for report in reports:
        name = report["name"] if report["model"] is None else report["model"]["name"]
        for cell in report["cells"]:
            if cell["kind"] == "sft":
                parts = (cell["decomposition"] or {"rows": ()})["rows"]
                preamble = next((row["share"] for row in parts if row["span"] == "preamble"), None)
                rows.append((
                    str(name), cell["name"], signed(cell["delta"]["window"]["value"]), share(preamble),
                    signed(cell["delta"]["secret"]["value"]), *(hit(cell, k) for k in ks),
                    ", ".join(cell["verdict"]["labels"]),
                ))  # fmt: skip
    head = ("Model", "Cell", "Window", "On the preamble", "Secret", *(f"hit@{k}" for k in ks), "Labels")
    return _table(head, rows)


def rules(report: Row) -> Table:
    """Why each label holds, or is not known; rules that do not hold are in report.json."""
    rows = [
        (cell["name"], rule["label"], {True: "yes", False: "no", None: "not known"}[rule["holds"]], rule["because"])
        for cell in report["cells"]
        if cell["kind"] == "sft"
        for rule in cell["verdict"]["rules"]
        if rule["holds"] is not False
    ]
    return _table(("Cell", "Label", "Holds", "Because"), rows, numeric=False)


def all_cells(report: Row) -> Table:
    """Both interval families of both changes, every cell (Table 7)."""
    head = ("Cell", "Probe", "Change", "Tokens pooled", "Nested bootstrap", "Crossed bootstrap", "Student t", "Label",
            "One sign", "Seeds")  # fmt: skip
    rows = []
    for cell in report["cells"]:
        if cell["delta"] is None:
            rows.append((cell["name"], "both", "0 by construction", *[NOT_KNOWN] * 7))
            continue
        for quantity in ("window", "secret"):
            one = cell["delta"][quantity]
            rows.append((
                cell["name"], quantity, signed(one["value"]), signed(one["micro"]), interval(one["nested"]),
                interval(one["crossed"]), interval(one["student"]), one["label"],
                "yes" if one["same_sign"] else "no", " ".join(signed(value) for value in one["per_seed"]),
            ))  # fmt: skip
    return _table(head, rows)


def levels(report: Row) -> Table:
    """Mean NLLs themselves: what changes are changes of."""
    names = ("window", "full", "preamble", "literal", "secret", "end", "trailing")
    rows = [(cell["name"], *(plain(cell["level"].get(name)) for name in names)) for cell in report["cells"]]
    return _table(("Cell", *names), rows)


def decomposition(report: Row) -> Table:
    """The window's change part by part, and what a pass of another length adds (Table 5)."""
    cells = [cell for cell in report["cells"] if cell.get("decomposition")]
    names = [row["span"] for row in cells[0]["decomposition"]["rows"]] if cells else []
    rows = []
    for cell in cells:
        found = cell["decomposition"]
        parts = [f"{signed(row['contribution'], 5)} ({share(row['share'])})" for row in found["rows"]]
        rows.append((cell["name"], *parts, signed(found["enumerated"], 5), signed(found["residual"], 5),
                     signed(found["canonical"], 5)))  # fmt: skip
    return _table(("Cell", *names, "Sum", "Residual", "Window's own pass"), rows)


def share(value: Any) -> str:
    """A share of a whole that may be above 1 or negative."""
    return f"{round(value, 2) + 0.0:.0%}" if isinstance(value, (int, float)) else NOT_KNOWN


def sweep(report: Row) -> Table:
    """The mean's change at other windows, from the same pass, beside the whole secret (Table 6)."""
    ks = report["tokens"]["sweep"]
    rows = [
        (cell["name"], *(signed(cell["delta"]["sweep"][str(k)]["value"]) for k in ks),
         signed(cell["delta"]["secret"]["value"]))
        for cell in report["cells"]
        if cell["delta"] is not None
    ]  # fmt: skip
    return _table(("Cell", *(f"K = {k}" for k in ks), "Secret, no window"), rows)


def selection(report: Row) -> Table:
    """Every screen on every tuned cell (Table 4)."""
    words = {True: "yes", False: "no", None: NOT_KNOWN}
    keys = ("moved", "secret_small", "recalled_before", "recalled_after", "negative", "passes")
    rows = [(row["cell"], row["pool"], *(words[row[key]] for key in keys)) for row in report["selection"]["rows"]]
    head = (
        "Cell",
        "Pool",
        "Window moved",
        "Secret small",
        "All recalled before",
        "and after",
        "Window below 0",
        "Passes",
    )
    return _table(head, rows, numeric=False)


def cases(report: Row) -> Table:
    """The cases that are shown, out of how many."""
    rows = [
        (
            case["case"],
            case["cell"] or "none fits",
            str(case["pool"]),
            str(case["fitting"]),
            str(case["rank"] or NOT_KNOWN),
        )
        for case in report["selection"]["cases"]
    ]
    return _table(("Case", "Cell", "Pool", "Fitting", "Rank"), rows, numeric=False)


def accounting(report: Row) -> Table:
    """Cells and runs by kind (Table 8)."""
    found = report["accounting"]
    rows = [(row["kind"], str(row["cells"]), str(row["runs"])) for row in found["rows"]]
    return _table(
        ("Kind", "Cells", "Runs"), [*rows, ("tuned and noise", str(found["ci_rows"]), str(found["total_runs"]))]
    )


def merged(report: Row) -> Table | None:
    """What is left of changes when the adapter is merged (Tables 9 and 10)."""
    if report["merged"] is None:
        return None
    rows = [
        (row["cell"], row["span"], signed(row["stacked"], 5), signed(row["merged"], 5),
         plain(row["ratio"], 2) if row["ratio"] is not None else str(row["reason"]),
         plain(row["mean_abs_difference"], 6))
        for row in report["merged"]["rows"]
    ]  # fmt: skip
    return _table(("Cell", "Span", "Stacked", "Merged", "Ratio", "Mean |difference| a token"), rows)


def failures(report: Row, most: int) -> Table | None:
    """Greedy outputs of cells whose baseline recalls everything that do not hold their secret (Table 11)."""
    rows = failing(report)
    if not rows:
        return None
    shown = [
        (f"{row['cell']}, seed {row['seed']}", str(row["canary"]), row["target"], row["output"],
         NOT_KNOWN if row["position"] is None else str(row["position"]),
         NOT_KNOWN if row["expected"] is None else f"{row['expected']!r} not {row['found']!r}",
         NOT_KNOWN if row["rank"] is None else str(row["rank"]))
        for row in rows[:most]
    ]  # fmt: skip
    return _table(
        ("Model", "Canary", "Target", "Output", "Position", "Token", "Rank of the right one"), shown, numeric=False
    )


def failing(report: Row) -> list[Row]:
    """Failures where there was recall to lose: a baseline that says no secret fails on all of them by design."""
    rates = {cell["name"]: cell["hits"][0] for cell in report["cells"] if cell["kind"] == "baseline" and cell["hits"]}
    saying = {name for name, one in rates.items() if one["hits"]}
    regimes = {cell["name"] for cell in report["cells"] if (cell["baseline"] or cell["name"]) in saying}
    return [row for row in report["failures"] if row["cell"] in regimes]


def decoys(report: Row) -> Table | None:
    """How much less likely decoys are than the true secret (Table 12)."""
    if not report["decoys"]:
        return None
    kinds = list(dict.fromkeys(row["kind"] for row in report["decoys"]))
    gaps = {(row["cell"], row["kind"]): row["gap"] for row in report["decoys"]}
    ranked = {row["cell"]: row for row in report["exposure"]}
    rows = []
    for cell in dict.fromkeys(row["cell"] for row in report["decoys"]):
        own = ranked.get(cell)
        told = (NOT_KNOWN, NOT_KNOWN) if own is None else (
            f"{own['mean_bits']:.2f} of {own['most_bits']:.2f}", f"{own['below']}/{own['n']}")  # fmt: skip
        rows.append((cell, *(signed(gaps.get((cell, kind)), 2) for kind in kinds), *told))
    return _table(("Cell", *(f"{kind} - true" for kind in kinds), "Exposure, bits", "Rank p within alpha"), rows)


def left_out(report: Row, most: Sequence[str]) -> Table:
    """The secret's change without each canary in turn (PA-44)."""
    cells = [cell for cell in report["cells"] if cell["name"] in most and cell["leave_one_out"]]
    canaries = [one["canary"] for one in cells[0]["leave_one_out"]["values"]] if cells else []
    rows = []
    for place, canary in enumerate(canaries):
        rows.append((f"without {canary}", *(signed(cell["leave_one_out"]["values"][place]["value"]) for cell in cells)))
    return _table(("Canary", *(cell["name"] for cell in cells)), rows)
