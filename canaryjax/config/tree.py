"""Config files as trees of keys: found by path or shipped name, laid over what they extend, changed by overrides."""

import difflib
import os.path
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from canaryjax.errors import UserError

# What reading and merging raises for what a file or an override holds: a tag may make its own errors, too.
UNREADABLE = (
    yaml.YAMLError,
    OmegaConfBaseException,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)
SWEEPS = "sweeps"  # the folder of shipped sweep files, which are no configs of one run
OTHERS = ("detector", "probes")  # how the names of other commands' configs begin: nothing that an audit could take
SHIPPED_CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def find_config(path: str | Path, kind: str | None = None) -> Path:
    """The file a config argument means: itself, or the shipped config of that name.

    Args:
      path: The argument.
      kind: One of `OTHERS`, whose names a message offers; None offers those of audits.
    """
    return _find(Path(), str(path), kind)


def _find(folder: Path, name: str, kind: str | None = None) -> Path:
    """The file that a name means to whoever stands in a folder."""
    for candidate in (folder / name, SHIPPED_CONFIGS / name, SHIPPED_CONFIGS / f"{name}.yaml"):
        if os.path.isfile(candidate):  # False, not an error, for a name that is too long for the file system
            return candidate
    files = [path.relative_to(SHIPPED_CONFIGS).with_suffix("") for path in SHIPPED_CONFIGS.rglob("*.yaml")]
    singles = [path for path in files if path.parts[0] != SWEEPS]
    shipped = sorted(str(path) for path in singles if _kind(path) == kind)
    near = difflib.get_close_matches(name.removesuffix(".yaml"), shipped, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "check the name"
    raise UserError(f"expected a config file or one of {shipped}, found no file {name!r}; {hint}")


def _kind(path: Path) -> str | None:
    return next((kind for kind in OTHERS if path.name.startswith(kind)), None)


def read_tree(
    path: Path,
    example: str,
    refuse: Callable[[DictConfig, Path], None],
    inherit: Callable[[DictConfig, DictConfig], None],
    seen: tuple[Path, ...] = (),
) -> DictConfig:
    """Reads a YAML file on top of the one that its `extends:` names, relative to it or shipped, and so on.

    Args:
      path: The file.
      example: A shipped config that messages point to.
      refuse: Called with each file's tree and path; raises `UserError` for what is no config of this kind.
      inherit: Called with a file's tree and the one that it extends, before they merge; may take keys out of the other.
      seen: The files that led here.

    Raises:
      UserError: A missing, malformed or empty file, or a circle.
    """
    if path.resolve() in seen:
        raise UserError(f"expected `extends` to end, found a circle at {path}; remove one of the links")
    try:
        tree = OmegaConf.load(path)
    except (*UNREADABLE, OSError) as error:
        raise UserError(f"expected readable YAML in {path}; {_one_line(error)}") from error
    if not OmegaConf.is_dict(tree) or not tree:  # nothing would mean every default: days of training, unasked
        found = "something else" if tree else "nothing"
        raise UserError(f"expected a mapping of config keys in {path}, found {found}; see {example}")
    assert isinstance(tree, DictConfig)
    refuse(tree, path)
    try:
        if OmegaConf.is_missing(tree, "extends"):
            _refuse_missing({"extends"}, str(path))
        parent = tree.pop("extends", None)
    except OmegaConfBaseException as error:  # an interpolation
        raise UserError(f"expected `extends` in {path} to name a file; {_one_line(error)}") from error
    if parent is None:
        if not tree:
            raise UserError(f"expected keys beside `extends: null` in {path}, found none; see {example}")
        return tree
    try:
        beside = _find(path.parent, str(parent))
    except UserError as error:
        raise UserError(f"`extends: {parent}` in {path}: {error}") from error
    start = read_tree(beside, example, refuse, inherit, (*seen, path.resolve()))
    try:
        inherit(tree, start)
        return _merged(start, tree, str(path))
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"expected values in {path} that merge into {beside}; {_one_line(error)}") from error


def override(
    tree: DictConfig,
    overrides: list[str],
    where: str,
    example: str,
    refuse: Callable[[DictConfig, DictConfig, str], None] = lambda tree, over, where: None,
) -> Any:
    """Lays items `key=value` over a tree and resolves it to plain values.

    Args:
      tree: Of `read_tree`.
      overrides: The items.
      where: The file, for messages.
      example: An item, for messages.
      refuse: Raises `UserError` for overrides that do not go with the tree.

    Raises:
      UserError: An item of another form, one that does not merge, or a value that is missing.
    """
    for item in overrides:
        if "=" not in item or "" in item.split("=", 1)[0].split("."):
            raise UserError(f"expected an override of the form key=value, found {item!r}; for example {example}")
    try:
        over = OmegaConf.from_dotlist(overrides)
        refuse(tree, over, where)
        merged = _merged(tree, over, where)
        _refuse_missing(OmegaConf.missing_keys(merged), where)
        return OmegaConf.to_container(merged, resolve=True)
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"expected overrides that merge into {where}; {_one_line(error)}") from error


def _merged(tree, over, where: str):
    """`over` on top of `tree`; a value of ??? would be passed over and the one below it taken."""
    merged = OmegaConf.merge(tree, over)
    _refuse_missing(OmegaConf.missing_keys(over) - OmegaConf.missing_keys(merged), where)
    return merged


def _refuse_missing(keys: set[str], where: str) -> None:
    if keys:
        raise UserError(f"expected a value for {min(keys)!r}, found ??? (in {where}); give one, or leave the key out")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
