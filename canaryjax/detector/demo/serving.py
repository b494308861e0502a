"""A model behind `canaryjax serve`, in a process of its own, for as long as it is asked."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from canaryjax.errors import UserError

COMMAND = [sys.executable, "-c", "from canaryjax.cli import main; main()", "serve"]
READY = re.compile(r"^serving .* at (http://\S+)$", re.MULTILINE)
PATIENCE = 300.0  # seconds until it listens: loading waits for nothing but a busy machine
GRACE = 10.0  # seconds to end after being asked to


@contextmanager
def serving(model: Path, log: Path, batch: int) -> Iterator[str]:
    """The address of a server of a model, on this machine alone, at a free port.

    Args:
      model: A Hugging Face directory.
      log: New file for what the server says: one line a call, without prompt or answer.
      batch: Answers drawn at once.

    Raises:
      UserError: It ended, or did not listen in time.
    """
    with log.open("wb") as handle:
        process = subprocess.Popen(
            [*COMMAND, str(model), "--port", "0", "--batch", str(batch)], stdout=handle, stderr=handle
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen, log: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if found := READY.search(log.read_text("utf-8", "replace")):
            return found[1]
        time.sleep(0.1)
    raise UserError(f"expected a server of the demo's model, found none that listens; see {log}")
