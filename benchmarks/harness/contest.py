"""One benchmark: ours and its peers checked against each other, then timed in turn, then recorded."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.agreement import Agreement, Answers
from harness.command import Options
from harness.record import environment, note, result
from harness.timing import interleave

OURS = "canaryjax"


class Contender(Protocol):
    """One side of a benchmark, its model loaded."""

    def answers(self) -> Answers:
        """What it computes on inputs that both sides are given."""

    def seconds(self) -> float:
        """Does the work once and says how long it took."""


@dataclass(frozen=True)
class Peer:
    """A stack to compare with.

    Attributes:
      modules: What must be importable for it.
      open: Loads it.
      python: The Python that must exist for it, where it has one of its own.
    """

    modules: tuple[str, ...]
    open: Callable[[], Contender]
    python: Path | None = None

    def missing(self) -> list[str]:
        """What is not installed."""
        absent = [name for name in self.modules if not _importable(name)]
        return absent if self.python is None or self.python.is_file() else [*absent, "a Python of its own"]


def _importable(name: str) -> bool:
    """Whether a module can be found; asking for a part of a package imports the package, which may not be there."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def contest(
    name: str,
    options: Options,
    shape: Mapping[str, Any],
    ours: Contender,
    peers: Mapping[str, Peer],
    detail: Callable[[], Mapping[str, Any]] = dict,
) -> list[dict[str, Any]]:
    """Runs a benchmark: one record a peer that was asked for, or one of our side alone.

    Args:
      name: Of the benchmark.
      options: What was asked for.
      shape: Sizes by name.
      ours: Our side.
      peers: All it can be compared with.
      detail: Measures what else is stated about our side, after the contest.
    """
    opened, skipped = _open(options, peers)
    own = ours.answers() if opened else {}
    agreements = {peer: Agreement(own, side.answers()) for peer, side in opened.items()}
    for peer, agreement in agreements.items():
        if not agreement.holds:
            note(f"ours and {peer} do not agree, so no ratio is given: {agreement.record()['checks']}")
    times = interleave({OURS: ours.seconds} | {peer: side.seconds for peer, side in opened.items()}, options.repeats)
    surroundings, found = environment(), detail()
    return [
        result(
            name,
            shape,
            surroundings,
            times[OURS],
            found,
            peer=peer,
            theirs=times.get(peer, []),
            agreement=agreements.get(peer),
            skipped=skipped.get(peer),
        )
        for peer in options.against or ("",)
    ]


def _open(options: Options, peers: Mapping[str, Peer]) -> tuple[dict[str, Contender], dict[str, str]]:
    opened: dict[str, Contender] = {}
    skipped: dict[str, str] = {}
    for name in options.against:
        missing = peers[name].missing()
        if missing:
            skipped[name] = f"not installed: {', '.join(missing)}"
            note(f"{name} is skipped, {skipped[name]}; benchmarks/README.md says how to install it")
        else:
            opened[name] = peers[name].open()
    return opened, skipped
