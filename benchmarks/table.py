"""The results of `benchmarks/results/` as tables: `python benchmarks/table.py [FILE ...]` prints them.

`python benchmarks/table.py --write` puts them into `benchmarks/README.md`, between its two markers.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from canaryjax.errors import UserError
from harness.command import Parser, run_script

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- results: made by table.py --write -->", "<!-- results end -->"
# Sizes that tell one row from another; the rest is the study's shape unless the row says otherwise.
TELLING = ("context", "completion", "prompts", "group", "vocab", "rank", "policies", "views", "resamples")
PLATFORMS = {"cpu": "CPU", "gpu": "GPU"}  # every platform has a heading, measured or not
STATED = ("jax", "jaxlib", "torch", "transformers", "peft", "trl", "google-tunix")
READ = {
    *("name", "shape", "dtype", "device", "ours_s", "peer", "peer_s", "ratio", "agreement", "skipped", "detail"),
    *("versions", "commit", "date"),
}

Row = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables of the files given, or of all results; with `--write` writes them into the README."""
    parser = Parser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="of results; all stored ones by default")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    options = parser.parse_args(arguments)
    tables = render(read_results(options.files))
    if options.write:
        README.write_text(with_tables(README.read_text("utf-8"), tables), "utf-8")
    else:
        print(tables)
    return 0


def read_results(files: Sequence[Path] = ()) -> list[Row]:
    """The rows of result files, all of `benchmarks/results/` by default, in the order of their names.

    Raises:
      UserError: A file cannot be read, or a line of it is no result.
    """
    return [row for path in files or sorted(RESULTS.glob("*.jsonl")) for row in _rows(path)]


def _rows(path: Path) -> list[Row]:
    advice = "name files that a benchmark wrote with --json"
    rows: list[Row] = []
    try:
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            if not isinstance(row, dict) or not row.keys() >= READ:
                raise ValueError("an object without a result's names" if isinstance(row, dict) else "no object")
            rows.append(row)
    except OSError as error:
        raise UserError(f"expected a file of results; found: {error.strerror}: {path}; {advice}") from error
    except ValueError as error:  # of UTF-8, of JSON, or the one above
        where = f"{path}, line {len(rows) + 1}"
        what = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise UserError(f"expected one result a line; found in {where}: {what}; {advice}") from error
    return rows


def with_tables(text: str, tables: str) -> str:
    """The README's text with the tables between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise UserError(f"expected {BEGIN!r} and {END!r} in README.md, found no such pair; put them back")
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def render(rows: Iterable[Row]) -> str:
    """All tables: for each platform comparisons, what was timed alone, stages, large models, memory, the study."""
    rows, parts = list(rows), []
    for platform, heading in PLATFORMS.items():
        own = [row for row in rows if row["device"].partition(":")[0] == platform]
        parts.append(f"### {heading}\n")
        parts.append(_tables(own) if own else f"Not measured{', no GPU' if platform == 'gpu' else ''}.\n")
    return "\n".join(parts)


def _tables(rows: Sequence[Row]) -> str:
    compared = [row for row in rows if row["peer"]]
    alone = [row for row in rows if not row["peer"] and not row["detail"].keys() & _OF_THEIR_OWN]
    # A step that was timed against several peers states its stages as often.
    staged = {
        json.dumps([row[name] for name in ("name", "shape", "device", "date")]): row
        for row in _having(rows, "gradient_s")
    }
    parts = [_surroundings(rows)]
    for heads, chosen, cells in (
        (("work", "sizes", "ours, s", "peer", "peer, s", "ratio", "largest difference / allowed"), compared, _compared),
        (("work, ours alone", "sizes", "ours, s"), alone, _alone),
        (_STAGES, list(staged.values()), _staged),
        (_LARGE, _having(rows, "decode_tokens_per_s"), _large),
        (("policies", "as a study trains them, s", "one program, s"), _having(rows, "one_program_s"), _together),
        (("sizes", "scoring, MiB", "gradient, MiB"), _having(rows, "forward_bytes"), _planned),
        (("policies", "resamples", "every statistic of a study, s"), _having(rows, "statistics_s"), _statistics),
        (("audit", "whole, s", "XLA compiling, s", "programs"), _having(rows, "compile_share"), _starts),
    ):
        if chosen:
            parts.append(_table(heads, [line for row in chosen for line in _lines(cells, row)]))
    return "\n".join(parts)


_STAGES = (
    *("work", "sizes", "rollout, s", "reference, s", "gradient, s", "share of the matmul rate"),
    *("matmul, GFLOP/s", "copy, GB/s"),
)
_LARGE = (
    *("model", "policies", "step of one policy, s", "scoring, s"),
    *("scoring, share of the stated peak", "update, share of it"),
    *("decode, GB/s", "policies an hour", "peak memory, GB", "compiling, s"),
)
# Details whose rows have a table of their own, with the seconds in it.
_OF_THEIR_OWN = {"decode_tokens_per_s", "one_program_s", "forward_bytes", "compile_share"}


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


def _alone(row: Row) -> tuple[str, ...]:
    return row["name"], _sizes(row["shape"]), _number(row["ours_s"])


def _large(row: Row) -> tuple[str, ...]:
    shape, found = row["shape"], row["detail"]
    shares = ("unknown" if found[name] is None else f"{found[name]:.1%}" for name in ("score_mfu", "update_mfu"))
    peak = found["peak_memory_bytes"]
    return (
        *(shape["model"], str(shape["policies"]), _number(found["step_s"]), _number(found["score_s"]), *shares),
        *(f"{found['decode_bytes_per_s'] / 1e9:,.0f}", _number(found["policies_per_hour"])),
        *("unknown" if peak is None else f"{peak / 1e9:,.1f}", f"{found['compile_s']:.0f}"),
    )


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


def _statistics(row: Row) -> tuple[str, ...]:
    shape = row["shape"]
    return (f"{shape['policies']:,}", f"{shape['resamples']:,}", _number(row["detail"]["statistics_s"]))


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
    run_script(main)
