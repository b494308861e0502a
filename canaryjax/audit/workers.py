"""Chunks of trials, one after another or several at once where one program leaves cores idle."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def run_from_both_ends(items: Sequence[T], run: Callable[[T], None], workers: int) -> None:
    """Calls `run` on every item, `workers` at a time; the first error is raised once the calls under way have ended.

    Workers take turns at the two ends of the list. Chunks are sorted by arm, so two of them compile different programs
    while they start, and neither waits long at the end.

    Args:
      items: What to run.
      run: Called from several threads, unless there is one worker.
      workers: At least 1; 1 runs in the calling thread.
    """
    left = deque(items)
    errors: list[BaseException] = []
    stop = threading.Event()

    def work(number: int) -> None:
        take = left.pop if number % 2 else left.popleft
        while not stop.is_set():
            try:
                item = take()
            except IndexError:
                return
            try:
                run(item)
            except BaseException as error:  # raised by the thread that waits
                errors.append(error)
                stop.set()

    workers = min(workers, len(items))
    if workers <= 1:
        for item in items:
            run(item)
        return
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # a stop by the user, met while waiting: what is under way may end, nothing new begins
        stop.set()
        raise
    if errors:
        raise errors[0]
