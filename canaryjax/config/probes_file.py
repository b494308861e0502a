"""From files and overrides to a validated config of a probe audit."""

import hashlib
import json
from pathlib import Path

import yaml
from omegaconf import DictConfig

from canaryjax.config.probes import ProbesConfig
from canaryjax.config.tree import find_config, override, read_tree
from canaryjax.config.validation import validated
from canaryjax.errors import UserError

EXAMPLE = "configs/probes_quick.yaml"


def load_probes_config(path: str | Path, overrides: list[str] | None = None) -> ProbesConfig:
    """Reads a YAML file, applies `key=value` overrides and validates the result.

    Args:
      path: A file, or the name of a shipped config. Its `extends:` key names another, relative to it, whose values it
        starts from.
      overrides: Items such as `reading.window=24`.

    Raises:
      UserError: A missing or malformed file, an unknown key (the nearest is named), or a value out of range.
    """
    tree = read_tree(find_config(path, "probes"), EXAMPLE, _refuse_others, lambda own, start: None)
    return validated(ProbesConfig, override(tree, list(overrides or []), str(path), "reading.window=24"), str(path))


def probes_hash(config: ProbesConfig) -> str:
    """Hex digest of the whole config, but for what changes no number: how often training is kept on disk."""
    values = config.model_dump(mode="json")
    del values["tuning"]["checkpoint_every"]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def probes_yaml(config: ProbesConfig) -> str:
    """The resolved config, every value, as a run directory keeps it."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _refuse_others(tree: DictConfig, path: Path) -> None:
    commands = {"policy": "audit", "study": "audit", "site": "detector probe", "grid": "sweep", "factors": "sweep"}
    for key, command in commands.items():
        if key in tree:
            raise UserError(
                f"expected the config of a probe audit in {path}, found one with a section {key!r}; run canaryjax "
                f"{command} {path}"
            )
