"""Prints the results of `benchmarks/results/` as the tables of the README: `python benchmarks/table.py [FILE ...]`."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# Sizes that tell one row from another; the rest is the study's shape unless the row says otherwise.
TELLING = ("context", "completion", "group", "vocab", "rank", "policies", "views")


def main(files: Iterable[str]) -> None:
    """Prints a table of comparisons, one of our own stages, and one of planned memory."""
    paths = [Path(file) for file in files] or sorted(RESULTS.glob("*.json"))
    rows = [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]
    compared = [row for row in rows if row["peer"]]
    planned = [row for row in rows if "forward_bytes" in row["detail"]]
    staged = {json.dumps(row["shape"]): row for row in rows if "gradient_s" in row["detail"]}.values()
    if compared:
        _print(
            ("work", "sizes", "ours, s", "peer", "peer, s", "ratio", "largest difference / allowed"),
            map(_compared, compared),
        )
    if staged:
        _print(("work", "rollout, s", "reference, s", "gradient, s", "share of the matmul rate"), map(_staged, staged))
    if planned:
        _print(("sizes", "scoring, MiB", "gradient, MiB"), map(_planned, planned))


def _print(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    for cells in (heads, tuple("---" for _ in heads), *rows):
        print("| " + " | ".join(cells) + " |")
    print()


def _sizes(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {shape[name]:,}" for name in TELLING if name in shape)


def _compared(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["skipped"]:
        return row["name"], _sizes(row["shape"]), _number(row["ours_s"]), row["peer"], row["skipped"], "", ""
    checks = row["agreement"]["checks"].items()
    worst = "; ".join(f"{name} {_number(c['difference'], '.0e')} / {c['tolerance']:.0e}" for name, c in checks)
    ratio = "does not agree" if row["ratio"] is None else _number(row["ratio"])
    return row["name"], _sizes(row["shape"]), _number(row["ours_s"]), row["peer"], _number(row["peer_s"]), ratio, worst


def _staged(row: Mapping[str, Any]) -> tuple[str, ...]:
    found = row["detail"]
    seconds = (_number(found[name]) for name in ("rollout_s", "reference_s", "gradient_s"))
    return row["name"], *seconds, f"{found['gradient_matmul_share']:.0%}"


def _planned(row: Mapping[str, Any]) -> tuple[str, ...]:
    found = row["detail"]
    return _sizes(row["shape"]), *(f"{found[name] / 2**20:,.1f}" for name in ("forward_bytes", "gradient_bytes"))


def _number(x: float | None, form: str = ".3g") -> str:
    return "none" if x is None else format(x, form)


if __name__ == "__main__":
    main(sys.argv[1:])
