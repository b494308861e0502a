"""The tables around a probe audit's cells: how cases were chosen, decoys, failures, merged weights, counts."""

import itertools
from collections.abc import Sequence

from canaryjax.probes.decoy import smallest_p
from canaryjax.report.probes_tables import LINES, Row, table
from canaryjax.report.probes_text import KINDS, NOT_KNOWN, plain, signed, visible
from canaryjax.report.tables import Table

BREAK = "\u200b"  # where a long name may go on in the next line


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
    return table(head, rows, numeric=False)


def screens(report: Row) -> str:
    """What the screens ask, with their thresholds."""
    limits = report["selection"]["thresholds"]
    return (
        f"Moved: by more than {limits['moved']:g} nats a token. Small: the secret's change is below "
        f"{limits['secret_ratio']:g} times the window's. Below 0: by the nested interval. A cell passes that moved, "
        "whose secret's change is small, and that recalls all before and after."
    )


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
    return table(("Case", "Cell", "Pool", "Fitting", "Rank"), rows, numeric=False)


def accounting(report: Row) -> Table:
    """Cells and runs by kind (Table 8)."""
    found = report["accounting"]
    rows = [(KINDS[row["kind"]], str(row["cells"]), str(row["runs"])) for row in found["rows"]]
    cells = sum(row["cells"] for row in found["rows"] if row["kind"] in ("sft", "noise"))
    return table(("Kind", "Cells", "Runs"), [*rows, ("of these tuned or random", str(cells), str(found["total_runs"]))])


def extremes(report: Row) -> list[str]:
    """Negative changes of the secret, and where seeds differ most."""
    found = report["accounting"]
    points = ", ".join(f"{one['cell']} {signed(one['value'])}" for one in found["negative_points"])
    said = [
        f"The secret's nested interval lies below 0 in {found['secret_below_zero']} of {found['ci_rows']} tuned or "
        f"random cells with intervals. Negative points: {points or 'none'}."
    ]
    widest = {name: one for name, one in found["largest_spread"].items() if one is not None}
    if widest:
        each = ", ".join(f"{name} {plain(one['value'], 4)} ({one['cell']})" for name, one in widest.items())
        said.append(f"Where seeds differ most in a change, largest less smallest: {each}.")
    return said


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
    return table(("Cell", "Span", "Stacked", "Merged", "Ratio", "Mean |difference| a token"), rows)


def failures(report: Row, most: int) -> Table | None:
    """Greedy outputs that lost a secret which the baseline's holds (Table 11)."""
    rows = _some_of_each(failing(report), most)
    if not rows:
        return None
    shown = [
        (f"{row['cell']}, seed {row['seed']}", str(row["canary"]), visible(row["target"]), visible(row["output"]),
         NOT_KNOWN if row["position"] is None else str(row["position"]),
         NOT_KNOWN if row["expected"] is None else f"{row['expected']!r} not {row['found']!r}",
         NOT_KNOWN if row["rank"] is None else str(row["rank"]))
        for row in rows
    ]  # fmt: skip
    return table(
        ("Model", "Canary", "Target", "Output", "Position", "Token", "Rank of the right one"), shown, numeric=False
    )


def _some_of_each(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows, of every cell in turn: the first cell's would say nothing of the others."""
    by_cell: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        by_cell.setdefault(row["cell"], []).append(place)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_cell.values()))
    chosen = [place for place in turns if place is not None][:most]
    return [rows[place] for place in sorted(chosen)]


def failing(report: Row) -> list[Row]:
    """Failures where there was recall to lose: those of canaries that the cell's baseline says."""
    read = {cell["name"] for cell in report["cells"] if cell["hits"]}
    baseline = {cell["name"]: cell["baseline"] for cell in report["cells"] if cell["baseline"] in read}
    unsaid = {(row["cell"], row["canary"]) for row in report["failures"]}
    return [
        row
        for row in report["failures"]
        if row["cell"] in baseline and (baseline[row["cell"]], row["canary"]) not in unsaid
    ]


def decoys(report: Row) -> Table | None:
    """How much less likely decoys are than the true secret (Table 12)."""
    if not report["decoys"]:
        return None
    kinds = list(dict.fromkeys(row["kind"] for row in report["decoys"]))
    gaps = {(row["cell"], row["kind"]): row["gap"] for row in report["decoys"]}
    ranked = {row["cell"]: row for row in report["exposure"]}
    alpha = next((row["alpha"] for row in report["exposure"]), 0.05)
    rows = []
    for cell in dict.fromkeys(row["cell"] for row in report["decoys"]):
        own = ranked.get(cell)
        told = (NOT_KNOWN, NOT_KNOWN) if own is None else (
            f"{own['mean_bits']:.2f} of {own['most_bits']:.2f}", _within_alpha(own))  # fmt: skip
        rows.append((cell, *(signed(gaps.get((cell, kind)), 2) for kind in kinds), *told))
    return table(("Cell", *(f"{kind} - true" for kind in kinds), "Exposure, bits", f"Rank p within {alpha:.2g}"), rows)


def _within_alpha(exposure: Row) -> str:
    least = smallest_p(exposure["decoys"])
    return f"{exposure['below']}/{exposure['n']}" if least <= exposure["alpha"] else f"at least {least:.2g}"


def left_out(report: Row, most: Sequence[str]) -> Table:
    """The secret's change without each canary in turn, under that with all (PA-44)."""
    cells = [cell for cell in report["cells"] if cell["name"] in most and cell["leave_one_out"]]
    canaries = [one["canary"] for one in cells[0]["leave_one_out"]["values"]] if cells else []
    rows = [("none of them", *(signed(cell["delta"]["secret"]["value"]) for cell in cells))]
    for place, canary in enumerate(canaries):
        rows.append((str(canary), *(signed(cell["leave_one_out"]["values"][place]["value"]) for cell in cells)))
    return table(("Without", *(cell["name"].replace("/", f"/{BREAK}") for cell in cells)), rows, kind=LINES)
