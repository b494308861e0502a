"""The console script: one command per file, and one way to end for every mistake."""

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from canaryjax.cli import audit, detector, detector_probe, generate, keys, probes, score, serve, startup, sweep
from canaryjax.cli.printable import printable
from canaryjax.cli.stop import Stopped, stoppable
from canaryjax.errors import UserError

EXIT_DONE, EXIT_OTHER, EXIT_USER = 0, 1, 2
# What the user's disk or permissions caused, wherever it is met; any other system error is a fault of ours.
STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS}
LONGEST, HEAD = 1800, 1200  # characters of a message, and those before what is left out

app = typer.Typer(
    name="canaryjax",
    help="Audits whether RL fine-tuning used private documents, by behavioural canaries.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("audit")(audit.audit)
app.command("sweep")(sweep.sweep)
app.command("probes")(probes.probes)
app.command("score")(score.score)
app.command("generate")(generate.generate)
app.command("serve")(serve.serve)
app.command("keys")(keys.keys)
app.add_typer(detector.app, name="detector")


@app.callback()
def _top() -> None:
    """Keeps `canaryjax audit` a command with a name, whatever their number."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0 done, 2 the user's mistake (one line, no traceback), 1 anything else.

    Args:
      argv: Words after the program's name; None takes the process's own.
    """
    try:
        with stoppable(_how_to_resume):
            startup.prepare()
            status = _run(sys.argv[1:] if argv is None else list(argv))
            sys.stdout.flush()
    except Stopped as stop:
        _say(f"stopped by {stop.name}{_how_to_resume()}", EXIT_OTHER, prefix="canaryjax:")
        _leave(EXIT_OTHER)
    except BrokenPipeError:  # the reader of our output left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = EXIT_OTHER
    except UserError as error:
        status = _say(cut(str(error)), EXIT_USER)
    except OSError as error:
        what = error.filename or "the files of this command"
        if error.errno == errno.ENAMETOOLONG:
            text = f"expected a path that the file system takes, found one that is too long: {what}; shorten it"
        elif error.errno in STORAGE:
            text = f"expected to read and write {what}, found: {error.strerror}; make room or give access"
            text += _how_to_resume()
        else:
            raise
        status = _say(text, EXIT_USER)
    except MemoryError:
        status = _say(
            "expected enough memory, found too little; do less at once (an audit's study.policies_per_chunk, a batch "
            "size), or free some",
            EXIT_OTHER,
        )
    sys.exit(status)


def cut(text: str) -> str:
    """A message without its middle where a file's own names and values make it long; the end says what to do.

    >>> cut("a" * 3000).count("a")
    1800
    """
    return text if len(text) <= LONGEST else f"{text[:HEAD]} ... {text[HEAD - LONGEST :]}"


def _how_to_resume() -> str:
    """What to say after a stop of the command that ran; the others have nothing to say."""
    return audit.how_to_resume() or sweep.how_to_resume() or detector_probe.how_to_resume() or probes.how_to_resume()


def _leave(status: int) -> None:
    """Ends the process without taking the interpreter down: under a compiled step that still runs, that can crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _run(argv: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        result: Any = command.main(args=argv, prog_name="canaryjax", standalone_mode=False)
    except Exception as error:
        # The click that raised it may be a copy inside typer: known by what it can do, not by its class.
        if not hasattr(error, "format_message"):
            raise
        name = type(error).__name__
        if name == "NoArgsIsHelpError":
            print(error.format_message())
            return EXIT_USER
        context = getattr(error, "ctx", None)  # of the command whose word or flag it is
        return _say(
            f"{error.format_message()} (see {context.command_path if context else 'canaryjax'} --help)", EXIT_USER
        )
    return result if isinstance(result, int) else EXIT_DONE


def _say(text: str, status: int, prefix: str = "canaryjax: error:") -> int:
    print(prefix, printable(" ".join(text.split())), file=sys.stderr)
    return status
