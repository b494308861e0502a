"""Text from elsewhere, such as a model's name, made safe to print: it may not steer the terminal."""

from collections.abc import Mapping
from typing import Any

BLANKS = "\n\t\u00a0\u2009\u202f"  # that set text and do no more


def printable(text: str) -> str:
    """Writes control characters, and those that turn the line's direction, as escapes.

    >>> printable("a\\x1b[31m\\u202eb \\u00e9\\u00a0c")
    'a\\\\x1b[31m\\\\u202eb é\\xa0c'
    """
    return "".join(c if c.isprintable() or c in BLANKS else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def all_printable(value: Any) -> Any:
    """The same of every text in nested mappings and lists."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {all_printable(key): all_printable(own) for key, own in value.items()}
    return [all_printable(own) for own in value] if isinstance(value, (list, tuple)) else value
