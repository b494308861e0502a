"""How a cell is run, and the executor that runs cells one after another in this process."""

import gc
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax

from canaryjax.audit.shelf import BaseShelf
from canaryjax.config import config_hash
from canaryjax.errors import UserError
from canaryjax.runlog import RUN_FILE, Progress, RunDirectory, disk_is_full
from canaryjax.sweep import single
from canaryjax.sweep.cells import Cell, command_of

CELLS = "cells"
MOST_MAPS = 30_000


@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Attributes:
      name: The cell's.
      status: `done` or `failed`.
      error: One line that says why it failed.
      trace: What helps to look into a failure that is not the user's mistake.
    """

    name: str
    status: Literal["done", "failed"]
    error: str | None = None
    trace: str | None = None


# Runs cells and gives each outcome as soon as it is known, in any order. Cells share nothing but files, each in its own
# folder, so an executor may run them wherever that folder is seen.
Execute = Callable[[Sequence[Cell]], Generator[Outcome, None, None]]


def in_process(root: Path, progress: Progress) -> Execute:
    """The executor that runs cells one after another in this process, where they share base model and warm start.

    Args:
      root: The sweep's directory.
      progress: Told which cell is under way, and what it is at.
    """
    shelf = BaseShelf()

    def execute(cells: Sequence[Cell]) -> Generator[Outcome, None, None]:
        for cell in cells:
            progress.note(f"cell {cell.name}")
            yield run_cell(cell, root, progress, shelf)

    return execute


def run_cell(cell: Cell, root: Path, progress: Progress, shelf: BaseShelf) -> Outcome:
    """Runs a cell in this process.

    What a cell meets is its outcome and stops no other cell; a full disk would stop them all, so it is raised, as is a
    stop by the user.

    Args:
      cell: The cell.
      root: The sweep's directory.
      progress: Told what it is at.
      shelf: What earlier cells of this process have loaded.
    """
    try:
        run_dir, begun = _open_cell(cell, folder_of(cell, root))
        with closing(run_dir):
            single.run_to_report(cell.config, run_dir, begun, progress, command_of(cell), None, shelf)
    except UserError as error:
        if disk_is_full(error.__cause__):
            raise
        return Outcome(cell.name, "failed", _line(error))
    except Exception as error:
        if disk_is_full(error):
            raise
        return Outcome(cell.name, "failed", f"{type(error).__name__}: {_line(error)}", traceback.format_exc())
    finally:
        spare_maps()
    return Outcome(cell.name, "done")


def spare_maps() -> None:
    """Lets go of all compiled programs once they hold about half of the memory maps that Linux gives a process.

    Cells of other shapes compile programs of their own; at 65,530 maps the process would be aborted.
    """
    maps = Path("/proc/self/maps")
    if maps.is_file() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


def folder_of(cell: Cell, root: Path) -> Path:
    """The run directory of a cell."""
    return root / CELLS / cell.name


def _open_cell(cell: Cell, folder: Path) -> tuple[RunDirectory, bool]:
    """A cell's run directory, and whether an earlier call began it."""
    config = cell.config
    if (folder / RUN_FILE).is_file():
        return RunDirectory.resume(folder, config_hash(config), config.to_yaml()), True
    return RunDirectory.create(folder, config.name, config_hash(config), config.to_yaml()), False


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
