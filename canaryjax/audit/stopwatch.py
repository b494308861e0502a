"""Where the time of a chunk goes."""

import time


class Stopwatch:
    """Seconds of the machine by stage: of the clock, over the chunks that run side by side.

    Attributes:
      seconds: By stage, so far.
    """

    def __init__(self, at_once: int = 1) -> None:
        self.seconds: dict[str, float] = {}
        self._at_once = at_once
        self._since = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Books the time since the last lap to a stage."""
        now = time.perf_counter()
        self.add(stage, (now - self._since) / self._at_once)
        self._since = now

    def add(self, stage: str, seconds: float) -> None:
        """Books seconds to a stage, such as those that a stopped run had spent on it."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
