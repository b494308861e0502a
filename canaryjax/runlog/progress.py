"""What a long job tells whoever is watching."""

from typing import Protocol


class Progress(Protocol):
    """What a long job tells whoever is watching; the command line draws it, a test may leave it silent."""

    def stage(self, name: str, total: int | None = None, done: int = 0, compiling: int = 1) -> None:
        """Begins a stage, and ends the one before.

        Args:
          name: What is done.
          total: How many policies it is; None where there is nothing to count.
          done: Of them by an earlier call: they took none of this call's time.
          compiling: How many calls of `advance` end work that waited for compilation first; a rate with them in it
            tells nothing about the time left.
        """

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Counts policies of the stage as done; `detail` is a short text such as the last reward."""

    def pace(self, text: str) -> None:
        """Says where the work in hand is; called often, so most of it may be passed over."""

    def note(self, text: str) -> None:
        """Says something once, such as a warning that is also in the report."""


def duration(seconds: float) -> str:
    """A time as somebody who waits would say it.

    >>> [duration(x) for x in (119.4, 120.0, 7199.0, 7260.0, 200_000.0)]
    ['119 s', '2 min', '120 min', '2 h 1 min', '55 h 33 min']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if seconds < 7200 else f"{minutes // 60} h {minutes % 60} min"


class Silence:
    """A `Progress` that says nothing."""

    def stage(self, name: str, total: int | None = None, done: int = 0, compiling: int = 1) -> None:
        """Ignores it."""

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Ignores it."""

    def pace(self, text: str) -> None:
        """Ignores it."""

    def note(self, text: str) -> None:
        """Ignores it."""
