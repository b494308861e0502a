"""Which cells of a sweep stand in one panel, and what else they differ in."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canaryjax.audit.null_command import leaves
from canaryjax.report.text import pick
from canaryjax.sweep.cells import BASE

# What says nothing about what is trained and scored: names, words, what is kept of a run.
WORDS = ("name", "description", "study.setting", "output")


@dataclass(frozen=True)
class Member:
    """A cell and the value that the panel's key has in it."""

    value: Any
    row: Mapping[str, Any]

    def at(self, key: str) -> "Member":
        """The same cell by what its config says of a key."""
        return Member(pick(self.row["config"], key), self.row)


@dataclass(frozen=True)
class Group:
    """Cells that differ in one key of the sweep.

    Attributes:
      key: As in the sweep file; `base` stands for the config itself.
      at: The other keys' values, in a grid; empty for factors.
      members: In the order of the sweep's cells.
    """

    key: str
    at: dict[str, Any]
    members: tuple[Member, ...]


def make_groups(
    design: str, varied: Mapping[str, Sequence[Any]], base: str, rows: Sequence[Mapping[str, Any]]
) -> list[Group]:
    """The groups of a sweep, in the order of its keys; a grid's key of one value has none.

    Args:
      design: `factors`, whose groups are a key's cells and the base cell, or `grid`, with a group for each
        combination of the other keys' values.
      varied: The keys and their values.
      base: The config that cells start from.
      rows: One a cell, with `points`, the values that the sweep's keys take in it, and `config`.
    """
    if design == "factors":
        return [_factor(key, base, rows) for key in varied]
    several = [key for key, values in varied.items() if len(values) > 1]
    return [group for key in several for group in _slices(key, several, rows)]


def _factor(key: str, base: str, rows: Sequence[Mapping[str, Any]]) -> Group:
    members = []
    for row in rows:
        points = [point for point in row["points"] if not point or key in point]
        if points:
            named = next((point[key] for point in points if key in point), base)
            members.append(Member(named, row) if key == BASE else Member(named, row).at(key))
    return Group(key, {}, tuple(members))


def _slices(key: str, several: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    found: dict[str, tuple[dict[str, Any], dict[str, Member]]] = {}
    for row, point in [(own, point) for own in rows for point in own["points"]]:
        others = {name: point[name] for name in several if name != key}
        _, members = found.setdefault(_canonical(others), (others, {}))
        # Points that make equal cells are one member: the key has no effect there.
        member = Member(point[key], row)
        members.setdefault(row["name"], member if key == BASE else member.at(key))
    return [Group(key, at, tuple(members.values())) for at, members in found.values()]


def differences(configs: Sequence[Mapping[str, Any]], without: Sequence[str]) -> list[dict[str, Any]]:
    """The keys in which configs differ, words and those of `without` left out.

    Args:
      configs: As `AuditConfig.model_dump` gives them.
      without: Keys, or sections, that may differ.

    Returns:
      One entry a key, in their order: `key`; `shared`, whether every config has it; `values`, one a config.

    >>> differences([{"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3, "d": 0}}], [])
    [{'key': 'a.c', 'shared': True, 'values': [2, 3]}, {'key': 'a.d', 'shared': False, 'values': [None, 0]}]
    """
    flat = [_effective(leaves(config)) for config in configs]
    keys = dict.fromkeys(itertools.chain.from_iterable(flat))
    left_out = tuple(f"{key}." for key in (*WORDS, *without))
    found = []
    for key in keys:
        values = [_canonical(own[key]) if key in own else None for own in flat]
        if len(set(values)) > 1 and not f"{key}.".startswith(left_out):
            shared = all(key in own for own in flat)
            found.append({"key": key, "shared": shared, "values": [own.get(key) for own in flat]})
    return found


def _effective(flat: dict[str, Any]) -> dict[str, Any]:
    """A config's leaves with `canary.contrast` as it takes effect: left out, as `CanaryConfig.contrast_rate` has it."""
    if "canary.rate" in flat and flat.get("canary.contrast", 0) is None:
        textual = flat.get("canary.family") == "textual"
        return flat | {"canary.contrast": 0.0 if textual else flat["canary.rate"]}
    return flat


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
