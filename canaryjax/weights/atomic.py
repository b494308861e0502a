"""A directory that appears whole or not at all."""

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from canaryjax.errors import UserError
from canaryjax.runlog.files import umask

_NAME_SHOWN = 40  # characters of the name in the temporary one, which must not be too long where the name is not


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields a temporary directory beside `path` that takes its place when the block ends without an error.

    Directory and files have the permissions that the process gives to new ones. Of a symbolic link it is what the link
    points to that is made.

    Raises:
      UserError: `path` holds something already, so that nothing is ever overwritten (least of all the files that the
        caller is still reading), or the system does not let it be made or written; its OSError is the cause.
    """
    place = free_place(path)
    with _telling(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        # Named as a run's half-written files are, so that a resumed run clears what a kill leaves of it.
        partial = Path(tempfile.mkdtemp(prefix=f".{place.name[:_NAME_SHOWN]}.", suffix=".tmp", dir=place.parent))
        try:
            yield partial
            withheld = umask()
            for file in partial.iterdir():  # safetensors' own mode and mkdtemp's let no one else read
                file.chmod(0o666 & ~withheld)
            partial.chmod(0o777 & ~withheld)
            os.replace(partial, place)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def free_place(path: Path) -> Path:
    """Where a new directory of this path would be, links resolved; UserError where there is something already."""
    with _telling(path):
        try:
            place = Path(os.path.realpath(path))
        except ValueError as error:  # a name that no system takes
            raise OSError(errno.EINVAL, str(error)) from error
        used = place.exists() and (not place.is_dir() or any(place.iterdir()))
    if used:
        raise UserError(f"expected a new or empty directory to write, found {path} in use; choose another path")
    return place


@contextlib.contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Turns what the system refuses inside the block into a UserError."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        cause = _system_error(error, path) if isinstance(error, SafetensorError) else error
        found = (isinstance(cause, OSError) and cause.strerror) or cause
        raise UserError(
            f"expected room and access to write {str(path)!r:.200}, found: {found}; free some, or choose another path"
        ) from cause


def _system_error(error: SafetensorError, path: Path) -> Exception:
    """What safetensors' writer met, a full disk for one: it tells of it in words only."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path)) if number else error
