"""One thread that runs a model for many: requests that wait together and share a program become one batch."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from canaryjax.errors import UserError
from canaryjax.inference.batch import LEAST_ANSWER, LEAST_CONTEXT, continue_rows, rank_row, step
from canaryjax.inference.records import Completion
from canaryjax.models.lora import Adapter, check_adapter
from canaryjax.weights.checkpoint import LoadedModel, check_model

MOST_WAITING = 4096  # rows; more are turned away, so that a flood cannot fill the memory
LINGER = 0.005  # seconds that a batch waits for company: clients that ask together arrive a little apart


class Overloaded(RuntimeError):
    """More rows wait than the service takes."""


@dataclass(frozen=True, repr=False, eq=False)
class Draw:
    """One completion to be drawn; has no `repr` that shows the prompt.

    Attributes:
      ids: int32, the prompt.
      seed: Decides, with the prompt and the settings, what is drawn.
      most: Longest completion, tokens.
      temperature, top_p: The law.
    """

    ids: np.ndarray
    seed: int
    most: int
    temperature: float
    top_p: float


@dataclass(frozen=True, repr=False, eq=False)
class _Job:
    task: Draw | np.ndarray
    result: Future = field(default_factory=Future)

    @property
    def program(self) -> tuple | None:
        """Jobs of one program may share a batch; None shares with nobody."""
        task = self.task
        if not isinstance(task, Draw):
            return None
        shape = step(len(task.ids), LEAST_CONTEXT), step(task.most, LEAST_ANSWER)
        return (*shape, task.temperature, task.top_p)


class Service:
    """Runs one model for many threads."""

    def __init__(self, model: LoadedModel, adapter: Adapter | None = None, size: int = 8) -> None:
        """Starts the thread; `size` is the rows of every batch. Raises UserError for what `generate` would refuse."""
        check_model(model)
        check_adapter(adapter, model.config)
        if model.tokenizer is None:
            raise UserError("expected a model with a tokenizer, found none; put its tokenizer.json beside the weights")
        self.model, self.tokenizer, self._adapter, self._size = model, model.tokenizer, adapter, size
        self._waiting: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._work, daemon=True, name="model")
        self._thread.start()

    def draw(self, draws: Sequence[Draw]) -> list[Completion]:
        """Their completions, in order; waits for them. Raises Overloaded, and UserError as `continue_rows` does."""
        return [job.result.result() for job in self._queue(draws)]

    def rank(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `rank_row`; waits for it. Raises Overloaded."""
        (job,) = self._queue([ids])
        return job.result.result()

    def close(self) -> None:
        """Ends the thread after the batch that is running; what still waits fails."""
        with self._changed:
            self._open = False
            for job in self._waiting:
                job.result.cancel()
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join()

    def _queue(self, tasks: Sequence[Draw | np.ndarray]) -> list[_Job]:
        jobs = [_Job(task) for task in tasks]
        with self._changed:
            if not self._open or len(self._waiting) + len(jobs) > MOST_WAITING:
                raise Overloaded
            self._waiting.extend(jobs)
            self._changed.notify_all()
        return jobs

    def _work(self) -> None:
        while batch := self._next_batch():
            try:
                results = self._run(batch)
            except Exception as error:  # belongs to those who asked; the thread goes on for the others
                for job in batch:
                    job.result.set_exception(error)
                continue
            for job, result in zip(batch, results, strict=True):
                job.result.set_result(result)

    def _next_batch(self) -> list[_Job]:
        """The oldest job and those that can share its batch; none when the service was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._open)
        time.sleep(LINGER)
        with self._changed:
            if not self._waiting:
                return []
            program = self._waiting[0].program
            same = [job for job in self._waiting if program is not None and job.program == program]
            batch = same[: self._size] or [self._waiting[0]]
            taken = set(map(id, batch))
            self._waiting = deque(job for job in self._waiting if id(job) not in taken)
            return batch

    def _run(self, batch: list[_Job]) -> list:
        draws = [job.task for job in batch if isinstance(job.task, Draw)]
        if not draws:
            return [rank_row(self.model, job.task, self._adapter) for job in batch if isinstance(job.task, np.ndarray)]
        seeds, most = [draw.seed for draw in draws], [draw.most for draw in draws]
        law = draws[0].temperature, draws[0].top_p
        return continue_rows(self.model, [draw.ids for draw in draws], seeds, self._size, most, *law, self._adapter)
