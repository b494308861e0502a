"""A directory that appears whole or not at all."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from canaryjax.errors import UserError


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields a temporary directory beside `path` that takes its place when the block ends without an error.

    Raises:
      UserError: `path` holds something already, so that nothing is ever overwritten (least of all the files that the
        caller is still reading).
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"expected a new or empty directory to write, found {path} in use; choose another path")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Named as a run's half-written files are, so that a resumed run clears what a kill leaves of it.
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        yield partial
        partial.chmod(0o755)  # mkdtemp's own mode lets no one else read
        os.replace(partial, path)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, SafetensorError):
            cause = _system_error(error, path)
            found = cause.strerror if isinstance(cause, OSError) else cause
            raise UserError(f"expected room and access to write {path}, found: {found}; free some") from cause
        raise


def _system_error(error: SafetensorError, path: Path) -> Exception:
    """What safetensors' writer met, a full disk for one: it tells of it in words only."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path)) if number else error
