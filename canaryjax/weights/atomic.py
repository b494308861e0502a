"""A directory that appears whole or not at all."""

import contextlib
import os
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
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield partial
        partial.chmod(0o755)  # mkdtemp's own mode lets no one else read
        os.replace(partial, path)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, SafetensorError):  # how its writer reports a full disk
            raise UserError(f"expected room and access to write {path}, found: {error}; free some") from error
        raise
