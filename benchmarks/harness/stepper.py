"""A trainer whose loop cannot be left, run one step at a time: it waits in a callback until the next step is asked."""

import threading
import time
from collections.abc import Callable


class Stepper:
    """Runs a trainer's own loop in a thread that stands still between steps.

    The loop must call `step_begins` and `step_ends` around each step; only the time between them counts.
    """

    def __init__(self, train: Callable[[], object]) -> None:
        """Takes the loop; it starts with the first step that is asked for."""
        self._train = train
        self._asked, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._seconds = self._started = 0.0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def seconds(self) -> float:
        """Lets the loop make one step and says how long it took; raises what the loop raised."""
        if not self._thread.ident:
            self._thread.start()
        self._asked.release()
        self._done.acquire()
        if self._failure is not None:
            raise RuntimeError("the trainer stopped before the step was done") from self._failure
        return self._seconds

    def step_begins(self) -> None:
        """Waits for the step to be asked for, and starts its clock."""
        self._asked.acquire()
        self._started = time.perf_counter()

    def step_ends(self) -> None:
        """Stops the step's clock."""
        self._seconds = time.perf_counter() - self._started
        self._done.release()

    def _run(self) -> None:
        try:
            self._train()
            raise RuntimeError("the trainer came to its end")
        except BaseException as failure:  # whatever it is, the thread that waits must hear of it
            self._failure = failure
            self._done.release()
