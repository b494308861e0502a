"""The list of looks at each model, beside the site: it says which look at a model a run is."""

import json
import os
from pathlib import Path

from canaryjax.errors import UserError
from canaryjax.runlog.files import cut_half_line, read_jsonl

try:
    import fcntl
except ImportError:  # not a POSIX system: two runs that begin at once are then not told apart
    fcntl = None  # type: ignore[assignment]

LEDGER = "looks.jsonl"


def take_look(folder: Path, run: str, model: str, begun: str) -> int:
    """Which look at a model this is, from 1; writes it down the first time that it is asked for.

    A run counts once it has begun, whether it ends or not: whoever could stop and forget a run that looks dull would
    look without paying for it. It counts once more where it goes on after it was reported.

    Args:
      folder: The site's.
      run: Names the run, and the part of it that ends in a report, at random.
      model: The backend's label.
      begun: UTC, ISO 8601.

    Raises:
      UserError: The list cannot be read or written.
    """
    path = folder / LEDGER
    try:
        with path.open("ab") as handle:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX)
            cut_half_line(path)
            earlier = [row.get("run") for row in read_jsonl(path) if row.get("model") == model]
            if run not in earlier:
                handle.write(json.dumps({"run": run, "model": model, "begun": begun}).encode() + b"\n")
                handle.flush()
                os.fsync(handle.fileno())
                earlier.append(run)
    except OSError as error:
        raise UserError(
            f"expected to write {path}, found: {error.strerror}; give access, since each look at a model is counted"
        ) from None
    return earlier.index(run) + 1
