"""Mistakes in a config, one line each: which key, what was expected, what was found and what to do."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from canaryjax.config.fields import section_in, shown
from canaryjax.config.nearest import hint, paths_of
from canaryjax.config.policy import ALGORITHMS, chosen_algorithm
from canaryjax.config.schema import AuditConfig

# By the beginning of pydantic's name of an error: what was expected, and what to do.
WORDS = {
    "greater_than_equal": ("at least {ge}", "raise it"),
    "greater_than": ("a number above {gt}", "raise it"),
    "less_than_equal": ("at most {le}", "lower it"),
    "less_than": ("a number below {lt}", "lower it"),
    "finite_number": ("a finite number", "give one"),
    "int_": ("a whole number", "give one"),
    "float_": ("a number", "give one"),
    "bool_": ("true or false", "give one of the two"),
    "literal_error": ("one of {expected}", "choose one"),
    "string_pattern_mismatch": ("text of the form {pattern}", "leave other characters out"),
    "string_": ("text", "put it in quotes"),
    "tuple_type": ("a list, such as [a, b]", "write it in brackets"),
    "model_": ("keys and their values", "set the keys below it"),
    "invalid_key": ("keys that are text", "rename it"),
    "missing": ("a value", "give one"),
    "algorithm": ("grpo or ppo", "choose one"),
}
KEY = re.compile(r"`([\w.]+)`")  # how a validator of several keys marks them


def describe(item: Mapping[str, Any], algorithm: str) -> str:
    """One of pydantic's errors as the user reads it.

    Args:
      item: Of `ValidationError.errors()`. A validator's own message marks the keys of its section that it is about.
      algorithm: By which policies are trained under the config that was refused.
    """
    keys = _keys(item["loc"])
    if item["type"] == "extra_forbidden":
        return f"unknown config key {'.'.join(keys)!r}{hint(keys, algorithm)}"
    found = item.get("input")
    if item["type"] == "algorithm":
        keys, found = [*keys, "algorithm"], chosen_algorithm(found)
    return worded(item, keys, found, set(paths_of(algorithm)))


def worded(item: Mapping[str, Any], keys: list[str], found: object, paths: set[str]) -> str:
    """The line about a key that is known.

    Args:
      item: Of `ValidationError.errors()`.
      keys: Of the key, as a user writes them.
      found: Its value.
      paths: Every key of the config, sections joined by dots.
    """
    if item["type"] == "value_error":
        message = item["msg"].removeprefix("Value error, ")
        # Other marks are a value's own.
        marked = [name for name in dict.fromkeys(KEY.findall(message)) if ".".join([*keys, name]) in paths]
        plain = KEY.sub(lambda mark: mark[1] if mark[1] in marked else mark[0], message)
        return f"{_named([[*keys, name] for name in marked] or [keys])}: {plain}"
    expected, remedy = next(
        (words for start, words in WORDS.items() if item["type"].startswith(start)),
        (item["msg"].removeprefix("Input should be "), "correct it"),
    )
    expected = expected.format(**item.get("ctx", {}))
    if item["type"] == "literal_error":
        expected = expected.replace("'", "").replace(" or ", ", ")
    if item["type"] == "missing":
        found = None
    return f"{_named([keys])}: expected {expected}, found {_shown(found)}; {remedy}"


def _named(paths: list[list[str]]) -> str:
    names = ", ".join(repr(".".join(path) or "config") for path in paths)
    return f"config {'key' if len(paths) == 1 else 'keys'} {names}"


def _shown(value: object) -> str:
    if isinstance(value, Mapping | BaseModel):
        return "keys and values"
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping | list) for one in value):
        return f"a list of {len(value)} with lists or keys in it"
    return shown(value)


def _keys(location: tuple[int | str, ...]) -> list[str]:
    """The keys of an error as a user writes them."""
    keys: list[str] = []
    section: type[BaseModel] | None = AuditConfig
    for part in map(str, location):
        if keys == ["policy"] and part in ALGORITHMS:  # pydantic names the chosen class behind the key
            section = ALGORITHMS[part]
            continue
        if part == "[key]":  # what it says of a key itself
            continue
        keys.append(part)
        annotation = section.model_fields[part].annotation if section and part in section.model_fields else None
        section = section_in(annotation)
    return keys
