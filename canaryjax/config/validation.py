"""Plain values to a validated section, with every mistake in words."""

import difflib
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from canaryjax.config.fields import Section, section_in
from canaryjax.config.mistake import worded
from canaryjax.errors import UserError

MOST_MISTAKES = 5  # that are told at once
NEAR = 0.6  # of difflib's ratio: below, names share letters by chance
Kind = TypeVar("Kind", bound=Section)


def validated(kind: type[Kind], values: object, where: str) -> Kind:
    """A config of a kind, or one `UserError` that names each mistake and the key that may have been meant."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        found = "; ".join(_described(kind, dict(item)) for item in error.errors()[:MOST_MISTAKES])
        raise UserError(f"{found} (in {where})") from None


def _described(kind: type[BaseModel], item: dict[str, Any]) -> str:
    """One of pydantic's errors as the user reads it."""
    keys, paths = [str(part) for part in item["loc"]], _paths(kind, "")
    if item["type"] != "extra_forbidden":
        return worded(item, keys, item.get("input"), set(paths))
    same = [path for path in paths if path.endswith(f".{keys[-1]}")]
    near = same or difflib.get_close_matches(".".join(keys), paths, n=1, cutoff=NEAR)
    hint = f"did you mean {near[0]!r}?" if near else "leave it out"
    return f"unknown config key {'.'.join(keys)!r}; {hint}"


def _paths(section: type[BaseModel], prefix: str) -> list[str]:
    """Every key with its sections, and the sections."""
    found = []
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        found += [f"{prefix}{name}", *(_paths(inner, f"{prefix}{name}.") if inner else [])]
    return found
