"""Live progress: a bar in a terminal, plain lines anywhere else."""

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

LINE_EVERY = 10.0  # seconds between plain lines of one stage: a log stays readable, and silence stays short


@contextlib.contextmanager
def watching(console: Console) -> Iterator["TerminalProgress | PlainProgress"]:
    """Gives the progress display that fits a console (a terminal or not) for the length of the block."""
    if not console.is_terminal:
        yield PlainProgress(console)
        return
    bar = Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}", style="dim", markup=False),
        console=console,
    )
    with bar:
        progress = TerminalProgress(bar)
        yield progress
        progress.finish()


class TerminalProgress:
    """A line per stage with count, rate and time left."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task: int | None = None

    def stage(self, name: str, total: int | None = None, unit: str = "policies") -> None:
        """Begins a stage and marks the one before as done."""
        self.finish()
        self._task = self._bar.add_task(name, total=total, unit=unit if total else "", detail="")

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Counts units as done."""
        if self._task is not None:
            self._bar.update(self._task, advance=count, detail=detail)  # type: ignore[arg-type]

    def note(self, text: str) -> None:
        """Prints a line above the bars."""
        self._bar.console.print(text, markup=False, highlight=False)

    def finish(self) -> None:
        """Marks the running stage as done."""
        if self._task is not None:
            task = self._bar.tasks[self._bar.task_ids.index(self._task)]  # type: ignore[arg-type]
            done = task.completed or 1
            self._bar.update(self._task, total=task.total or done, completed=task.total or done)  # type: ignore[arg-type]
            self._task = None


class PlainProgress:
    """Lines without control characters, at most one every ten seconds per stage and one at its end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._name = self._unit = ""
        self._total: int | None = None
        self._done = 0
        self._begun = self._last = 0.0

    def stage(self, name: str, total: int | None = None, unit: str = "policies") -> None:
        """Announces a stage."""
        self._name, self._total, self._unit, self._done = name, total, unit, 0
        self._begun = self._last = time.monotonic()
        self.note(f"{name}: 0 of {total} {unit}" if total else name)

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Counts units as done, and says so when the last line is old or the stage is complete."""
        self._done += count
        now = time.monotonic()
        if now - self._last < LINE_EVERY and self._done != self._total:
            return
        self._last = now
        seconds = now - self._begun
        left = ""
        if self._total and 0 < self._done < self._total:
            left = f", about {(self._total - self._done) * seconds / self._done:.0f} s left"
        of = f" of {self._total}" if self._total else ""
        self.note(
            f"{self._name}: {self._done}{of} {self._unit} in {seconds:.0f} s{left}{f'; {detail}' if detail else ''}"
        )

    def note(self, text: str) -> None:
        """Prints a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
