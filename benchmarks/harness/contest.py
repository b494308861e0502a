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
LONGEST = 300  # characters of an error's message in a record


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

    def obstacle(self) -> str | None:
        """Why it cannot be opened, where something is not installed or is broken."""
        absent = []
        for name in self.modules:
            try:  # asking for a part of a package imports the package
                if importlib.util.find_spec(name) is None:
                    absent.append(name)
            except ModuleNotFoundError as error:
                own = error.name is None or name.startswith(error.name)
                absent.append(name if own else f"{error.name}, which {name} needs")
            except Exception as error:  # whatever a broken package raises, the others can still be timed
                return f"does not load: {name}: {_said(error)}"
        if self.python is not None and not self.python.is_file():
            absent.append("a Python of its own")
        return f"not installed: {', '.join(absent)}" if absent else None


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
    opened, answers, skipped = _open(options, peers)
    own = ours.answers() if opened else {}
    agreements = {peer: Agreement(own, theirs) for peer, theirs in answers.items()}
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


def _open(
    options: Options, peers: Mapping[str, Peer]
) -> tuple[dict[str, Contender], dict[str, Answers], dict[str, str]]:
    """The peers that were asked for and work, with their answers, and why each of the others is skipped."""
    opened: dict[str, Contender] = {}
    answers: dict[str, Answers] = {}
    skipped: dict[str, str] = {}
    for name in options.against:
        why = peers[name].obstacle()
        if why is None:
            step = "load"
            try:
                side = peers[name].open()
                step = "answer"  # a peer in a process of its own may load only now
                answers[name] = side.answers()
                opened[name] = side
                continue
            except Exception as error:  # ours and the other peers are still worth their time
                why = f"does not {step}: {_said(error)}"
        skipped[name] = why
        note(f"{name} is skipped, {why}; benchmarks/README.md says how to install it")
    return opened, answers, skipped


def _said(error: Exception) -> str:
    """An error in one line: its kind, and of a long message the end, where a traceback has its cause."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= LONGEST else '... ' + text[-LONGEST:]}"
