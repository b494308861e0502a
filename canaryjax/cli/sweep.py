"""`canaryjax sweep`: many audits from one file, and one page over them."""

import os.path
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.sweep.cells import Cell

_current: dict[str, Any] = {}  # the directory and words of the running sweep, for the message on Ctrl-C


def sweep(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG", help="A sweep file, or a shipped one such as tiny or figure3.", show_default=False
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Values common to all cells.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory; default runs/<name>-<hash>-<n>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Run what is not done of the sweep in --out.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would run, without weights, and stop.")] = False,
) -> None:
    """Runs a grid of audits, each an ordinary run directory, and writes sweep.json and sweep.html over them."""
    from canaryjax.sweep.cells import make_cells
    from canaryjax.sweep.file import read_sweep

    if plan and resume:
        raise UserError("expected --plan without --resume, found both; a plan runs nothing: leave one of them out")
    file = read_sweep(source, overrides or [])
    cells = make_cells(file)
    if plan:
        from canaryjax.cli.sweep_plan import print_sweep_plan

        print_sweep_plan(file.name, cells)
        return

    from rich.console import Console

    from canaryjax.cli.progress import watching
    from canaryjax.runlog import disk_is_full
    from canaryjax.sweep.check import check_cells
    from canaryjax.sweep.run import cell_runner, is_done, open_sweep, run_sweep

    root = open_sweep(file, cells, out, resume)
    _current.update(root=root.path, words=[source, *(overrides or [])])
    with watching(Console(stderr=True)) as progress:
        progress.note(f"sweep directory {root.path}, {len(cells)} cells")
        try:
            check_cells([cell for cell in cells if not is_done(cell, root)], progress.note)
            outcomes = run_sweep(file, cells, root, progress, cell_runner(root, progress))
        except UserError as error:
            if not disk_is_full(error.__cause__):
                root.discard_unused()
            raise
    _tell(root.path, cells)
    root.close()
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        listed = "; ".join(f"{outcome.name}: {outcome.error}" for outcome in failed)
        raise UserError(
            f"expected {len(cells)} cells to finish, found {len(failed)} failed ({listed}){_again(root.path)}"
        )


def how_to_resume() -> str:
    """What to say after a stop: where the sweep is and how it goes on; empty before there is one."""
    if "root" not in _current:
        return ""
    root = _current["root"]
    done = len(list(root.glob("cells/*/report.html")))
    return f"; {done} {'cell is' if done == 1 else 'cells are'} done in {root}{_again(root)}"


def _again(root: Path) -> str:
    words = shlex.join([*_command(), *_current["words"], "--out", str(root), "--resume"])
    return f"; go on with: {words}"


def _command() -> list[str]:
    """What starts a sweep from here: the console script is on nobody's path until .venv is activated."""
    return [".venv/bin/canaryjax" if os.path.isfile(".venv/bin/canaryjax") else "canaryjax", "sweep"]


def _tell(folder: Path, cells: list["Cell"]) -> None:
    """Prints the table of the page."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from canaryjax.report.panels import panel_lines
    from canaryjax.report.sweep_page import HEAD, counts_words, sweep_rows
    from canaryjax.runlog import read_json

    found = read_json(folder / "sweep.json")
    table = Table(title=Text(found["name"]), title_justify="left", pad_edge=False, box=None)
    for name in HEAD:
        table.add_column(name)
    for row in sweep_rows(found):
        # Text, not markup: a name or an error such as "[red]" must not colour anything.
        table.add_row(Text(row.name), *(Text("\n".join(lines)) for lines in row.cells))
    console = Console()
    console.print(table)
    console.print(counts_words(found), highlight=False)
    for line in panel_lines(found):
        console.print(line, highlight=False, markup=False)
    console.print(f"Report: {folder / 'sweep.html'}", soft_wrap=True, highlight=False, markup=False)
