"""Runs of several contenders in turn, so that a change of the machine's speed meets all of them."""

import statistics
import time
from collections.abc import Callable, Mapping

import jax

Seconds = Callable[[], float]  # does the work once and says how long it took


def timed(work: Callable[[], object]) -> Seconds:
    """The work as something that says how long it took, device arrays waited for."""

    def seconds() -> float:
        started = time.perf_counter()
        jax.block_until_ready(work())
        return time.perf_counter() - started

    return seconds


def interleave(contenders: Mapping[str, Seconds], repeats: int) -> dict[str, list[float]]:
    """Seconds of each contender: one run that is thrown away, then `repeats` rounds in which each runs once.

    The rounds' order is turned over each time, so that none always runs behind the same other.
    """
    for seconds in contenders.values():
        seconds()
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(repeats):
        names = list(contenders) if round_number % 2 == 0 else list(contenders)[::-1]
        for name in names:
            found[name].append(contenders[name]())
    return found


def median_seconds(work: Callable[[], object], runs: int = 3) -> float:
    """The median of some runs, after one that is thrown away."""
    return statistics.median(interleave({"work": timed(work)}, runs)["work"])
