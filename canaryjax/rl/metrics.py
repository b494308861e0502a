"""Metrics that leave the device once every few steps, so that logging does not stall training."""

import math
import time
from collections.abc import Callable

import jax
import numpy as np

from canaryjax.models.sharding import fetch

Log = Callable[[dict], None]


class MetricLog:
    """Keeps device metrics of the latest steps and hands them on as plain numbers, one record a step and policy."""

    def __init__(self, log: Log | None, stage: str, every: int):
        """Takes the callback (None drops records), the `stage` each record names, and how many steps to wait."""
        self._log, self._stage, self._every = log, stage, every
        self._waiting: list[tuple[int, dict]] = []
        self._since = time.perf_counter()

    def add(self, step: int, metrics_p: dict[str, jax.Array]) -> None:
        """Takes one step's metrics, each `[p]`; fetches when enough have come."""
        self._waiting.append((step, metrics_p))
        if len(self._waiting) >= self._every:
            self.flush()

    def flush(self) -> None:
        """Fetches what waits, in one transfer, and logs it with the mean seconds a step took."""
        if not self._waiting:
            return
        fetched = fetch(self._waiting)
        now = time.perf_counter()
        seconds = (now - self._since) / len(fetched)
        self._waiting, self._since = [], now
        if self._log is None:
            return
        for step, metrics in fetched:
            policies = len(next(iter(metrics.values())))
            for policy in range(policies):
                values = {name: plain_number(x[policy]) for name, x in metrics.items()}
                self._log({"stage": self._stage, "step": step, "policy": policy, **values, "seconds": seconds})


def plain_number(value: np.generic) -> float | bool | None:
    """A Python number; None where it is not finite, since JSON has no NaN."""
    number = value.item()
    return number if math.isfinite(number) else None
