"""The command line that all benchmarks share, and what it sets before any array is made."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from canaryjax.cli.startup import prepare
from canaryjax.cli.stop import Stopped, stoppable
from canaryjax.errors import UserError
from harness.shape import DEFAULT, TINY, Shape

SIZES = {  # of a Shape, as `--help` says them
    "context": "tokens of a prompt",
    "completion": "tokens of a completion",
    "group": "completions of a prompt",
    "width": "width of the model",
    "layers": "its layers",
    "heads": "its query heads",
    "kv_heads": "its key and value heads",
    "head": "size of one head",
    "ff": "width of its feed-forward layers",
    "vocab": "entries of its vocabulary",
    "rank": "rank of the LoRA adapter",
}
WITHOUT_ADAPTER = tuple(name for name in SIZES if name != "rank")


class Parser(argparse.ArgumentParser):
    """A command line whose mistakes are `UserError`s, so that `run_script` can say them in one line."""

    def error(self, message: str) -> NoReturn:
        """Raises what argparse would have printed under its usage."""
        raise UserError(f"expected words as `{self.prog} --help` lists them; found: {message}; correct them")


@dataclass(frozen=True)
class Options:
    """What a benchmark was asked for.

    Attributes:
      against: Peers to time in the same run, in order.
      json: Where to write the results besides printing them.
      repeats: Timed runs of each side.
      tiny: Sizes that say nothing about speed, to see whether everything runs.
      shape: Sizes.
      changed: Names of sizes that were given.
      model: Which one, of a benchmark that has a choice of them.
    """

    against: tuple[str, ...]
    json: Path | None
    repeats: int
    tiny: bool
    shape: Shape
    changed: tuple[str, ...]
    model: str | None = None


def parse(
    description: str | None,
    peers: Sequence[str],
    arguments: Sequence[str] | None,
    defaults: Shape = DEFAULT,
    sizes: Sequence[str] = tuple(SIZES),
    models: Sequence[str] = (),
    usual: Mapping[str, str] | None = None,
    timed: bool = True,
) -> Options:
    """Reads the command line, and makes sure that the results can be written.

    Args:
      description: What `--help` says.
      peers: Names that `--against` takes.
      arguments: The words; None takes the process's own.
      defaults: Sizes where neither `--tiny` nor an option says otherwise.
      sizes: Names of those that have an option.
      models: Names of which the first word must be one, where the benchmark has a choice.
      usual: What `--help` says of a size's default where it is not one number.
      timed: Whether something is timed so often as `--repeats` says.

    Raises:
      UserError: A word is none of these, or the file for the results cannot be written.
    """
    parser = Parser(description=description)
    if models:
        parser.add_argument("model", metavar="MODEL", choices=models, help=f"among {', '.join(models)}")
    parser.set_defaults(against="", repeats=None)
    if peers:
        peer_help = f"peers to time in the same run, among {', '.join(peers)}; ours alone by default"
        parser.add_argument("--against", metavar="PEER[,PEER]", help=peer_help)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too, one object a line")
    if timed:
        repeats_help = "timed runs of each side, of which the median is taken; 3 by default, 1 with --tiny"
        parser.add_argument("--repeats", type=_count, metavar="N", help=repeats_help)
    parser.add_argument(
        "--threads", type=_count, metavar="N", help="cores to use; all that this process may use by default"
    )
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="see in a minute whether everything runs, at sizes that say nothing of speed",
    )
    for size in sizes:
        default = (usual or {}).get(size, getattr(defaults, size))
        parser.add_argument(
            f"--{size.replace('_', '-')}", type=_count, metavar="N", help=f"{SIZES[size]}; {default} by default"
        )
    given = parser.parse_args(arguments)
    against = tuple(name for name in given.against.split(",") if name)
    unknown = sorted(set(against) - set(peers))
    if unknown:
        raise UserError(f"expected peers among {list(peers)}, found {unknown}; correct --against")
    if given.threads is not None:
        _use_threads(given.threads)
    if given.json is not None:
        check_writable(given.json)
    prepare()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this machine; no trainer needs to ask
    changed = {size: getattr(given, size) for size in sizes if getattr(given, size) is not None}
    return Options(
        against=against,
        json=given.json,
        repeats=given.repeats or (1 if given.tiny else 3),
        tiny=given.tiny,
        shape=dataclasses.replace(TINY if given.tiny else defaults, **changed),
        changed=tuple(changed),
        model=given.model if models else None,
    )


def in_turn(sizes: Sequence[int]) -> str:
    """Several sizes, as `--help` names them.

    >>> in_turn([1, 8])
    '1, 8 in turn'
    """
    return f"{', '.join(map(str, sizes))} in turn"


def check_writable(file: Path) -> None:
    """Refuses a file that results could not be written to, for use before anything is timed; what it holds stays.

    Raises:
      UserError: Its folder is missing, it is a folder itself, or the system does not open it.
    """
    try:
        if not file.absolute().parent.is_dir():
            raise UserError(f"expected a folder for {file}, found none; make it first")
        if file.is_dir():
            raise UserError(f"expected a file for the results; found a folder: {file}; name a file in it")
        file.open("a").close()
    except OSError as error:
        raise UserError(f"expected to write {file}; found: {error.strerror}; give access or name another") from error


def run_script(main: Callable[[], int]) -> None:
    """Runs a benchmark as a command: a user's mistake is one line and status 2, a stop one line and status 1."""
    try:
        with stoppable():
            status = main()
    except UserError as error:
        print(f"canaryjax: error: {' '.join(str(error).split())}", file=sys.stderr)
        status = 2
    except Stopped as stop:
        print(f"canaryjax: stopped by {stop.name}", file=sys.stderr)
        status = 1
    sys.stdout.flush()
    os._exit(status)  # a trainer that is stopped half-way leaves threads that would keep the process


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:  # argparse would name this function instead of saying what it takes
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, found {text}")
    return value


def _use_threads(count: int) -> None:
    """Confines the process to so many cores: XLA and PyTorch then both start as many threads."""
    allowed = sorted(os.sched_getaffinity(0))
    if count > len(allowed):
        raise UserError(f"expected at most the {len(allowed)} cores of this process, found --threads {count}; ask less")
    os.sched_setaffinity(0, allowed[:count])
