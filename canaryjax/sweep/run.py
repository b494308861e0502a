"""The cells of a sweep, one after another, and the sweep's own directory: what is done, what failed, what is left."""

import gc
import hashlib
import json
import os.path
import shlex
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import yaml

from canaryjax.audit.shelf import BaseShelf
from canaryjax.config import config_hash
from canaryjax.errors import UserError
from canaryjax.report.setting import setting_of
from canaryjax.report.sweep_page import render_sweep
from canaryjax.runlog import RUN_FILE, Progress, RunDirectory, disk_is_full, read_json
from canaryjax.sweep import single
from canaryjax.sweep.cells import Cell
from canaryjax.sweep.file import SweepFile
from canaryjax.sweep.summary import summarise

CELLS, ERRORS = "cells", "errors"
SUMMARY = "sweep.json"
MOST_MAPS = 30_000


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: `done`, or `failed` with one line that says why."""

    name: str
    status: Literal["done", "failed"]
    error: str | None = None


RunOne = Callable[[Cell], Outcome]


def open_sweep(file: SweepFile, cells: list[Cell], out: Path | None, resume: bool) -> RunDirectory:
    """The sweep's directory: new, or that of an earlier call with the same cells.

    Raises:
      UserError: As `RunDirectory.create` and `RunDirectory.resume`; `resume` without `out`.
    """
    # A sweep is the same where its cells are: their configs say all that is trained and scored.
    digest = hashlib.sha256(json.dumps([[c.name, config_hash(c.config)] for c in cells]).encode()).hexdigest()
    said = {"sweep": file.name, "seeds": file.seeds} | {
        CELLS: {c.name: {"base": _shown(c.base), "overrides": list(c.overrides)} for c in cells}
    }
    text = yaml.safe_dump(said, sort_keys=False, allow_unicode=True)
    if not resume:
        return RunDirectory.create(out, file.name, digest, text)
    if out is None:
        raise UserError("expected --out DIR with --resume, found none; name the sweep's directory to go on with")
    return RunDirectory.resume(out, digest, text)


def run_sweep(file: SweepFile, cells: list[Cell], root: RunDirectory, progress: Progress, run_one: RunOne) -> list:
    """Runs the cells that have no report yet, and writes `sweep.json` and `sweep.html` after each.

    Args:
      file: The sweep.
      cells: All of its cells.
      root: Its directory.
      progress: Told which cell is under way.
      run_one: Runs a cell, as `cell_runner` gives it.

    Returns:
      The outcomes of all cells, in their order.
    """
    ended = {cell.name: Outcome(cell.name, "done") for cell in cells if is_done(cell, root)}
    left = [cell for cell in cells if cell.name not in ended]
    if ended:
        progress.note(f"{len(ended)} of {len(cells)} cells are done already")
    _write(file, cells, root, ended)
    for outcome in run_cells(left, run_one):
        ended[outcome.name] = outcome
        _write(file, cells, root, ended)
        how = "done" if outcome.error is None else f"failed: {outcome.error}"
        progress.note(f"cell {outcome.name} ({len(ended)} of {len(cells)}): {how}")
    return [ended[cell.name] for cell in cells]


def run_cells(cells: Iterable[Cell], run_one: RunOne) -> Iterator[Outcome]:
    """Runs cells one after another in this process, and gives each outcome as soon as it is known.

    The seam for other executors: one that runs cells elsewhere takes the same cells and function and gives outcomes in
    any order. Cells share nothing but files, each in its own folder.
    """
    for cell in cells:
        yield run_one(cell)


def cell_runner(root: RunDirectory, progress: Progress) -> RunOne:
    """The function that runs a cell in this process, where cells share base model and warm start.

    What a cell meets is its outcome and stops no other cell; a full disk would stop them all, so it is raised, as is a
    stop by the user. What is not the user's mistake leaves its traceback in `errors/`.
    """
    shelf = BaseShelf()

    def run_one(cell: Cell) -> Outcome:
        progress.note(f"cell {cell.name}")
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
            root.write_text(f"{ERRORS}/{cell.name}.txt", traceback.format_exc())
            return Outcome(cell.name, "failed", f"{type(error).__name__}: {_line(error)}")
        finally:
            spare_maps()
        return Outcome(cell.name, "done")

    return run_one


def spare_maps() -> None:
    """Lets go of all compiled programs once they hold about half of the memory maps that Linux gives a process.

    Cells of other shapes compile programs of their own; at 65,530 maps the process would be aborted.
    """
    maps = Path("/proc/self/maps")
    if maps.is_file() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


def is_done(cell: Cell, root: RunDirectory) -> bool:
    """Whether a cell has its report and its page."""
    folder = folder_of(cell, root)
    if not all((folder / name).is_file() for name in ("report.json", "report.html")):
        return False
    try:
        report = read_json(folder / "report.json")
    except UserError:  # damaged: it is made again out of the policies' records
        return False
    return isinstance(report, dict) and report.get("config_hash") == config_hash(cell.config)


def folder_of(cell: Cell, root: RunDirectory) -> Path:
    """The run directory of a cell."""
    return root.path / CELLS / cell.name


def _open_cell(cell: Cell, folder: Path) -> tuple[RunDirectory, bool]:
    """A cell's run directory, and whether an earlier call began it."""
    config = cell.config
    if (folder / RUN_FILE).is_file():
        return RunDirectory.resume(folder, config_hash(config), config.to_yaml()), True
    return RunDirectory.create(folder, config.name, config_hash(config), config.to_yaml()), False


def _write(file: SweepFile, cells: list[Cell], root: RunDirectory, ended: dict[str, Outcome]) -> None:
    rows = []
    for cell in cells:
        outcome = ended.get(cell.name)
        folder = folder_of(cell, root)
        rows.append(
            {
                "name": cell.name,
                "command": command_of(cell),
                "points": list(cell.points),
                "seed": cell.config.study.seed,
                "config": cell.config.model_dump(mode="json"),
                "directory": f"{CELLS}/{cell.name}",
                "status": outcome.status if outcome else "not run",
                "error": outcome.error if outcome else None,
                "policies": cell.config.study.compliant + cell.config.study.violating,
                "finished_policies": len(list(folder.glob("trials/*.json"))),
                "setting": setting_of(cell.config),
                "report": read_json(folder / "report.json") if outcome and outcome.status == "done" else None,
            }
        )
    root.write_json(SUMMARY, summarise(file, rows))
    with root.telling():
        render_sweep(root.path)


def command_of(cell: Cell) -> str:
    """What runs the cell alone."""
    return shlex.join(["bin/audit", _shown(cell.base), *cell.overrides])


def _shown(base: str) -> str:
    # The name of a config, never its folder: a report is for others to read.
    return Path(base).name if os.path.isfile(base) else base


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
