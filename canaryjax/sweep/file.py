"""The sweep file: where it is, what may stand in it, and what the command line adds."""

import difflib
import math
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from canaryjax.config.fields import shown
from canaryjax.config.load import SHIPPED_CONFIGS, SWEEPS, UNREADABLE
from canaryjax.errors import UserError
from canaryjax.sweep.rows import read_rows

KEYS = ("name", "description", "base", "set", "grid", "factors", "seeds", "rows", "mixed_n")
# Of a cell, which the sweep itself gives.
OWN = ("name", "description")
# A config's key. OmegaConf reads `a[b]` and what stands before a second `=` too: one key would have two names.
DOTTED = re.compile(r"\w+(\.\w+)*", re.ASCII)
MOST_CELLS = 10_000  # assumed: years of training, and minutes to check each one's config


@dataclass(frozen=True)
class SweepFile:
    """A sweep as its file says it, the command line's values among the common ones.

    Attributes:
      name: For the page and the default folder.
      description: What the sweep asks.
      path: The file, for messages.
      base: The config that cells start from.
      common: Values of all cells, by config key.
      design: `grid` for the product of the lists, `factors` for one key at a time from the base cell.
      varied: The lists, by config key; the key `base` stands for the config itself.
      seeds: `shared` for the base config's seed in every cell, `own` for another seed in each.
      rows: Rows of the paper and the names of the cells that stand for them on the page.
      mixed_n: Whether rows of one table may be of unlike numbers of policies.
    """

    name: str
    description: str
    path: str
    base: str
    common: dict[str, Any]
    design: Literal["grid", "factors"]
    varied: dict[str, list[Any]]
    seeds: Literal["shared", "own"]
    rows: dict[str, str] = field(default_factory=dict)
    mixed_n: bool = False

    def base_of(self, name: str | None) -> str:
        """The config that a cell starts from: of that name, beside the sweep file or shipped; None is the sweep's."""
        wanted = self.base if name is None else str(name)
        beside = Path(self.path).parent / wanted
        return str(beside) if os.path.isfile(beside) else wanted


def read_sweep(source: str, overrides: Sequence[str]) -> SweepFile:
    """Reads a sweep file and adds the command line's values to what is common to its cells.

    Args:
      source: A file, or the name of a shipped sweep such as `figure3`.
      overrides: Items `key=value`.

    Raises:
      UserError: No such file, unreadable, a key that is none of `KEYS`, or lists that make no sweep.
    """
    path = _find(source)
    values = _read(path)
    unknown = [key for key in values if key not in KEYS]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), KEYS, n=1)
        advice = f"did you mean {near[0]!r}?" if near else "put keys of the config below `set`"
        raise UserError(f"expected keys among {', '.join(KEYS)} in {path}, found {unknown[0]!r}; {advice}")
    design, varied = _lists(path, values)
    common = _mapping(path, "set", _given(values, "set", {})) | _parsed(overrides)
    for key in [key for key in common if design == "grid" and key in varied]:
        raise UserError(
            f"expected {key!r} once, found it in `grid` of {path} and among the values common to all cells, where it "
            "would have no effect; leave it out of one of the two"
        )
    name = str(_given(values, "name", path.stem))
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UserError(f"expected letters, digits and ._- in `name` of {path}, found {name!r}; rename the sweep")
    base, seeds = values.get("base"), values.get("seeds", "shared")
    if not isinstance(base, str):
        raise UserError(f"expected the name of a config as `base` of {path}, found {base!r}; give one, such as quick")
    if seeds not in ("shared", "own"):
        raise UserError(f"expected shared or own as `seeds` of {path}, found {seeds!r}; choose one")
    if seeds == "own" and "study.seed" in varied:
        raise UserError(f"expected `seeds: shared` with study.seed in `{design}` of {path}, found own; change one")
    description = _given(values, "description", "")
    if not isinstance(description, str):
        raise UserError(f"expected text as `description` of {path}, found {description!r}; put it in quotes")
    rows, mixed = read_rows(path, values)
    return SweepFile(name, description, str(path), base, common, design, varied, seeds, rows, mixed)


def _given(values: Mapping[str, Any], key: str, default: Any) -> Any:
    """What stands under a key; the default where nothing does. Other empty values are no absence but a slip."""
    return default if values.get(key) is None else values[key]


def _find(source: str) -> Path:
    folder = SHIPPED_CONFIGS / SWEEPS
    places = (Path(), folder, SHIPPED_CONFIGS)
    for candidate in [place / name for place in places for name in (source, f"{source}.yaml")]:
        if os.path.isfile(candidate):
            return candidate
    shipped = sorted(path.stem for path in folder.glob("*.yaml"))
    near = difflib.get_close_matches(source, shipped, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "check the name"
    raise UserError(f"expected a sweep file or one of {shipped}, found no file {source!r}; {hint}")


def _read(path: Path) -> dict[str, Any]:
    try:
        # Not resolved: an interpolation is the config's, and meets its keys there.
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except (*UNREADABLE, OSError) as error:
        raise UserError(f"expected readable YAML in {path}; {' '.join(str(error).split())}; correct it") from error
    if not isinstance(values, dict) or not values:
        raise UserError(f"expected a mapping with base and grid or factors in {path}, found none; see configs/sweeps")
    return {str(key): value for key, value in values.items()}


def _lists(path: Path, values: Mapping[str, Any]) -> tuple[Literal["grid", "factors"], dict[str, list[Any]]]:
    """The design and its lists."""
    given = [design for design in ("grid", "factors") if design in values]
    if len(given) != 1:
        raise UserError(
            f"expected either `grid` or `factors` in {path}, found {'both' if given else 'neither'}; a grid is the "
            "product of its lists, factors are varied one at a time"
        )
    design: Literal["grid", "factors"] = "grid" if given == ["grid"] else "factors"
    varied = _mapping(path, design, values[design])
    if not varied:
        raise UserError(f"expected keys with lists of values in `{design}` of {path}, found none; give at least one")
    for key, entries in varied.items():
        if not isinstance(entries, list) or not entries:
            raise UserError(f"expected a list of values for {key!r} in `{design}` of {path}, found {entries!r}")
    cells = math.prod(map(len, varied.values()))
    if design == "grid" and cells > MOST_CELLS:
        raise UserError(
            f"expected at most {MOST_CELLS:,} cells of `grid` in {path}, found {cells:,}; leave values out, or vary "
            "one key at a time with `factors`"
        )
    return design, varied


def _mapping(path: Path, section: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise UserError(f"expected config keys and their values in `{section}` of {path}, found {values!r}")
    keys = {str(key): value for key, value in values.items()}
    for key, value in keys.items():
        if key in OWN:
            raise UserError(f"expected no {key!r} in `{section}` of {path}, found one; a cell's is made by the sweep")
        if not DOTTED.fullmatch(key):
            raise UserError(
                f"expected keys such as canary.rate in `{section}` of {path}, found {shown(key)}; correct it"
            )
        if _has_bytes(value):  # of `!!binary`; no file of a run could hold it
            raise UserError(f"expected text or numbers for {key!r} in `{section}` of {path}, found bytes; write text")
    return keys


def _has_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_bytes(part) for item in value.items() for part in item)
    return any(map(_has_bytes, value)) if isinstance(value, list) else isinstance(value, bytes)


def _parsed(overrides: Sequence[str]) -> dict[str, Any]:
    """Values of the command line, read as YAML as an audit's are."""
    found: dict[str, Any] = {}
    for item in overrides:
        key, sign, text = item.partition("=")
        if not sign or not DOTTED.fullmatch(key):
            raise UserError(f"expected an override of the form key=value, found {item!r}; for example canary.rate=0.1")
        if key in OWN:
            raise UserError(f"expected no override of {key!r}, found {item!r}; a cell's is made by the sweep")
        try:
            read = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=False)
        except UNREADABLE as error:
            raise UserError(
                f"expected a value that YAML can read, found {item!r}; {error}; put it in quotes"
            ) from error
        assert isinstance(read, dict)
        found[key] = read["value"]
    return found
