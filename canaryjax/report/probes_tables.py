"""The tables of a probe audit's cells, each from `report.json` alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from canaryjax.report.probes_text import NOT_KNOWN, between, interval, plain, share, signed, signs
from canaryjax.report.tables import Table

Row = Mapping[str, Any]
LINES = "lines"  # kind of a table whose cells keep their line breaks


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], numeric: bool = True, kind: str = "grid") -> Table:
    """A head and its rows."""
    return Table(rows, head, numeric=numeric, kind=kind)


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
    return table(("Span", "Positions", "Tokens", "Mean", f"Inside K = {window}"), rows)


def verdicts(report: Row) -> Table:
    """Each tuned cell's three probes side by side, and what the rules say (Table 2)."""
    ks = ks_of(report)
    head = ("Cell", "Window", "Secret", *(f"hit@{k}" for k in ks), "Labels")
    rows = [(cell["name"], *_probes(cell, ks), "\n".join(_labels(cell))) for cell in _shown(report)]
    return table(head, rows, kind=LINES)


def narrow_verdicts(report: Row) -> Table:
    """The same for a terminal of 80 columns: labels stand under the name."""
    ks = ks_of(report)
    rows = [("\n  ".join((cell["name"], *_labels(cell))), *_probes(cell, ks)) for cell in _shown(report)]
    return table(("Cell", "Window", "Secret", *(f"hit@{k}" for k in ks)), rows)


def _shown(report: Row) -> list[Row]:
    return [cell for cell in report["cells"] if cell["kind"] in ("baseline", "sft", "reexposed")]


def _probes(cell: Row, ks: Sequence[int]) -> tuple[str, ...]:
    changes = ("0", "0") if cell["delta"] is None else (
        signed(cell["delta"]["window"]["value"]), signed(cell["delta"]["secret"]["value"]))  # fmt: skip
    return (*changes, *(hit(cell, k) for k in ks))


def _labels(cell: Row) -> list[str]:
    return ["baseline"] if cell["verdict"] is None else cell["verdict"]["labels"]


def recall(report: Row) -> Table | None:
    """Every hit@k with its interval, and beside it what k of the sampled outputs hit on average."""
    ks = ks_of(report)
    if not ks:
        return None
    rows = []
    for cell in report["cells"]:
        found = {one["k"]: one for one in cell.get("hits") or ()}
        parts: list[str] = []
        for k in ks:
            one = found.get(k)
            parts.append(NOT_KNOWN if one is None else lines(hit(cell, k), between(one["rate"])))
            parts.append(NOT_KNOWN if one is None else plain(one["unbiased"], 2))
        rows.append((cell["name"], *parts))
    return table(("Cell", *(name for k in ks for name in (f"hit@{k}", f"{k} sampled"))), rows, kind=LINES)


def models(reports: Sequence[Row]) -> Table:
    """Tuned cells of several models beside each other (Table 3): point estimates, no test between models."""
    ks = sorted({k for report in reports for k in ks_of(report)})
    rows = []
    for place, report in enumerate(reports):
        name = "given scores" if report["model"] is None else report["model"]["name"]
        run = f"{report['name']}, run {report['run']}"
        again = sum((one["name"], one["run"]) == (report["name"], report["run"]) for one in reports[:place])
        run += f" ({again + 1})" * bool(again)  # a folder of the same name elsewhere
        for cell in report["cells"]:
            if cell["kind"] == "sft":
                parts = (cell["decomposition"] or {"rows": ()})["rows"]
                preamble = next((row["share"] for row in parts if row["span"] == "preamble"), None)
                rows.append((
                    str(name), run, cell["name"], signed(cell["delta"]["window"]["value"]), share(preamble),
                    signed(cell["delta"]["secret"]["value"]), *(hit(cell, k) for k in ks),
                    "\n".join(_labels(cell)),
                ))  # fmt: skip
    head = ("Model", "Run", "Cell", "Window", "On the preamble", "Secret", *(f"hit@{k}" for k in ks), "Labels")
    return table(head, rows, kind=LINES)


def rules(report: Row) -> Table:
    """Why each label holds, or is not known; rules that do not hold are in report.json."""
    rows = [
        (cell["name"], rule["label"], {True: "yes", False: "no", None: "not known"}[rule["holds"]], rule["because"])
        for cell in report["cells"]
        if cell["kind"] == "sft"
        for rule in cell["verdict"]["rules"]
        if rule["holds"] is not False
    ]
    return table(("Cell", "Label", "Holds", "Because"), rows, numeric=False)


def all_cells(report: Row) -> Table:
    """Both interval families of both changes, every cell (Table 7)."""
    head = ("Cell", "Probe", "Change", "Nested bootstrap", "Student t", "Label", "Crossed bootstrap", "Seeds",
            "n")  # fmt: skip
    rows = []
    for cell in report["cells"]:
        if cell["delta"] is None:
            rows.append((cell["name"], "both", "0 by\nconstruction", *[NOT_KNOWN] * 5, str(cell["instances"])))
            continue
        for quantity in ("window", "secret"):
            one = cell["delta"][quantity]
            rows.append((
                cell["name"], quantity, lines(signed(one["value"]), _pooled(one)), interval(one["nested"]),
                interval(one["student"]), one["label"], interval(one["crossed"]),
                lines(_range(one["per_seed"]), signs(one["per_seed"])),
                lines(str(one["instances"]), f"{one['excluded']} left out" if one["excluded"] else ""),
            ))  # fmt: skip
    return table(head, rows, kind=LINES)


def lines(*texts: str) -> str:
    """The texts that are not empty, one under the other."""
    return "\n".join(text for text in texts if text)


def _pooled(one: Row) -> str:
    """The mean over tokens where it is another number than that over instances."""
    same = one["micro"] is None or signed(one["micro"]) == signed(one["value"])
    return "" if same else f"pooled {signed(one['micro'])}"


def _range(values: Sequence[float]) -> str:
    return "" if not values else f"{signed(min(values))} to {signed(max(values))}"


def without_interval(report: Row) -> list[str]:
    """Why intervals are missing, each reason once with the cells that it holds of."""
    cells: dict[str, list[str]] = {}
    for cell in report["cells"]:
        for quantity in ("window", "secret") if cell["delta"] else ():
            for family in ("nested", "crossed", "student"):
                own = cell["delta"][quantity][family]
                if own["low"] is None:
                    cells.setdefault(str(own["reason"] or "no reason was recorded"), []).append(cell["name"])
    return [f"No interval: {reason} ({', '.join(dict.fromkeys(names))})." for reason, names in cells.items()]


def levels(report: Row) -> Table:
    """Mean NLLs themselves: what changes are changes of."""
    names = ("window", "full", "preamble", "literal", "secret", "end", "trailing")
    rows = [(cell["name"], *(plain(cell["level"].get(name)) for name in names)) for cell in report["cells"]]
    return table(("Cell", *names), rows)


def decomposition(report: Row) -> Table:
    """The window's change part by part, and what a pass of another length adds (Table 5)."""
    cells = [cell for cell in report["cells"] if cell.get("decomposition")]
    names = [row["span"] for row in cells[0]["decomposition"]["rows"]] if cells else []
    rows = []
    for cell in cells:
        found = cell["decomposition"]
        parts = [
            lines(signed(row["contribution"], 5), share(row["share"]) if row["contribution"] else "")
            for row in found["rows"]
        ]
        rows.append((cell["name"], *parts, signed(found["enumerated"], 5), signed(found["residual"], 5),
                     signed(found["canonical"], 5)))  # fmt: skip
    return table(("Cell", *names, "Sum", "Residual", "Window's own pass"), rows, kind=LINES)


def sweep(report: Row) -> Table:
    """The mean's change at other windows, from the same pass, beside the whole secret (Table 6)."""
    ks = report["tokens"]["sweep"]
    rows = [
        (cell["name"], *(signed(cell["delta"]["sweep"][str(k)]["value"]) for k in ks),
         signed(cell["delta"]["secret"]["value"]))
        for cell in report["cells"]
        if cell["delta"] is not None
    ]  # fmt: skip
    return table(("Cell", *(f"K = {k}" for k in ks), "Secret, no window"), rows)
