"""From files and overrides to a validated config of a detector run, and what of it a run may keep."""

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml
from omegaconf import DictConfig
from pydantic import BaseModel, ValidationError

from canaryjax.config.detector import DetectorConfig
from canaryjax.config.fields import section_in
from canaryjax.config.mistake import worded
from canaryjax.config.tree import find_config, override, read_tree
from canaryjax.errors import UserError

EXAMPLE = "configs/detector_demo.yaml"
MOST_MISTAKES = 5  # that are told at once
NEAR = 0.6  # of difflib's ratio: below, names share letters by chance
# Not kept: where the site's files lie may tell which site it is, and a key may stand where its variable's name should.
SECRET = ("site.folder", "site.secrets", "site.request_log", "model.api_key_variable")
# These change no answer and no finding: a resumed run may have others.
TRAVEL = (
    "model.concurrency",
    "model.timeout",
    "model.retries",
    "model.price_in",
    "model.price_out",
    "model.spending_limit",
    "probing.max_calls",
)


def load_detector_config(path: str | Path, overrides: list[str] | None = None) -> DetectorConfig:
    """Reads a YAML file, applies `key=value` overrides and validates the result.

    Args:
      path: A file, or the name of a shipped config. Its `extends:` key names another, relative to it, whose values it
        starts from.
      overrides: Items such as `probing.repeats=3`.

    Returns:
      The validated tree.

    Raises:
      UserError: A missing or malformed file, an unknown key (the nearest is named), or a value out of range.
    """
    tree = read_tree(find_config(path), EXAMPLE, _refuse_audit, lambda own, start: None)
    values = override(tree, list(overrides or []), str(path), "probing.repeats=3")
    try:
        return DetectorConfig.model_validate(values)
    except ValidationError as error:
        found = "; ".join(_described(dict(item)) for item in error.errors()[:MOST_MISTAKES])
        raise UserError(f"{found} (in {path})") from None


def detector_hash(config: DetectorConfig) -> str:
    """Hex digest of all that determines the answers and what is made of them, but for the site's files."""
    values = _without(config, SECRET + TRAVEL)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def stored_yaml(config: DetectorConfig) -> str:
    """What a run directory keeps of a config: nothing that tells which site it is, no password in an address."""
    return yaml.safe_dump(_without(config, SECRET), sort_keys=False, allow_unicode=True)


def _without(config: DetectorConfig, keys: tuple[str, ...]) -> dict[str, Any]:
    values = config.model_dump(mode="json")
    for key in keys:
        section, name = key.split(".")
        del values[section][name]
    if (address := values["model"]["base_url"]) is not None:
        parts = urlsplit(address)
        values["model"]["base_url"] = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return values


def _refuse_audit(tree: DictConfig, path: Path) -> None:
    if "policy" in tree or "study" in tree:
        raise UserError(
            f"expected the config of a detector run in {path}, found an audit's; run canaryjax audit {path}"
        )


def _described(item: dict[str, Any]) -> str:
    """One of pydantic's errors as the user reads it."""
    keys, paths = [str(part) for part in item["loc"]], _paths(DetectorConfig, "")
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
