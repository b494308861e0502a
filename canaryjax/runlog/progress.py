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

    def note(self, text: str) -> None:
        """Says something once, such as a warning that is also in the report."""


class Silence:
    """A `Progress` that says nothing."""

    def stage(self, name: str, total: int | None = None, done: int = 0, compiling: int = 1) -> None:
        """Ignores it."""

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Ignores it."""

    def note(self, text: str) -> None:
        """Ignores it."""
