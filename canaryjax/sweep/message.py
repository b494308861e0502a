"""What a sweep and its workers tell each other: cells one way, progress and outcomes the other, as plain values."""

import dataclasses
import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from canaryjax.config import validate_config
from canaryjax.errors import UserError
from canaryjax.runlog import Progress
from canaryjax.sweep.cells import Cell
from canaryjax.sweep.execute import Outcome, folder_of

Values = dict[str, Any]
HEARD, OUTCOME, FULL = "heard", "outcome", "full"  # the kinds of what a worker sends


def from_cell(cell: Cell) -> Values:
    """A cell as JSON holds it, its config whole: a worker reads no file that may have changed."""
    return dataclasses.asdict(cell) | {"config": cell.config.model_dump(mode="json")}


def to_cell(values: Mapping[str, Any]) -> Cell:
    """The cell that `from_cell` made plain."""
    config = validate_config(values["config"], f"cell {values['name']}")
    overrides, points = tuple(values["overrides"]), tuple(values["points"])
    return Cell(values["name"], values["base"], overrides, points, config)


def from_outcome(outcome: Outcome) -> Values:
    """What a worker sends when a cell has ended."""
    return {"kind": OUTCOME, "outcome": dataclasses.asdict(outcome)}


def from_full_disk(error: BaseException) -> Values:
    """What a worker sends where there is no room left for any cell."""
    return {"kind": FULL, "error": str(error)}


def to_outcome(message: Mapping[str, Any]) -> Outcome:
    """The outcome that a worker sent.

    Raises:
      UserError: It found the disk full, which stops the sweep as in this process.
    """
    if message["kind"] == FULL:
        raise UserError(message["error"]) from OSError(errno.ENOSPC, message["error"])
    return Outcome(**message["outcome"])


class Telling:
    """A `Progress` of a cell in a worker: sends what it is told, to be heard where the sweep was started."""

    def __init__(self, cell: str, send: Callable[[Values], None]) -> None:
        """Takes the cell's name, and what sends one message."""
        self._cell, self._send = cell, send

    def stage(self, name: str, total: int | None = None, done: int = 0, compiling: int = 1) -> None:
        """Sends the stage's name."""
        self._tell("stage", name)

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Sends count and detail."""
        self._tell("advance", detail, count=count)

    def pace(self, text: str) -> None:
        """Sends the text."""
        self._tell("pace", text)

    def note(self, text: str) -> None:
        """Sends the text."""
        self._tell("note", text)

    def _tell(self, method: str, text: str, **more: int) -> None:
        self._send({"kind": HEARD, "cell": self._cell, "method": method, "text": text} | more)


def relay(progress: Progress, message: Mapping[str, Any]) -> None:
    """Passes on what a cell told, under the cell's name: several are under way, and they share one stage."""
    told = f"{message['cell']}: {message['text']}"
    if message["method"] == "advance":
        progress.advance(message["count"], told)
    elif message["method"] == "pace":
        progress.pace(told)
    else:
        progress.note(told)


def begin_policies(progress: Progress, cells: Sequence[Cell], root: Path, workers: int) -> None:
    """Begins the one stage of all cells that are to be run.

    Args:
      progress: Told.
      cells: To be run.
      root: The sweep's directory; policies that an earlier call has finished in a cell count as done.
      workers: How many cells are under way at once.
    """
    total = sum(cell.config.study.compliant + cell.config.study.violating for cell in cells)
    done = sum(len(list(folder_of(cell, root).glob("trials/*.json"))) for cell in cells)
    progress.stage(f"{len(cells)} cells, {workers} at once", total, done, compiling=workers)
