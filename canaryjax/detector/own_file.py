"""Files that the site's owner wrote, read whole: plain files of a sane size, whatever lies at the path."""

import errno
import os
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from canaryjax.errors import UserError

MOST_BYTES = 2**20  # a list of 4,096 entries has a tenth of it; a file that was named by mistake may be endless
MOST_DEPTH = 16  # of YAML's nesting; a parser takes minutes over thousands of levels, or fails
# What constructing a value raises for what a file holds: each YAML tag makes errors of its own.
UNREADABLE = (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)


def open_own(path: Path) -> BinaryIO:
    """A plain file, open for reading in bytes; does not wait for a pipe's other end.

    Raises:
      OSError: There is none, or it is a device, a pipe or a folder.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    folder = stat.S_ISDIR(os.fstat(handle).st_mode)
    os.close(handle)
    raise OSError(errno.EINVAL, os.strerror(errno.EISDIR) if folder else "a device or pipe", str(path))


def read_own(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a plain file.

    Raises:
      OSError: As `open_own`, or it holds more than `most` bytes.
    """
    with open_own(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EINVAL, f"more than {most} bytes", str(path))
    return content


def read_text(path: Path, what: str, advice: str = "correct the file") -> str:
    """The text of a plain file in UTF-8, with or without a byte-order mark, lines parted by newlines.

    Args:
      path: The file.
      what: What it should hold, for the message.
      advice: What to do where it cannot be read.

    Raises:
      UserError: It cannot be read; the message holds nothing of it.
    """
    try:
        text = read_own(path).decode("utf-8-sig")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        reason = error.strerror or "no file"
    except UnicodeDecodeError:
        reason = "other bytes than UTF-8"
    # Raised out here, as a decoding error would carry the file's bytes along.
    raise UserError(f"expected {what} in {path}, found {reason}; {advice}")


def read_yaml(path: Path, what: str) -> Any:
    """The value of a file of plain YAML: one document, no key twice, no alias, nested at most 16 deep.

    Args:
      path: The file.
      what: What it should hold, for the message.

    Raises:
      UserError: It is not such a file; the message names the line, never what stands there.
    """
    text = read_text(path, what)
    try:
        return _value(text)
    except UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        own = error.problem if isinstance(error, _Refusal) else "broken YAML"
        reason = own + (f", line {mark.line + 1}" if mark is not None else "")
    # Raised out here, so that no parser's error with a piece of the file in it hangs on to this one.
    raise UserError(f"expected {what} in {path}, found {reason}; correct the file")


class _Refusal(yaml.MarkedYAMLError):
    """What YAML allows and we do not; `problem` is our own text."""


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice: YAML would keep the last one, and half a list would be gone unseen."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Hashable] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)  # 7 and 0x7 are one key
            if isinstance(name, Hashable):  # the others are refused below
                if name in seen:
                    raise _Refusal(problem="a key twice", problem_mark=key.start_mark)
                seen.add(name)
        return super().construct_mapping(node, deep)


def _value(text: str) -> Any:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise _Refusal(problem=f"more than {MOST_DEPTH} levels", problem_mark=event.start_mark)
        if isinstance(event, yaml.AliasEvent):  # a few lines of them can stand for billions of entries
            raise _Refusal(problem="an alias", problem_mark=event.start_mark)
    return yaml.load(text, Loader=_Loader)
