"""`canaryjax detector probe`: one run against one model, from a config to its report."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canaryjax.cli.printable import printable
from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.config.detector import DetectorConfig
    from canaryjax.detector.plan import Plan
    from canaryjax.detector.store import Begun
    from canaryjax.detector.targets import Site
    from canaryjax.runlog.directory import RunDirectory

UNKNOWN_LABEL = ""  # of the model, while only a count is wanted
_current: dict[str, Any] = {}  # the run directory and words of the running command, for the message on Ctrl-C


def probe(
    words: Annotated[
        list[str],
        typer.Argument(metavar="CONFIG [KEY=VALUE]...", help="A YAML file, then values to change.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option(help="Run directory; default runs/<name>-<hash>-<n>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be asked and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before anything is sent.")] = False,
) -> None:
    """Asks a model, with controls, whether it learned a site's sentences, and reports what it showed."""
    from canaryjax.config.detector_file import load_detector_config
    from canaryjax.detector.address import read_address
    from canaryjax.detector.run import as_begun, open_run
    from canaryjax.detector.store import STORE, peek
    from canaryjax.detector.targets import make_targets

    source, *overrides = words
    config = load_detector_config(source, overrides)
    if resume and out is None:
        raise UserError("expected --out DIR with --resume, found none; name the run directory to go on with")
    if config.model.base_url is not None:
        read_address(config.model.base_url)  # before anything is made of it, and in a plan too
    site = make_targets(config)
    begun = peek(out / STORE) if resume and out is not None else None
    if begun is not None and begun.targets:
        site = as_begun(site, begun.targets)
    _show_plan(config, site, begun)
    if plan or not (yes or _agreed(config)):
        return
    run = open_run(config, out, resume)
    _current.update(run=run.path, words=words)
    try:
        _run(config, site, run, begun)
    finally:
        run.discard_unused()  # after a mistake or a stop before the first question; else it holds something
        run.close()


def how_to_resume() -> str:
    """What to say after a stop: where the run is and how it goes on; empty before there is one."""
    from canaryjax.detector.store import STORE, peek

    if "run" not in _current or not (_current["run"] / STORE).is_file():
        return ""
    run, words = _current["run"], _current["words"]
    command = shlex.join(["canaryjax", "detector", "probe", *words, "--out", str(run), "--resume", "--yes"])
    try:
        kept = f"{peek(run / STORE).answers} answers are kept in {run}"
    except UserError:  # under the pen of the thread that is being stopped
        kept = f"all answers so far are kept in {run}"
    return f"; {kept}; go on with: {command}"


def _show_plan(config: "DetectorConfig", site: "Site", begun: "Begun | None") -> None:
    """Prints what is about to be asked; raises UserError where it would pass a limit of the config (SD-22)."""
    from rich.console import Console
    from rich.table import Table

    from canaryjax.detector.call import make_calls
    from canaryjax.detector.plan import check_limits, plan_run

    calls = make_calls(config, site, UNKNOWN_LABEL)
    plan = plan_run(config, calls) if begun is None else plan_run(config, calls, begun.answers, begun.spent)
    table = Table(title=f"Plan of {config.name}", show_header=False, title_justify="left", pad_edge=False)
    for label, value in plan_rows(plan, config, site):
        table.add_row(label, printable(value))
    Console().print(table, highlight=False, markup=False)
    check_limits(plan, config)


def plan_rows(plan: "Plan", config: "DetectorConfig", site: "Site") -> list[tuple[str, str]]:
    """The plan in words."""
    from canaryjax.runlog.progress import duration

    asked = {name: sum(target.population == name for target in site.targets) for name in ("canary", "negative")}
    positives = len(site.targets) - sum(asked.values())
    rows = [
        ("model", f"{config.model.name or Path(config.model.path or '').name} ({config.model.backend})"),
        ("canaries", f"{asked['canary']:,}"),
        ("never-published sentences", f"{asked['negative']:,}"),
        ("famous facts", f"{positives:,}"),
        ("calls", f"{plan.calls:,}" + (f" (and {plan.answered:,} answered already)" if plan.answered else "")),
    ]
    if plan.scored:
        rows.append(("whole sentences", f"{plan.scored:,}, for log-probs, if the model gives any (model.logprobs)"))
    rows += [
        ("time", "not known" if plan.seconds is None else f"about {duration(plan.seconds)}"),
        ("tokens", f"about {plan.tokens_in:,} read, at most {plan.tokens_out:,} written"),
        ("cost", "not known (model.price_in, model.price_out)" if plan.cost is None else f"up to {plan.cost:.2f}"),
    ]
    return rows[:-1] if config.model.backend == "local" and plan.cost is None else rows


def _agreed(config: "DetectorConfig") -> bool:
    """Whether the user wants the calls sent; asked only where they leave the process.

    Raises:
      UserError: Nobody is there to ask: what is sent to an API may cost money and tells it the questions.
    """
    if config.model.backend == "local":
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise UserError(
            "expected --yes, or a terminal to ask at, before calls are sent to an API, found neither; look at --plan, "
            "then add --yes"
        )
    try:
        agreed = input("Send these calls? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        agreed = False
    if not agreed:
        print("Nothing was sent.")
    return agreed


def _run(config: "DetectorConfig", site: "Site", run: "RunDirectory", begun: "Begun | None") -> None:
    from rich.console import Console

    from canaryjax.cli.detector_report import show
    from canaryjax.cli.progress import watching
    from canaryjax.detector.backend import open_backend
    from canaryjax.detector.measure import find_measures
    from canaryjax.detector.preflight import examine
    from canaryjax.detector.run import NothingAnswered, run_probes

    spent = 0.0 if begun is None else begun.spent
    try:
        with watching(Console(stderr=True), unit="calls") as progress:
            progress.note(f"run directory {run.path}")
            progress.stage("preflight")
            backend = open_backend(config, spent)
            capabilities = examine(backend)
            measures = find_measures(backend, capabilities)
            run_probes(config, site, backend, capabilities.plain(), measures, run, progress)
    except NothingAnswered as error:
        print(printable(f"canaryjax: error: {error}{how_to_resume()}"), file=sys.stderr)
        raise typer.Exit(1) from None
    show(run.path)
