"""Cells in worker processes of this machine: a process that dies fails its cell alone."""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from canaryjax.runlog import Progress
from canaryjax.sweep.cells import Cell
from canaryjax.sweep.execute import Execute, Outcome
from canaryjax.sweep.message import HEARD, Values, begin_policies, from_cell, relay, to_outcome
from canaryjax.sweep.share import Place, worker_environment

WORDS = 4000  # characters of the beginning and of the end of what a dead worker wrote to stderr, kept in errors/


def in_processes(root: Path, progress: Progress, places: Sequence[Place], program: Sequence[str]) -> Execute:
    """The executor that runs as many cells at once as there are places, each in a process started for it.

    A process runs one cell after another and keeps base model and warm start for the next. They are new programs, never
    forks: JAX's threads do not survive a fork. What they are told and tell goes through pipes, one JSON object a line.

    Args:
      root: The sweep's directory.
      progress: Told what all cells are at.
      places: Of the workers.
      program: Words that start a worker; it reads cells as `cli/worker.py` does.
    """

    def execute(cells: Sequence[Cell]) -> Generator[Outcome, None, None]:
        workers = [Worker(root, place, program) for place in places[: len(cells)]]
        begin_policies(progress, cells, root, len(workers))
        left = deque(cells)
        try:
            while True:
                for worker in workers:
                    if worker.cell is None and left:
                        worker.give(left.popleft())
                busy = [worker for worker in workers if worker.cell is not None]
                if not busy:
                    return
                ready = select.select([worker.source for worker in busy], [], [])[0]
                for worker in [worker for worker in busy if worker.source in ready]:
                    yield from worker.hear(progress)
        finally:
            for worker in workers:
                worker.ask_to_stop()
            for worker in workers:
                worker.wait()

    return execute


class Worker:
    """A process that runs cells, started when it is given the first, and again after it died.

    Attributes: `cell`, the one that it is at; `source`, the descriptor that it is heard from.
    """

    def __init__(self, root: Path, place: Place, program: Sequence[str]) -> None:
        self.cell: Cell | None = None
        self.source = -1
        self._place, self._program = place, program
        self._setup = {"root": str(root.resolve()), "cores": place.cores}
        self._process: subprocess.Popen | None = None
        self._unread = b""

    def give(self, cell: Cell) -> None:
        """Has it run a cell."""
        if self._process is None or self._process.poll() is not None:  # an idle one may have been killed
            self.wait()
            self._start()
            self._tell(self._setup)
        self.cell = cell
        self._tell(from_cell(cell))

    def hear(self, progress: Progress) -> Iterator[Outcome]:
        """Reads what has come, passes progress on, and gives the outcome of its cell once that is known."""
        data = os.read(self.source, 2**16)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for message in map(json.loads, lines):
            if message["kind"] == HEARD:
                relay(progress, message)
            else:
                outcome = to_outcome(message)
                self.cell = None
                yield outcome
        if not data:
            yield self._death()

    def ask_to_stop(self) -> None:
        """Ends it: between cells at once, in a cell as Ctrl-C ends a run of this process."""
        if self._process is not None:
            if self.cell is not None:
                self._process.send_signal(signal.SIGTERM)
            self._close_input()

    def wait(self) -> None:
        """Waits until it has ended; what it still says is read, so that it is not held up, and passed over."""
        if self._process is None:
            return
        while os.read(self.source, 2**16):
            pass
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._close_input()
        self._errors.close()
        self._process, self._unread = None, b""

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed in `wait`
        # A session of its own: Ctrl-C in the terminal is for this process, which then asks each worker to stop.
        self._process = subprocess.Popen(
            self._program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=worker_environment() | self._place.environment,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdout is not None
        self.source = self._process.stdout.fileno()

    def _tell(self, values: Values) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        rest = memoryview(json.dumps(values).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # it is dead, which is seen when it is heard
            while rest:
                rest = rest[self._process.stdin.write(rest) :]

    def _close_input(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _death(self) -> Outcome:
        """What becomes of the cell of a process that has ended in the middle of it."""
        assert self.cell is not None
        assert self._process is not None
        status, name = self._process.wait(), self.cell.name
        self._errors.seek(0)
        words = self._errors.read().decode("utf-8", "replace")
        if len(words) > 2 * WORDS:
            words = f"{words[:WORDS]}\n...\n{words[-WORDS:]}"
        self.cell = None
        self.wait()
        return Outcome(name, "failed", death_line(status), words or None)


def death_line(status: int) -> str:
    """Why a cell failed whose process ended with a status as `subprocess` gives it.

    >>> death_line(-9)[:78]
    'expected the worker process to end the cell, found it killed by SIGKILL (as th'
    >>> death_line(3)
    'expected the worker process to end the cell, found that it left with status 3; --resume runs the cell again'
    """
    how, advice = f"that it left with status {status}", "--resume runs the cell again"
    if status < 0:
        how = f"it killed by {signal.Signals(-status).name}"
    if status == -signal.SIGKILL:
        how += " (as the system does where memory runs out)"
        advice += ", with fewer --workers if it was memory"
    return f"expected the worker process to end the cell, found {how}; {advice}"
