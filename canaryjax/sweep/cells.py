"""From a sweep file to its cells: which audits are run, under which names."""

import itertools
import json
import os.path
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from canaryjax.config import AuditConfig, config_hash, load_config
from canaryjax.errors import UserError
from canaryjax.keys import stream_id
from canaryjax.sweep.file import SweepFile
from canaryjax.sweep.rows import check_rows

BASE = "base"  # the name of the cell that all factors start from, and the key that stands for the config itself
LONGEST_VALUE = 40  # characters of a value in a cell's name, which is a folder's name too
SEED = "study.seed"


@dataclass(frozen=True)
class Cell:
    """One audit of a sweep, the same that `bin/audit BASE OVERRIDES` runs.

    Attributes:
      name: Of the cell and of its folder.
      base: The config it starts from.
      overrides: `key=value` items, in the order in which they are applied.
      points: The values that the sweep's keys take here; several where cells that it asks for are equal.
      config: The validated whole.
    """

    name: str
    base: str
    overrides: tuple[str, ...]
    points: tuple[dict[str, Any], ...]
    config: AuditConfig


def make_cells(file: SweepFile) -> list[Cell]:
    """The cells of a sweep, in the order of the file; those that are equal are one, under the first one's name.

    Raises:
      UserError: An unknown key, a value out of range, keys that do not go together; it names file and cell.
    """
    short = short_names(list(file.varied))
    found: dict[str, Cell] = {}
    for point in points(file):
        cell = _cell(file, point, _name(point, short))
        # Names and descriptions say nothing about what is trained and scored.
        same = config_hash(cell.config.model_copy(update={"name": "cell", "description": ""}))
        before = found.get(same)
        found[same] = replace(before, points=before.points + cell.points) if before else cell
    cells = _distinct(list(found.values()))
    check_rows(file, {cell.name: (cell.config.study.compliant, cell.config.study.violating) for cell in cells})
    return [_finished(file, cell) for cell in cells]


def points(file: SweepFile) -> list[dict[str, Any]]:
    """What the sweep's keys take in each cell: their product, or the base cell and then one key at a time.

    >>> from canaryjax.sweep.file import SweepFile
    >>> points(SweepFile("s", "", "s.yaml", "quick", {}, "grid", {"a": [1, 2], "b": [3]}, "shared"))
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    >>> points(SweepFile("s", "", "s.yaml", "quick", {}, "factors", {"a": [1, 2], "b": [3]}, "shared"))
    [{}, {'a': 1}, {'a': 2}, {'b': 3}]
    """
    if file.design == "grid":
        return [dict(zip(file.varied, values, strict=True)) for values in itertools.product(*file.varied.values())]
    return [{}, *({key: value} for key, values in file.varied.items() for value in values)]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each key, or the whole key where two end alike.

    >>> short_names(["canary.rate", "policy.optimizer.learning_rate", "reward_model.optimizer.learning_rate"])
    {'canary.rate': 'rate', 'policy.optimizer.learning_rate': 'policy.optimizer.learning_rate', \
'reward_model.optimizer.learning_rate': 'reward_model.optimizer.learning_rate'}
    """
    ends = [key.rsplit(".", 1)[-1] for key in keys]
    return {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}


def word(key: str, value: Any) -> str:
    """A key and its value as an override of a command line.

    >>> word("canary.rate", 0.1), word("canary.contrast", None), word("policy.lora.targets", ["q", "v"])
    ('canary.rate=0.1', 'canary.contrast=null', 'policy.lora.targets=[q, v]')
    """
    return f"{key}={_text(value)}"


def command_of(cell: Cell) -> str:
    """What runs the cell alone."""
    return shlex.join(["bin/audit", shown(cell.base), *cell.overrides])


def shown(base: str) -> str:
    """The name of a config, never its folder: a report is for others to read."""
    return Path(base).name if os.path.isfile(base) else base


def _text(value: Any) -> str:
    # Wide enough that nothing is broken into lines; a plain scalar is followed by the end mark of a YAML document.
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()
    return json.dumps(value) if "\n" in text else text  # a text of several lines


def _name(point: Mapping[str, Any], short: Mapping[str, str]) -> str:
    """Of a cell, by what it differs in: a folder's name and a study's."""

    def plain(value: Any) -> str:
        return re.sub(r"[^A-Za-z0-9.]+", "-", _text(value)).strip("-.")[:LONGEST_VALUE]

    return "_".join(plain(of) if key == BASE else f"{short[key]}-{plain(of)}" for key, of in point.items()) or BASE


def _cell(file: SweepFile, point: dict[str, Any], name: str) -> Cell:
    base = file.base_of(point.get(BASE))
    values = file.common | {key: value for key, value in point.items() if key != BASE}
    overrides = [word(key, value) for key, value in values.items()]
    try:
        config = load_config(base, overrides)
    except UserError as error:
        raise UserError(f"{file.path}, cell {name}: {error}") from error
    return Cell(name, base, tuple(overrides), (point,), config)


def _distinct(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with a number behind each name that an earlier one has: values may differ in what a name leaves out."""
    taken: set[str] = set()
    found = []
    for cell in cells:
        names = itertools.chain([cell.name], (f"{cell.name}-{n}" for n in itertools.count(2)))
        # Without regard to case, as file systems may be.
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        found.append(replace(cell, name=name))
    return found


def _finished(file: SweepFile, cell: Cell) -> Cell:
    """The cell under its own study name, and with a seed of its own where the sweep gives each one."""
    own = [word("name", f"{file.name}-{cell.name}")]
    if file.seeds == "own":
        # By name: adding a cell leaves the others' seeds as they are.
        own.append(word(SEED, stream_id(cell.config.study.seed, "sweep cell", cell.name) % 2**31))
    overrides = (*cell.overrides, *own)
    return replace(cell, overrides=overrides, config=load_config(cell.base, list(overrides)))
