"""What a long job tells whoever is watching."""

from typing import Protocol


class Progress(Protocol):
    """What a long job tells whoever is watching; the command line draws it, a test may leave it silent."""

    def stage(self, name: str, total: int | None = None, unit: str = "policies") -> None:
        """Begins a stage of `total` units, and ends the one before."""

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Counts units of the stage as done; `detail` is a short text such as the last reward."""

    def note(self, text: str) -> None:
        """Says something once, such as a warning that is also in the report."""


class Silence:
    """A `Progress` that says nothing."""

    def stage(self, name: str, total: int | None = None, unit: str = "policies") -> None:
        """Ignores it."""

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Ignores it."""

    def note(self, text: str) -> None:
        """Ignores it."""
