"""From files and overrides to a validated config of a detector run, and what of it a run may keep."""

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml
from omegaconf import DictConfig

from canaryjax.config.detector import DetectorConfig
from canaryjax.config.tree import find_config, override, read_tree
from canaryjax.config.validation import validated
from canaryjax.errors import UserError

EXAMPLE = "configs/detector_demo.yaml"
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
    tree = read_tree(find_config(path, "detector"), EXAMPLE, _refuse_audit, lambda own, start: None)
    values = override(tree, list(overrides or []), str(path), "probing.repeats=3")
    return validated(DetectorConfig, values, str(path))


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
