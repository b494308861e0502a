"""`canaryjax probes`: one probe audit from a config, or of scores from elsewhere, and its report."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canaryjax.cli.audit import DEVICE, refuse_device, split_words
from canaryjax.cli.printable import all_printable
from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.config.probes import ProbesConfig
    from canaryjax.runlog.directory import RunDirectory

DEFAULT_CONFIG = "probes_quick"
_current: dict[str, Any] = {}  # the run directory and words of the running audit, for the message on Ctrl-C


def probes(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [KEY=VALUE]...",
            help="A YAML file or a shipped config (probes_quick, probes_smollm2, ...), then values to change.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default runs/<name>-<hash>-<n>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would run, without weights, and stop.")] = False,
    device: Annotated[str | None, typer.Option(help=DEVICE)] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A finished run of another model, for the page."),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Weigh per-token log-probs from elsewhere (JSONL) instead of training."),
    ] = None,
) -> None:
    """Plants secrets, tunes models on top, and reports where memorisation probes of them disagree."""
    from canaryjax.config.probes_file import load_probes_config
    from canaryjax.probes.run import open_run
    from canaryjax.report.probes_page import read_beside

    source, overrides = split_words(words or [], DEFAULT_CONFIG)
    # Without a config of its own a file of scores is no quick audit.
    named = ["name=scores"] if scores is not None and source == DEFAULT_CONFIG else []
    config = load_probes_config(source, [*named, *overrides])
    if scores is not None and (plan or resume):
        raise UserError("expected --scores without --plan and --resume, found both; nothing is trained: leave them out")
    refuse_device(device, plan)
    if plan:
        from canaryjax.cli.probes_plan import print_plan

        print_plan(config, device)
        return
    if scores is not None and not scores.is_file():
        raise UserError(f"expected a file of scores, found none at {scores}; check --scores")
    for other in beside or ():
        read_beside(other)  # before anything is trained
    run = open_run(config, out, resume)
    _current.update(run=run.path, words=words or [])
    try:
        _run(config, run, scores, beside or [])
    finally:
        run.discard_unused()  # after a mistake or a stop before anything was trained
        run.close()


def how_to_resume() -> str:
    """What to say after a stop: where the run is and how it goes on; empty before anything was trained."""
    from canaryjax.probes.checkpoint import METRICS

    if "run" not in _current or not (_current["run"] / METRICS).is_file():
        return ""
    run = _current["run"]
    command = shlex.join(["canaryjax", "probes", *_current["words"], "--out", str(run), "--resume"])
    return f"; what was trained and read is kept in {run}; go on with: {command}"


def _run(config: "ProbesConfig", run: "RunDirectory", scores: Path | None, beside: list[Path]) -> None:
    from rich.console import Console

    from canaryjax.cli.progress import watching
    from canaryjax.probes.run import run_audit, weigh_file
    from canaryjax.report.probes_page import write_probes_page
    from canaryjax.report.probes_terminal import probes_summary

    with watching(Console(stderr=True), unit="models") as progress:
        progress.note(f"run directory {run.path}")
        report = run_audit(config, run, progress) if scores is None else weigh_file(scores, config, run)
        progress.stage("report")
        page = write_probes_page(run.path, beside)
    console = Console()
    console.print(probes_summary(all_printable(report)))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False, markup=False)
