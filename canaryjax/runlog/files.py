"""Files that appear whole or not at all, and JSON that every reader accepts."""

import contextlib
import dataclasses
import errno
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from canaryjax.errors import UserError

# Characters that are legal in JSON but that other readers take for a line break, or that UTF-8 cannot hold.
_AWKWARD = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def jsonable(value: Any) -> tuple[Any, list[str]]:
    """Turns a value into what JSON can hold; NaN and infinity become None.

    Args:
      value: Nested mappings, sequences, NumPy or JAX arrays and scalars, dataclasses, paths, numbers, strings.

    Returns:
      The plain value and the paths (`a.b[3]`) at which a number was not finite.

    Raises:
      TypeError: Something JSON has no form for.

    >>> jsonable({"a": [1.0, float("nan")]})
    ({'a': [1.0, None]}, ['a[1]'])
    """
    lost: list[str] = []

    def walk(item: Any, path: str) -> Any:
        if item is None or isinstance(item, (bool, str)):
            return item
        if isinstance(item, (int, float)):
            if isinstance(item, float) and not math.isfinite(item):
                lost.append(path or ".")
                return None
            return item
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            item = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
        if isinstance(item, Mapping):
            return {str(key): walk(entry, f"{path}.{key}" if path else str(key)) for key, entry in item.items()}
        if isinstance(item, (list, tuple)):
            return [walk(entry, f"{path}[{index}]") for index, entry in enumerate(item)]
        if isinstance(item, os.PathLike):
            return os.fspath(item)
        if isinstance(item, np.generic) or hasattr(item, "__array__"):
            return walk(np.asarray(item).tolist(), path)
        raise TypeError(f"expected a value that JSON can hold at {path or '.'}, found {type(item).__name__}")

    return walk(value, ""), lost


def encode(value: Any, indent: int | None = None) -> tuple[bytes, list[str]]:
    """Encodes as UTF-8 JSON; a mapping that lost numbers says where, under `non_finite`."""
    plain, lost = jsonable(value)
    if lost and isinstance(plain, dict):
        plain["non_finite"] = lost
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=indent)
    return _AWKWARD.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode(), lost


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """Opens a temporary neighbour for writing bytes and moves it over `path` once it is safely on the disk."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_json(path: Path) -> Any:
    """A JSON file, or a `UserError` that names it and where it is malformed."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"expected the file {path}, found none; is this a run directory?") from None
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"expected valid JSON in {path}; {error}; restore the file") from error


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file, [] where there is none; only a line feed ends a line, U+2028 does not."""
    return [row for _, row in numbered_jsonl(path)]


def numbered_jsonl(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """As `read_jsonl`, each row with the number of its line, from 1: blank lines are counted and give no row."""
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"expected a readable file {path}, found: {error.strerror or error}; check it") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"expected one JSON object a line in {path}; line {number}: {error}; correct or remove the line"
            ) from error
        if not isinstance(row, dict):
            raise UserError(
                f"expected one JSON object a line in {path}; line {number}: found {type(row).__name__}; correct or "
                "remove the line"
            )
        rows.append((number, row))
    return rows


def umask() -> int:
    """The permissions that this process withholds from what it makes; the system tells them only by a change."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def disk_is_full(error: object) -> bool:
    """Whether it is what the system says where there is no room left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def cut_half_line(path: Path) -> None:
    """Cuts what follows the last line feed: a row that a killed process was writing."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        os.truncate(path, end)
