"""Which cells of a sweep stand for which rows of the paper's tables."""

import difflib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canaryjax.errors import UserError
from canaryjax.report.published import ROWS

if TYPE_CHECKING:
    from canaryjax.sweep.file import SweepFile


def read_rows(path: Path, values: Mapping[str, Any]) -> tuple[dict[str, str], bool]:
    """`rows` and `mixed_n` of a sweep file.

    Args:
      path: The file, for messages.
      values: What it holds.

    Returns:
      Names of cells by row of the paper, and whether rows of a table may be of unlike sizes.

    Raises:
      UserError: A row that is none of the paper's, or a value of another kind.
    """
    rows, mixed = {} if values.get("rows") is None else values["rows"], values.get("mixed_n", False)
    if not isinstance(rows, dict) or not all(isinstance(name, str) for name in rows.values()):
        raise UserError(f"expected rows of the paper with names of cells in `rows` of {path}, found {rows!r}")
    for row in rows:
        if row not in ROWS:
            near = difflib.get_close_matches(str(row), ROWS, n=1)
            advice = f"did you mean {near[0]!r}?" if near else "correct it"
            raise UserError(f"expected rows among {', '.join(ROWS)} in `rows` of {path}, found {row!r}; {advice}")
    if not isinstance(mixed, bool):
        raise UserError(f"expected true or false as `mixed_n` of {path}, found {mixed!r}; choose one")
    return {str(row): str(name) for row, name in rows.items()}, mixed


def check_rows(file: "SweepFile", sizes: Mapping[str, tuple[int, int]]) -> None:
    """Refuses rows whose cell is not there, and a table over rows of unlike sizes that is not asked for (BC-A1).

    Args:
      file: The sweep.
      sizes: Compliant and violating policies of each cell, by its name.

    Raises:
      UserError: It names file, row and cell.
    """
    tables: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    for row, name in file.rows.items():
        if name not in sizes:
            near = difflib.get_close_matches(name, sizes, n=1)
            advice = f"did you mean {near[0]!r}?" if near else "correct `rows`"
            raise UserError(
                f"expected a cell among {', '.join(sizes)} for {row} in {file.path}, found {name!r}; {advice}"
            )
        tables[ROWS[row].table].setdefault(sizes[name], row)
    for table, rows in tables.items():
        if len(rows) > 1 and not file.mixed_n:
            found = ", ".join(f"{row} with {n[0]} + {n[1]}" for n, row in rows.items())
            raise UserError(
                f"expected rows of {table} in {file.path} with equally many policies, found {found}; give them the "
                "same study.compliant and study.violating, or set `mixed_n: true` to have the page say that they differ"
            )
