"""The sweep's own directory: what is done, what failed, what is left, written anew after each cell."""

import hashlib
import json
from contextlib import closing
from pathlib import Path

import yaml

from canaryjax.config import config_hash
from canaryjax.errors import UserError
from canaryjax.report.setting import setting_of
from canaryjax.report.sweep_page import render_sweep
from canaryjax.runlog import Progress, RunDirectory, read_json
from canaryjax.sweep.cells import Cell, command_of, shown
from canaryjax.sweep.execute import CELLS, Execute, Outcome, folder_of
from canaryjax.sweep.file import SweepFile
from canaryjax.sweep.summary import summarise

ERRORS = "errors"
SUMMARY = "sweep.json"


def open_sweep(file: SweepFile, cells: list[Cell], out: Path | None, resume: bool) -> RunDirectory:
    """The sweep's directory: new, or that of an earlier call with the same cells.

    Raises:
      UserError: As `RunDirectory.create` and `RunDirectory.resume`; `resume` without `out`.
    """
    # A sweep is the same where its cells are: their configs say all that is trained and scored.
    digest = hashlib.sha256(json.dumps([[c.name, config_hash(c.config)] for c in cells]).encode()).hexdigest()
    said = {"sweep": file.name, "seeds": file.seeds} | {
        CELLS: {c.name: {"base": shown(c.base), "overrides": list(c.overrides)} for c in cells}
    }
    text = yaml.safe_dump(said, sort_keys=False, allow_unicode=True)
    if not resume:
        return RunDirectory.create(out, file.name, digest, text)
    if out is None:
        raise UserError("expected --out DIR with --resume, found none; name the sweep's directory to go on with")
    return RunDirectory.resume(out, digest, text)


def run_sweep(file: SweepFile, cells: list[Cell], root: RunDirectory, progress: Progress, execute: Execute) -> list:
    """Runs the cells that have no report yet, and writes `sweep.json` and `sweep.html` after each.

    Args:
      file: The sweep.
      cells: All of its cells.
      root: Its directory.
      progress: Told which cell is under way.
      execute: Where cells run.

    Returns:
      The outcomes of all cells, in their order.
    """
    ended = {cell.name: Outcome(cell.name, "done") for cell in cells if is_done(cell, root)}
    for name in _write(
        file, cells, root, ended
    ):  # a report that was changed is made again out of the policies' records
        progress.note(f"cell {name}: its report was changed and is made again")
        del ended[name]
    left = [cell for cell in cells if cell.name not in ended]
    if ended:
        progress.note(f"{len(ended)} of {len(cells)} cells are done already")
    with closing(execute(left)) as outcomes:  # a stop that is met here must end what runs elsewhere, too
        for outcome in outcomes:
            ended[outcome.name] = outcome
            if outcome.trace is not None:
                root.write_text(f"{ERRORS}/{outcome.name}.txt", outcome.trace)
            _write(file, cells, root, ended)
            how = "done" if outcome.error is None else f"failed: {outcome.error}"
            progress.note(f"cell {outcome.name} ({len(ended)} of {len(cells)}): {how}")
    return [ended[cell.name] for cell in cells]


def is_done(cell: Cell, root: RunDirectory) -> bool:
    """Whether a cell has its report and its page."""
    folder = folder_of(cell, root.path)
    if not all((folder / name).is_file() for name in ("report.json", "report.html")):
        return False
    try:
        report = read_json(folder / "report.json")
    except UserError:  # damaged: it is made again out of the policies' records
        return False
    return isinstance(report, dict) and report.get("config_hash") == config_hash(cell.config)


def _write(file: SweepFile, cells: list[Cell], root: RunDirectory, ended: dict[str, Outcome]) -> list[str]:
    """Writes `sweep.json` and `sweep.html`; returns the cells that are done, but for a report that cannot be read."""
    rows = []
    for cell in cells:
        outcome = ended.get(cell.name)
        folder = folder_of(cell, root.path)
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
    summary = summarise(file, rows)
    root.write_json(SUMMARY, summary)
    with root.telling():
        render_sweep(root.path)
    failed = [cell["name"] for cell in summary["cells"] if cell["status"] == "failed"]
    return [name for name in failed if name in ended and ended[name].status == "done"]
