"""`canaryjax audit`: one study from a config, and its report."""

import contextlib
import os.path
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.config import AuditConfig
    from canaryjax.runlog import RunDirectory

DEFAULT_CONFIG = "quick"
DEVICE = (
    "Device whose hours --plan estimates: cpu-2core, l4-24gb, a100-40gb, a100-80gb, h100-80gb or h200-141gb; default "
    "cpu-2core below half a billion parameters, else a100-40gb."
)
_current: dict[str, Any] = {}  # the run directory and words of the running audit, for the message on Ctrl-C


def audit(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [KEY=VALUE]...",
            help="A YAML file or a shipped config (quick, embedded/null, ...), then values to change.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default runs/<name>-<hash>-<n>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would run, without weights, and stop.")] = False,
    device: Annotated[str | None, typer.Option(help=DEVICE)] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a jax.profiler trace of a few warm policy steps there.")
    ] = None,
) -> None:
    """Trains compliant and violating policies, scores them, and writes a report on how well they separate."""
    from canaryjax.config import load_config

    source, overrides = split_words(words or [])
    config = load_config(source, overrides)
    if plan and resume:
        raise UserError("expected --plan without --resume, found both; a plan runs nothing: leave one of them out")
    refuse_device(device, plan)
    if profile is not None:
        _check_profile(profile, plan, out)
    if plan:
        from canaryjax.cli.plan import print_plan

        print_plan(config, device)
        return
    run_dir = _open_run(config, out, resume)
    _current.update(run_dir=run_dir.path, words=[*(words or []), *(["--profile", str(profile)] if profile else [])])
    _run(config, run_dir, resume, source, overrides, profile)


def refuse_device(device: str | None, plan: bool) -> None:
    """Raises UserError for a device without a plan, which would change nothing."""
    if device is not None and not plan:
        raise UserError(
            f"expected --device with --plan, found --device {device} alone; it only sets whose hours a plan estimates, "
            "a run takes the devices that JAX finds: add --plan, or leave it out"
        )


def split_words(words: list[str], default: str = DEFAULT_CONFIG) -> tuple[str, list[str]]:
    """Separates the config from the `key=value` items.

    >>> split_words(["canary.rate=0.1"])
    ('quick', ['canary.rate=0.1'])
    """
    # os.path.isfile, unlike Path.is_file, has an answer for a word that is too long to be a path.
    sources = [word for word in words if "=" not in word or os.path.isfile(word)]
    overrides = [word for word in words if word not in sources]
    if len(sources) > 1:
        odd = [word for word in sources if not _is_config(word)]
        if odd:
            raise UserError(
                f"expected one config and items key=value, found {odd[0]!r}; write {odd[0]}=VALUE to set it"
            )
        raise UserError(f"expected one config and items key=value, found {sources}; give one config")
    return (sources[0] if sources else default), overrides


def _is_config(word: str) -> bool:
    from canaryjax.config import find_config

    with contextlib.suppress(UserError):
        return bool(find_config(word))
    return False


def how_to_resume() -> str:
    """What to say after a stop: where the run is and how it goes on; empty before there is one."""
    if "run_dir" not in _current:
        return ""
    run_dir = _current["run_dir"]
    words = shlex.join([*_command(), *_current["words"], "--out", str(run_dir), "--resume"])
    finished = len(list(run_dir.glob("trials/*.json")))
    kept = f"the {finished} finished {'policy is' if finished == 1 else 'policies are'} kept in {run_dir}"
    return f"; {kept if finished else f'no policy was finished in {run_dir}'}; go on with: {words}"


def _command() -> list[str]:
    """What starts an audit from here: the console script is on nobody's path until .venv is activated."""
    if os.path.isfile("bin/audit"):
        return ["bin/audit"]
    script = Path(__file__).resolve().parents[2] / "bin" / "audit"
    return [str(script)] if script.is_file() else ["canaryjax", "audit"]


def _open_run(config: "AuditConfig", out: Path | None, resume: bool) -> "RunDirectory":
    from canaryjax.config import config_hash
    from canaryjax.runlog import RunDirectory

    digest, text = config_hash(config), config.to_yaml()
    if not resume:
        return RunDirectory.create(out, config.name, digest, text)
    if out is None:
        raise UserError("expected --out DIR with --resume, found none; name the run directory to go on with")
    return RunDirectory.resume(out, digest, text)


def _check_profile(folder: Path, plan: bool, out: Path | None) -> None:
    """Raises UserError for a folder that no trace can be written to: better now than at the third step."""
    if plan:
        raise UserError("expected --profile without --plan, found both; a plan runs no step: leave one of them out")
    try:
        if out is not None and folder.resolve().is_relative_to(out.resolve()):
            raise UserError(
                f"expected a folder for --profile outside of the run directory {out}, found {folder}; a run keeps its "
                "own files there: give another"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:  # before 3.13 a loop of links is a RuntimeError
        why = getattr(error, "strerror", None) or error
        raise UserError(f"expected a folder for --profile, found {folder}: {why}; give another") from error


def _run(
    config: "AuditConfig",
    run_dir: "RunDirectory",
    resume: bool,
    source: str,
    overrides: list[str],
    profile: Path | None,
) -> None:
    from rich.console import Console

    from canaryjax.cli.progress import watching
    from canaryjax.report import terminal_summary
    from canaryjax.rl.step_profile import WARM, StepProfile
    from canaryjax.sweep.single import run_to_report

    console = Console()
    # The name of a config, never its folder: a report is for others to read.
    name = Path(source).name if os.path.isfile(source) else source
    command = shlex.join(["bin/audit", name, *overrides])
    with watching(Console(stderr=True)) as progress:
        progress.note(f"run directory {run_dir.path}")
        tracing = None if profile is None else StepProfile(profile, progress.note)
        page = run_to_report(config, run_dir, resume, progress, command, tracing)
        if tracing is not None and not tracing.written:
            progress.note(f"no profile was written: no policy had more than {WARM} steps left to train")
    console.print(terminal_summary(run_dir.read_json("report.json")))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False, markup=False)
    run_dir.close()
