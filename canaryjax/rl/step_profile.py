"""A profile of a few steps of training, once their program is compiled."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

WARM = 2  # steps before it: the first compiles, and what it leaves may lie elsewhere than what it was given
TRACED = 3


class StepProfile:
    """Traces steps of the first training that has enough of them.

    Attributes:
      written: Whether it has.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        """Takes the folder for the trace, and where to tell of it."""
        self._folder, self._tell = folder, tell
        self.written = False

    def follow(self, steps: range, finish: Callable[[], object]) -> Iterator[int]:
        """The steps of a training that is about to run, traced while some of them are taken.

        Args:
          steps: All that are left.
          finish: Waits until what was begun on the devices is done: steps are dispatched ahead of them.
        """
        traced = steps[WARM : WARM + TRACED]
        if self.written or not traced:
            yield from steps
            return
        self.written = True
        yield from steps[:WARM]
        finish()
        tracing = self._try(jax.profiler.start_trace, self._folder, create_perfetto_trace=True)
        try:
            for step in traced:
                with jax.profiler.StepTraceAnnotation("policy step", step_num=step):
                    yield step
            finish()
        finally:
            whole = tracing and self._try(jax.profiler.stop_trace)
        if whole:
            self._tell(
                f"profile of policy steps {traced[0]} to {traced[-1]} in {self._folder}: open perfetto_trace.json.gz "
                "in it at ui.perfetto.dev, or the folder with xprof"
            )
        yield from steps[WARM + TRACED :]

    def _try(self, call: Callable[..., None], *args: Any, **options: Any) -> bool:
        """Whether a call to the profiler came through; where it did not, that is told."""
        try:
            call(*args, **options)
        except Exception as error:  # a full disk, a device without a tracer: none of them is worth the training
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._tell(f"no profile was written ({why}); training goes on")
            return False
        return True
