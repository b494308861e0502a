"""A worker of a sweep: a process of this machine, or of a Ray cluster, that runs cells and tells what it is at."""

import faulthandler
import json
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canaryjax.cli import startup
from canaryjax.cli.stop import Stopped, stoppable

PACKAGES = ("canaryjax", "jax", "jaxlib", "numpy")  # whose versions the numbers hang on


class Cells:
    """Runs cells in this process, and keeps what they share between them."""

    def __init__(self, root: Path, send: Callable[[dict[str, Any]], None]) -> None:
        """Takes the sweep's directory, and what sends one message."""
        from canaryjax.audit.shelf import BaseShelf

        self._root, self._send, self._shelf = root, send, BaseShelf()

    def run(self, values: dict[str, Any]) -> dict[str, Any]:
        """Runs a cell, and returns the message on how it ended."""
        from canaryjax.sweep.execute import run_cell
        from canaryjax.sweep.message import Telling, from_full_disk, from_outcome, to_cell

        progress = Telling(values["name"], self._send)
        try:
            return from_outcome(run_cell(to_cell(values), self._root, progress, self._shelf))
        except Exception as error:  # the one that is no outcome of a cell
            return from_full_disk(error)


def main() -> None:
    """Runs the cells that stand on stdin, one JSON object a line after a first one that says where; writes to stdout.

    Ends when stdin does, in a cell too: whoever started it is gone then.
    """
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no message
    faulthandler.enable()
    given: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(given,), daemon=True, name="listen").start()
    sending = threading.Lock()  # chunks side by side tell from threads of their own

    def send(message: dict[str, Any]) -> None:
        with sending:
            print(json.dumps(message), file=out)

    try:
        with stoppable():
            setup = given.get()
            if setup["cores"] is not None:
                os.sched_setaffinity(0, setup["cores"])  # before XLA counts them
            startup.prepare()
            cells = Cells(Path(setup["root"]), send)
            while True:
                send(cells.run(given.get()))
    except Stopped as stop:  # ends by the same signal, so that whoever sent it sees that it did
        number = signal.Signals[stop.name]
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _listen(given: queue.SimpleQueue) -> None:
    for line in sys.stdin:
        given.put(json.loads(line))
    os._exit(0)  # files of a run appear whole or not at all, so nothing is half written


def versions() -> dict[str, str | None]:
    """Of what computes, here."""
    from canaryjax.runlog.provenance import package_version

    return {name: package_version(name) for name in PACKAGES}


class RayCells:
    """The same as an actor of Ray: `run` and `heard` are called side by side."""

    def __init__(self, root: str, environment: dict[str, str]) -> None:
        """Takes the sweep's directory and variables to set before JAX reads them."""
        os.environ.update(environment)
        startup.prepare()
        self._root = Path(root)
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cells: Cells | None = None

    def look(self, name: str, secret: str) -> dict[str, Any]:
        """What is here: `missing`, why the sweep's directory is not, or None; `versions` of what computes; `node`."""
        import ray

        missing = None
        try:
            if (self._root / name).read_text() != secret:
                missing = "another directory of that name"
            with tempfile.TemporaryFile(dir=self._root):
                pass
        except OSError as error:
            missing = error.strerror or str(error)
        node = ray.get_runtime_context().get_node_id()[:8]
        return {"missing": missing, "versions": versions(), "node": node}

    def run(self, values: dict[str, Any]) -> dict[str, Any]:
        """As `Cells.run`."""
        if self._cells is None:
            self._cells = Cells(self._root, self._said.put)
        return self._cells.run(values)

    def heard(self, seconds: float) -> list[dict[str, Any]]:
        """What was said since it was asked last; waits up to so many seconds for something."""
        found = []
        try:
            found.append(self._said.get(timeout=seconds))
            while True:
                found.append(self._said.get_nowait())
        except queue.Empty:
            return found


if __name__ == "__main__":
    main()
