"""Live progress: a bar in a terminal, plain lines anywhere else."""

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from canaryjax.runlog.progress import duration

LINE_EVERY = 10.0  # seconds between plain lines of one stage: a log stays readable, and silence stays short
PACE_EVERY = 60.0  # the same, for lines on what a policy is at


@contextlib.contextmanager
def watching(console: Console, unit: str = "policies") -> Iterator["TerminalProgress | PlainProgress"]:
    """Gives the progress display that fits a console (a terminal or not) for the length of the block.

    Args:
      console: Where it is shown.
      unit: What is counted, in the plural.
    """
    if not console.is_terminal:
        yield PlainProgress(console, unit)
        return
    bar = Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        _Speed(),
        TextColumn("{task.fields[detail]}", style="dim", markup=False),
        console=console,
    )
    with bar:
        progress = TerminalProgress(bar, unit)
        yield progress
        progress.finish()


class Rate:
    """How fast a stage goes and how long its rest takes, by what was done once everything was compiled.

    Args:
      total: Policies of the stage.
      done: Of an earlier call.
      compiling: Calls of `advance` whose work waited for compilation first.
      unit: What is counted, where it is not policies.
    """

    def __init__(self, total: int | None, done: int, compiling: int, unit: str = "policies") -> None:
        self._total, self._done, self._compiling, self._unit = total, done, compiling, unit
        self._counted = 0
        self._since = self._last = 0.0

    def advance(self, count: int, now: float) -> None:
        """Counts policies that were done at the time `now`, seconds."""
        self._done += count
        self._last = now
        if self._compiling > 0:
            self._compiling -= 1
            self._since = now
        else:
            self._counted += count

    def per_hour(self) -> float | None:
        """Policies an hour; None while that is not known."""
        return (
            3600.0 * self._counted / (self._last - self._since) if self._counted and self._last > self._since else None
        )

    def left(self, now: float) -> float | None:
        """Seconds left at the time `now`; None while that is not known."""
        if not self._total or not self._counted:
            return None
        each = (self._last - self._since) / self._counted
        return max(0.0, (self._total - self._done) * each - (now - self._last))

    def words(self, now: float, ended: bool) -> str:
        """Speed and, unless the stage has ended, time left at the time `now`; empty while they are not known."""
        speed, left = self.per_hour(), self.left(now)
        told = (
            [] if speed is None else [f"{speed:,.0f} {self._unit}/h" if speed >= 10 else f"{speed:.1f} {self._unit}/h"]
        )
        return ", ".join(told if left is None or ended else [*told, f"about {duration(left)} left"])


class _Speed(ProgressColumn):
    """What a task's `rate` says."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["rate"].words(time.monotonic(), task.finished))


class TerminalProgress:
    """A line per stage with count, rate and time left."""

    def __init__(self, bar: Bar, unit: str = "policies") -> None:
        self._bar, self._unit = bar, unit
        self._task: int | None = None

    def stage(self, name: str, total: int | None = None, done: int = 0, compiling: int = 1) -> None:
        """Begins a stage and marks the one before as done."""
        self.finish()
        self._rate = Rate(total, done, compiling, self._unit)
        self._task = self._bar.add_task(
            name, total=total, completed=done, unit=self._unit if total else "", detail="", rate=self._rate
        )

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Counts policies as done."""
        if self._task is not None:
            self._rate.advance(count, time.monotonic())
            self._bar.update(self._task, advance=count, detail=detail)  # type: ignore[arg-type]

    def pace(self, text: str) -> None:
        """Shows it behind the bar."""
        if self._task is not None:
            self._bar.update(self._task, detail=text)  # type: ignore[arg-type]

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
    """Lines without control characters, at most one every ten seconds per stage and one at its end.

    Where a policy takes long, one a minute says what it is at.
    """

    def __init__(self, console: Console, unit: str = "policies") -> None:
        self._console, self._unit = console, unit
        self._name, self._done = "", 0
        self._total: int | None = None
        self._rate = Rate(None, 0, 1)
        self._begun = self._last = 0.0

    def stage(self, name: str, total: int | None = None, done: int = 0, compiling: int = 1) -> None:
        """Announces a stage."""
        self._name, self._total, self._done = name, total, done
        self._rate = Rate(total, done, compiling, self._unit)
        self._begun = self._last = time.monotonic()
        self.note(f"{name}: {done} of {total} {self._unit}" if total else name)

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Counts policies as done, and says so when the last line is old or the stage is complete."""
        self._done += count
        now = time.monotonic()
        self._rate.advance(count, now)
        if now - self._last < LINE_EVERY and self._done != self._total:
            return
        self._last = now
        speed = self._rate.words(now, self._done == self._total)
        of = f" of {self._total}" if self._total else ""
        told = f"{self._name}: {self._done}{of} {self._unit} in {duration(now - self._begun)}"
        told += f", {speed}" if speed else ""
        self.note(f"{told}; {detail}" if detail else told)

    def pace(self, text: str) -> None:
        """Prints a line where none was printed for a while."""
        now = time.monotonic()
        if now - self._last >= PACE_EVERY:
            self._last = now
            self.note(text)

    def note(self, text: str) -> None:
        """Prints a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
