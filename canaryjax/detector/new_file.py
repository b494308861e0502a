"""Files and folders that were not there: nothing is overwritten, and what cannot be written is told in one line."""

import contextlib
import os
from pathlib import Path

from canaryjax.errors import UserError


def create_file(path: Path, data: bytes, mode: int) -> None:
    """Makes a file that was not there, with these permissions from its first moment; all of it or none.

    Raises:
      UserError: There is one, its folder is missing, or the disk is full.
    """
    try:
        _create(path, data, mode)
    except FileExistsError:
        raise _there(path) from None
    except FileNotFoundError:
        raise _no_folder(path) from None
    except OSError as error:
        raise UserError(
            f"expected to write {path}, found: {error.strerror or 'no way to'}; make room, or name a file in a folder "
            "that you may write to"
        ) from None


def check_creatable(path: Path) -> None:
    """Raises the `UserError` of `create_file`, for where something else must happen before the file is written."""
    if os.path.lexists(path):
        raise _there(path)
    if not path.absolute().parent.is_dir():
        raise _no_folder(path)


def _there(path: Path) -> UserError:
    return UserError(f"expected no file {path}, found one; nothing is overwritten: give another")


def _no_folder(path: Path) -> UserError:
    return UserError(f"expected an existing folder for {path}, found none; make it first")


def _create(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
    except BaseException:
        os.unlink(path)
        raise


def create_files(folder: Path, files: dict[str, bytes], mode: int) -> None:
    """Makes a folder where there is none, and files in it; where one cannot be written, the others go again.

    Args:
      folder: Made for its owner alone.
      files: Contents by name, written in this order.
      mode: Permissions of each file.

    Raises:
      UserError: As `create_file`, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"expected a folder {folder}, found a file in its place; name another") from None
    except OSError as error:
        raise UserError(f"expected a folder {folder}, found: {error.strerror}; name another") from None
    made: list[Path] = []
    try:
        for name, data in files.items():
            create_file(folder / name, data, mode)
            made.append(folder / name)
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise
