"""Cells in actors of a Ray cluster: an actor that dies fails its cell alone, a cluster that dies ends the sweep."""

import contextlib
import queue
import secrets
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from canaryjax.audit.chunk_size import SHARERS
from canaryjax.errors import UserError
from canaryjax.runlog import Progress
from canaryjax.sweep.cells import Cell
from canaryjax.sweep.cluster import BEAT, Cluster, told
from canaryjax.sweep.execute import Execute, Outcome
from canaryjax.sweep.message import begin_policies, from_cell, relay, to_outcome
from canaryjax.sweep.share import check_meshes

ROOMLESS = 30.0  # seconds after which it is said that a cell waits for room
LISTEN = 10.0  # seconds that a worker waits for something to say before it is asked again
LOOK, RUN, HEAR = "look", "run", "heard"  # what an actor is asked, and answers once it can


def on_cluster(root: Path, progress: Progress, cluster: Cluster, actor: type, versions: Mapping[str, Any]) -> Execute:
    """The executor that runs cells on a cluster, each in an actor that keeps base model and warm start for the next.

    Every worker must see the sweep's directory under the same path, as on a shared file system: each is asked for a
    file that was just written there before it is given a cell.

    Args:
      root: The sweep's directory.
      progress: Told what all cells are at.
      cluster: The cluster.
      actor: What runs there, as `cli/worker.py` has it.
      versions: Of what computes here; a worker's must be the same.

    Raises:
      ClusterLost: While cells run.
      UserError: A worker does not start, does not see the directory, or has other versions.
    """

    def execute(cells: Sequence[Cell]) -> Generator[Outcome, None, None]:
        if cluster.seats.gpus:
            check_meshes(cells)
        token = root / f".shared-{secrets.token_hex(4)}.tmp"
        secret = secrets.token_hex(16)
        token.write_text(secret)
        count = min(cluster.seats.workers, len(cells))
        begin_policies(progress, cells, root, count)
        answers: queue.SimpleQueue[tuple[Seat, str, Future]] = queue.SimpleQueue()
        seats: list[Seat] = []
        try:
            for _ in range(count):
                seats.append(Seat(cluster, root, actor, (token.name, secret), versions, answers))
                seats[-1].sit()
            yield from _run(cluster, seats, deque(cells), progress, answers)
        finally:
            for seat in seats:
                seat.leave()
            token.unlink(missing_ok=True)

    return execute


def _run(
    cluster: Cluster, seats: list["Seat"], left: deque[Cell], progress: Progress, answers: queue.SimpleQueue
) -> Generator[Outcome, None, None]:
    begun, waited = time.monotonic(), False
    while True:
        for seat in seats:
            if seat.free and left:
                seat.give(left.popleft())
        if not left and not any(seat.cell for seat in seats):
            return
        if not waited and any(seat.looking for seat in seats) and time.monotonic() - begun > ROOMLESS:
            waited = True
            progress.note("waiting for room on the Ray cluster: other jobs may hold it (ray status says what is taken)")
        # Not in Ray's own wait, which is compiled code: a stop by the user would come out of it as another error.
        with contextlib.suppress(queue.Empty):
            seat, question, answer = answers.get(timeout=BEAT)
            yield from seat.take(question, answer, progress)
        cluster.check()


class Seat:
    """An actor and what it is at. Attributes: `cell`, or None where it has none."""

    def __init__(
        self,
        cluster: Cluster,
        root: Path,
        actor: type,
        token: tuple[str, str],
        versions: Mapping[str, Any],
        answers: queue.SimpleQueue,
    ) -> None:
        self.cell: Cell | None = None
        self._cluster, self._root, self._token, self._versions = cluster, root, token, versions
        self._answers = answers
        self._asked: dict[str, Any] = {}  # futures by question
        wanted = cluster.seats
        # Threads: it is heard while it runs. A death is the cell's outcome, so Ray starts nothing again by itself.
        self._make = cluster.ray.remote(actor).options(
            num_cpus=wanted.cpus, num_gpus=wanted.gpus, max_restarts=0, max_concurrency=3, scheduling_strategy="SPREAD"
        )
        self._actor: Any = None

    @property
    def looking(self) -> bool:
        """Whether it has not said yet what it sees: it starts, or waits for room."""
        return LOOK in self._asked

    @property
    def free(self) -> bool:
        """Whether it can be given a cell."""
        return self.cell is None and not self.looking

    def sit(self) -> None:
        """Starts an actor, and asks it what it sees."""
        self._asked.clear()
        self._actor = self._make.remote(str(self._root.resolve()), {SHARERS: str(self._cluster.seats.on_a_node)})
        self._ask(LOOK, *self._token)

    def give(self, cell: Cell) -> None:
        """Has it run a cell."""
        self.cell = cell
        self._ask(RUN, from_cell(cell))

    def take(self, question: str, answer: Future, progress: Progress) -> Iterator[Outcome]:
        """Takes an answer: what it sees, progress, or how its cell ended."""
        if self._asked.get(question) is not answer:  # of an actor or a cell that is gone by now
            return
        del self._asked[question]
        error = answer.exception()
        if error is not None:
            yield from self._death(error)
        elif question == LOOK:
            self._compare(answer.result())
            self._ask(HEAR, LISTEN)
        elif question == HEAR:
            for message in answer.result():
                relay(progress, message)
            self._ask(HEAR, LISTEN)
        else:
            self.cell = None
            yield to_outcome(answer.result())

    def leave(self) -> None:
        """Ends the actor, in a cell too: files of a run appear whole or not at all."""
        with contextlib.suppress(Exception):  # gone already, or the cluster is
            self._cluster.ray.kill(self._actor)

    def _ask(self, question: str, *words: Any) -> None:
        answer = getattr(self._actor, question).remote(*words).future()
        self._asked[question] = answer
        answer.add_done_callback(lambda done: self._answers.put((self, question, done)))

    def _compare(self, found: Mapping[str, Any]) -> None:
        if found["missing"] is not None:
            raise UserError(
                f"expected every Ray worker to see and write the sweep's directory {self._root}, found on node "
                f"{found['node']}: {found['missing']}; give --out on a file system that all nodes share under one path"
            )
        for name, version in self._versions.items():
            if found["versions"].get(name) != version:
                raise UserError(
                    f"expected the same versions on every node of the Ray cluster, found {name} {version} here and "
                    f"{found['versions'].get(name)} on node {found['node']}; install the same there"
                )

    def _death(self, error: BaseException) -> Iterator[Outcome]:
        if isinstance(error, self._cluster.ray.exceptions.ActorUnavailableError):
            self._cluster.settle()  # its whole node may be gone, which nobody has noticed yet
        self._cluster.check(patience=0.0)
        if self.cell is None:
            raise UserError(
                f"expected a worker to start on the Ray cluster, found {told(error)}; install the same canaryjax on "
                "every node"
            ) from error
        name, self.cell = self.cell.name, None
        self.leave()  # Ray may think it alive
        self.sit()
        line = f"expected the Ray worker to end the cell, found {told(error)}; --resume runs the cell again"
        yield Outcome(name, "failed", line, str(error))
