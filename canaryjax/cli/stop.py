"""Ctrl-C and SIGTERM: the first asks the run to stop, a second ends it at once."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 0.5  # seconds: a stop that is quicker needs no word that it takes a while


class Stopped(BaseException):
    """Raised in the main thread when the user asked to stop; not an `Exception`, so that no handler swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turns the signals into `Stopped` inside the block.

    Python runs signal handlers between bytecodes, so a compiled program that takes a minute would make the first
    Ctrl-C look lost. A thread that reads the wake-up pipe answers meanwhile, and ends the process on the second signal:
    files in a run directory appear whole or not at all, so nothing is lost but the work since the last checkpoint.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    raised = threading.Event()

    def stop(number: int, frame: object) -> None:
        if not raised.is_set():  # a second one would cut short what the first one's way out still tidies
            raised.set()
            raise Stopped(number)

    previous = {number: signal.signal(number, stop) for number in SIGNALS}
    old_wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    over = threading.Event()
    answering = threading.Thread(target=_answer, args=(reader, over), daemon=True, name="stop")
    answering.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old_wakeup)
        for number, handler in previous.items():
            # Whoever was stopped is on the way out: the same stop come twice must not kill it before its last words.
            signal.signal(number, signal.SIG_IGN if raised.is_set() else handler)
        over.set()
        os.close(writer)  # ends the thread; what it had to say comes before anything said after the block
        answering.join()


def _answer(reader: int, over: threading.Event) -> None:
    asked = False
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while numbers := pipe.read(16):
            if not any(number in SIGNALS for number in numbers):
                continue
            if asked and not over.is_set():
                os._exit(1)
            asked = True
            if not over.wait(PATIENCE):
                _drain(reader)
                print("canaryjax: stopping after the step that is running; once more to stop at once", file=sys.stderr)


def _drain(reader: int) -> None:
    """Drops what came with the first signal: `timeout` sends its own twice, to the process and to its group."""
    os.set_blocking(reader, False)
    with contextlib.suppress(BlockingIOError):
        os.read(reader, 1024)
    os.set_blocking(reader, True)
