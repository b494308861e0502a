"""Ctrl-C and SIGTERM: the first asks the run to stop, a second ends it at once."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 0.5  # seconds: a stop that is quicker needs no word that it takes a while
AGAIN = 0.02  # seconds until a stop that got lost is tried again: whatever swallowed it is over by then
DEAF = 1.0  # seconds between tries while the main thread has not heard of the stop
LOST = 0  # what the pipe says then; no signal has this number


class Stopped(BaseException):
    """Raised in the main thread when the user asked to stop; not an `Exception`, so that no handler swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name


@contextlib.contextmanager
def stoppable(last_words: Callable[[], str] = str) -> Iterator[None]:
    """Turns the signals into `Stopped` inside the block.

    Python runs signal handlers between bytecodes, so a compiled program that takes a minute would make the first
    Ctrl-C look lost. A thread that reads the wake-up pipe answers meanwhile, and ends the process on the second signal:
    files in a run directory appear whole or not at all, so nothing is lost but the work since the last checkpoint.

    Args:
      last_words: Called for what a second signal adds to "stopped at once", before the process ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = _Stop(last_words)
    previous = {number: signal.signal(number, stop.handle) for number in SIGNALS}
    old_wakeup = signal.set_wakeup_fd(stop.writer, warn_on_full_buffer=False)
    old_hook, sys.unraisablehook = sys.unraisablehook, stop.unraisable
    answering = threading.Thread(target=stop.answer, daemon=True, name="stop")
    answering.start()
    try:
        yield
    finally:
        stop.over.set()
        sys.unraisablehook = old_hook
        signal.set_wakeup_fd(old_wakeup)
        for number, handler in previous.items():
            # Whoever was stopped is on the way out: the same stop come twice must not kill it before its last words.
            signal.signal(number, signal.SIG_IGN if stop.raised.is_set() else handler)
        os.close(stop.writer)  # ends the thread; what it had to say comes before anything said after the block
        answering.join()


class _Stop:
    """One stop, from its signal to the end of the block.

    An exception that a signal handler raises can be lost: Python drops what is raised inside a finaliser or a callback
    of the garbage collector (JAX has one), and compiled code may clear it. `Stopped` lives as long as it is on its way
    or someone holds it, so its death inside the block says that it was lost, and the signal is sent again. So it is
    while no handler ran: the system may give a signal to another thread, which does not wake a main thread that waits.
    """

    def __init__(self, last_words: Callable[[], str]) -> None:
        self._tell_unraisable = sys.unraisablehook
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.raised, self.over = threading.Event(), threading.Event()
        self._last_words = last_words
        self._underway: weakref.ref[Stopped] | None = None

    def handle(self, number: int, frame: object) -> None:
        if not self.raised.is_set():  # a second one would cut short what the first one's way out still tidies
            self.raised.set()
            raise self._stopped(number)

    def _stopped(self, number: int) -> Stopped:
        # Not in `handle`: a name there, in a frame of the traceback, would keep the exception alive for ever.
        stopped = Stopped(number)
        self._underway = weakref.ref(stopped, lambda _: self._lost())
        return stopped

    def _lost(self) -> None:
        if not self.over.is_set():
            with contextlib.suppress(OSError):
                os.write(self.writer, bytes([LOST]))

    def unraisable(self, args: Any) -> None:
        if not isinstance(args.exc_value, Stopped):  # nothing to tell of: it comes again
            self._tell_unraisable(args)

    def answer(self) -> None:
        """Reads the pipe until it is closed."""
        first, told, ours, number = 0.0, False, 0, 0
        with os.fdopen(self.reader, "rb", buffering=0) as pipe:
            while True:
                wait = None if not first else DEAF if told else max(0.0, first + PATIENCE - time.monotonic())
                if not select.select([pipe], [], [], wait)[0]:
                    if not told:
                        told = True
                        print(
                            "canaryjax: stopping after the step that is running; once more to stop at once",
                            file=sys.stderr,
                        )
                    if not self.raised.is_set() and not ours:  # one at a time: two that wait become one
                        ours += self._send(number)
                    continue
                heard = pipe.read(16)
                if not heard:
                    return
                for byte in heard:
                    if byte == LOST:
                        time.sleep(AGAIN)
                        self.raised.clear()
                        ours += self._send(number)
                    elif byte in SIGNALS and ours:
                        ours -= 1
                    elif byte in SIGNALS and not first:
                        first, number = time.monotonic(), byte
                    # `timeout` sends its own twice, to the process and to its group: only a later one is a second one.
                    elif byte in SIGNALS and time.monotonic() > first + PATIENCE and not self.over.is_set():
                        self._end_at_once()

    def _send(self, number: int) -> bool:
        """Sends the main thread a signal, unless the block is over."""
        if self.over.is_set():
            return False
        signal.pthread_kill(threading.main_thread().ident or 0, number)
        return True

    def _end_at_once(self) -> None:
        with contextlib.suppress(Exception):
            print(f"canaryjax: stopped at once{self._last_words()}", file=sys.stderr, flush=True)
        os._exit(1)
