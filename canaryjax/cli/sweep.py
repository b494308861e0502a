"""`canaryjax sweep`: many audits from one file, and one page over them."""

import contextlib
import itertools
import os.path
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canaryjax.cli.audit import DEVICE, refuse_device
from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.runlog import Progress
    from canaryjax.sweep.cells import Cell
    from canaryjax.sweep.execute import Execute
    from canaryjax.sweep.file import SweepFile

_current: dict[str, Any] = {}  # the directory and words of the running sweep, for the message on Ctrl-C
WORKER = (sys.executable, "-P", "-m", "canaryjax.cli.worker")  # what runs cells in processes of their own


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
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Run so many cells at once, each in a process of its own; default: in this one."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run cells on a Ray cluster: auto for the one that runs here, HOST:PORT of another, or local.",
        ),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would run, without weights, and stop.")] = False,
    device: Annotated[str | None, typer.Option(help=DEVICE)] = None,
) -> None:
    """Runs a grid of audits, each an ordinary run directory, and writes sweep.json and sweep.html over them."""
    from canaryjax.sweep.cells import make_cells
    from canaryjax.sweep.file import read_sweep

    if plan and (resume or workers is not None or ray is not None):
        flag = "--resume" if resume else "--workers" if workers is not None else "--ray"
        raise UserError(f"expected --plan without {flag}, found both; a plan runs nothing: leave one of them out")
    refuse_device(device, plan)
    file = read_sweep(source, overrides or [])
    cells = make_cells(file)
    if plan:
        from canaryjax.cli.sweep_plan import print_sweep_plan

        print_sweep_plan(file.name, cells, device)
        return
    _run(file, cells, out, resume, workers, ray, [source, *(overrides or [])])


def _run(
    file: "SweepFile",
    cells: list["Cell"],
    out: Path | None,
    resume: bool,
    workers: int | None,
    ray: str | None,
    words: list[str],
) -> None:
    from rich.console import Console

    from canaryjax.cli.progress import watching
    from canaryjax.runlog import disk_is_full
    from canaryjax.sweep.check import check_cells
    from canaryjax.sweep.cluster import ClusterLost
    from canaryjax.sweep.run import is_done, open_sweep, run_sweep

    root = open_sweep(file, cells, out, resume)
    where = [*(["--workers", str(workers)] if workers else []), *(["--ray", ray] if ray else [])]
    _current.update(root=root.path, words=words, where=where)
    with watching(Console(stderr=True)) as progress:
        progress.note(f"sweep directory {root.path}, {len(cells)} cells")
        left = [cell for cell in cells if not is_done(cell, root)]
        try:
            with _executor(root.path, left, workers, ray, progress) as execute:
                check_cells(left, progress.note)
                outcomes = run_sweep(file, cells, root, progress, execute)
        except ClusterLost as error:
            _current["where"] = []  # in this process, which is there
            raise UserError(f"{error}{how_to_resume()} (in this process, or add --ray of another cluster)") from error
        except UserError as error:
            if not disk_is_full(error.__cause__):
                root.discard_unused()
            raise
    _tell(root.path, cells)
    root.close()
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        listed = "; ".join(f"{outcome.name}: {outcome.error}" for outcome in failed)
        raise UserError(f"expected {len(cells)} cells to finish, found {len(failed)} failed ({listed}){_again()}")


@contextlib.contextmanager
def _executor(
    root: Path, cells: list["Cell"], workers: int | None, ray: str | None, progress: "Progress"
) -> Iterator["Execute"]:
    """Where the cells that are left will run."""
    from canaryjax.sweep.execute import in_process

    if not cells or (workers is None and ray is None):
        yield in_process(root, progress)
        return
    import jax

    jax.config.update("jax_platforms", "cpu")  # this process computes nothing: the devices are for the workers
    if ray is not None:
        from canaryjax.cli.worker import RayCells, versions
        from canaryjax.sweep.actors import on_cluster
        from canaryjax.sweep.cluster import joined

        with joined(ray, workers) as cluster:
            yield on_cluster(root, progress, cluster, RayCells, versions())
        return
    from canaryjax.sweep.processes import in_processes
    from canaryjax.sweep.share import share_machine

    assert workers is not None
    yield in_processes(root, progress, share_machine(min(workers, len(cells)), cells), WORKER)


def how_to_resume() -> str:
    """What to say after a stop: where the sweep is and how it goes on; empty before there is one."""
    if "root" not in _current:
        return ""
    root = _current["root"]
    done = len(list(root.glob("cells/*/report.html")))
    return f"; {done} {'cell is' if done == 1 else 'cells are'} done in {root}{_again()}"


def _again() -> str:
    words = shlex.join(
        [*_command(), *_current["words"], "--out", str(_current["root"]), *_current["where"], "--resume"]
    )
    return f"; go on with: {words}"


def _command() -> list[str]:
    """What starts a sweep from here: the console script is on nobody's path until .venv is activated."""
    return [".venv/bin/canaryjax" if os.path.isfile(".venv/bin/canaryjax") else "canaryjax", "sweep"]


def _tell(folder: Path, cells: list["Cell"]) -> None:
    """Prints the table of the page, less what a terminal of 80 columns has no room for."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from canaryjax.report.panels import panel_lines
    from canaryjax.report.sweep_page import HEAD, counts_words, sweep_rows
    from canaryjax.runlog import read_json

    found = read_json(folder / "sweep.json")
    table = Table(title=Text(found["name"]), title_justify="left", pad_edge=False, box=None)
    shown = [name not in ("reward-model bias", "exact match") for name in HEAD]
    for name in itertools.compress(HEAD, shown):
        table.add_column(name, overflow="fold")  # cut short, cells of long names could not be told apart
    for row in sweep_rows(found):
        # Text, not markup: a name or an error such as "[red]" must not colour anything.
        texts = (Text(row.name), *(Text("\n".join(lines)) for lines in row.cells))
        table.add_row(*itertools.compress(texts, shown))
    console = Console()
    console.print(table)
    console.print(counts_words(found), highlight=False)
    for line in panel_lines(found):
        console.print(line, highlight=False, markup=False)
    console.print(f"Report: {folder / 'sweep.html'}", soft_wrap=True, highlight=False, markup=False)
