"""A coroutine in a thread and an event loop of its own, and what it hands out as an ordinary iterator."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def stream(work: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]) -> Iterator[T]:
    """What `work` hands to the function that it is given, as it comes; its error is raised here.

    Closing the iterator cancels the coroutine and waits until it has tidied up. A thread of its own, so that it runs
    beside the caller's work, and where the caller has an event loop too, as notebooks do.
    """
    results: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    task = loop.create_task(work(results.put))

    def run() -> None:
        error: BaseException | None = None
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except BaseException as caught:
            error = caught
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            results.put(_End(error))

    thread = threading.Thread(target=run, daemon=True, name="calls")
    thread.start()
    try:
        while not isinstance(item := results.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        if thread.is_alive() and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed between the two lines
                loop.call_soon_threadsafe(task.cancel)
        thread.join()
