"""The results of `benchmarks/results/` as tables: `python benchmarks/table.py [FILE ...]` prints them.

`python benchmarks/table.py --write` puts them into `benchmarks/README.md`, between its two markers.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- results: made by table.py --write -->", "<!-- results end -->"
# Sizes that tell one row from another; the rest is the study's shape unless the row says otherwise.
TELLING = ("context", "completion", "prompts", "group", "vocab", "rank", "policies", "views")
PLATFORMS = {"cpu": "CPU", "gpu": "GPU"}  # every platform has a heading, measured or not
STATED = ("jax", "jaxlib", "torch", "transformers", "peft", "trl", "google-tunix")

Row = Mapping[str, Any]


def main(words: Sequence[str]) -> None:
    """Prints the tables of the files given, or of all results; with `--write` writes them into the README."""
    files = [Path(word) for word in words if word != "--write"]
    tables = render(read_results(files))
    if "--write" in words:
        README.write_text(with_tables(README.read_text("utf-8"), tables), "utf-8")
    else:
        print(tables)


def read_results(files: Sequence[Path] = ()) -> list[Row]:
    """The rows of result files, all of `benchmarks/results/` by default, in the order of their names."""
    paths = files or sorted(RESULTS.glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


def with_tables(text: str, tables: str) -> str:
    """The README's text with the tables between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"expected {BEGIN!r} and {END!r} in README.md, found no such pair; put them back")
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def render(rows: Iterable[Row]) -> str:
    """All tables: for each platform comparisons, our own stages, planned memory and the whole study."""
    rows, parts = list(rows), []
    for platform, heading in PLATFORMS.items():
        own = [row for row in rows if row["device"].partition(":")[0] == platform]
        parts.append(f"### {heading}\n")
        parts.append(_tables(own) if own else f"Not measured{', no GPU' if platform == 'gpu' else ''}.\n")
    return "\n".join(parts)


def _tables(rows: Sequence[Row]) -> str:
    compared = [row for row in rows if row["peer"]]
    staged = {json.dumps((row["name"], row["shape"])): row for row in rows if "gradient_s" in row["detail"]}
    parts = [_surroundings(rows)]
    for heads, chosen, cells in (
        (("work", "sizes", "ours, s", "peer", "peer, s", "ratio", "largest difference / allowed"), compared, _compared),
        (_STAGES, list(staged.values()), _staged),
        (("policies", "as a study trains them, s", "one program, s"), _having(rows, "one_program_s"), _together),
        (("sizes", "scoring, MiB", "gradient, MiB"), _having(rows, "forward_bytes"), _planned),
        (("audit", "whole, s", "XLA compiling, s", "programs"), _having(rows, "compile_share"), _starts),
    ):
        if chosen:
            parts.append(_table(heads, [line for row in chosen for line in _lines(cells, row)]))
    return "\n".join(parts)


_STAGES = (
    *("work", "sizes", "rollout, s", "reference, s", "gradient, s", "share of the matmul rate"),
    *("matmul, GFLOP/s", "copy, GB/s"),
)


def _having(rows: Iterable[Row], name: str) -> list[Row]:
    return [row for row in rows if name in row["detail"]]


def _lines(cells: Callable[[Row], Any], row: Row) -> list[tuple[str, ...]]:
    found = cells(row)
    return found if isinstance(found, list) else [found]


def _surroundings(rows: Iterable[Row]) -> str:
    """One line for each machine, day and set of versions."""
    said: dict[str, list[str]] = {}
    for row in rows:
        versions = ", ".join(f"{name} {row['versions'][name]}" for name in STATED if name in row["versions"])
        commit = (row["commit"] or {}).get("commit") or "unknown"
        line = f"{row['device']}; {row['dtype']}; {versions}; {row['date']}; commit {commit[:10]}"
        names = said.setdefault(line, [])
        if row["name"] not in names:
            names.append(row["name"])
    return "".join(f"- {', '.join(names)}: {line}\n" for line, names in said.items())


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (heads, tuple("---" for _ in heads), *rows))


def _sizes(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {shape[name]:,}" for name in TELLING if name in shape)


def _compared(row: Row) -> tuple[str, ...]:
    if row["skipped"]:
        return row["name"], _sizes(row["shape"]), _number(row["ours_s"]), row["peer"], row["skipped"], "", ""
    checks = row["agreement"]["checks"].items()
    worst = "; ".join(f"{name} {_number(c['difference'], '.0e')} / {c['tolerance']:.0e}" for name, c in checks)
    ratio = "does not agree" if row["ratio"] is None else _number(row["ratio"])
    return row["name"], _sizes(row["shape"]), _number(row["ours_s"]), row["peer"], _number(row["peer_s"]), ratio, worst


def _staged(row: Row) -> tuple[str, ...]:
    found = row["detail"]
    seconds = (_number(found[name]) for name in ("rollout_s", "reference_s", "gradient_s"))
    rates = f"{found['matmul_flops_per_s'] / 1e9:,.0f}", f"{found['copy_bytes_per_s'] / 1e9:,.1f}"
    return row["name"], _sizes(row["shape"]), *seconds, f"{found['gradient_matmul_share']:.0%}", *rates


def _together(row: Row) -> tuple[str, ...]:
    return str(row["shape"]["policies"]), _number(row["ours_s"]), _number(row["detail"]["one_program_s"])


def _planned(row: Row) -> tuple[str, ...]:
    found = row["detail"]
    return _sizes(row["shape"]), *(f"{found[name] / 2**20:,.1f}" for name in ("forward_bytes", "gradient_bytes"))


def _starts(row: Row) -> list[tuple[str, ...]]:
    """The first start and the second."""
    starts = {"first start": row["detail"]["first"], "second start": row["detail"]["second"]}
    return [
        (name, _number(found["total_s"]), _number(found["compile_s"]), str(found["programs"]))
        for name, found in starts.items()
    ]


def _number(x: float | None, form: str = ".3g") -> str:
    return "none" if x is None else format(x, form)


if __name__ == "__main__":
    main(sys.argv[1:])
