"""Config files of the commands beside `audit`: how they are read, their digests, and how a run keeps them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig

from canaryjax.config.tree import find_config, override, read_tree
from canaryjax.config.validation import Kind, validated
from canaryjax.errors import UserError

# Sections by which a file is known to be of a command.
COMMANDS = {
    "policy": "audit",
    "study": "audit",
    "site": "detector probe",
    "probing": "detector probe",
    "injection": "probes",
    "tuning": "probes",
    "grid": "sweep",
    "factors": "sweep",
}


def load_file(
    kind: type[Kind], path: str | Path, overrides: list[str] | None, command: str, example: str, item: str
) -> Kind:
    """Reads a YAML file, applies `key=value` overrides and validates the result.

    Args:
      kind: The config.
      path: A file, or the name of a shipped config. Its `extends:` key names another, relative to it, whose values it
        starts from.
      overrides: The items.
      command: Whose config it must be, one of `COMMANDS`; its first word is that of shipped names.
      example: A shipped config, for messages.
      item: An override, for messages.

    Raises:
      UserError: A missing or malformed file, another command's config, an unknown key (the nearest is named), or a
        value out of range.
    """

    def refuse_others(tree: DictConfig, file: Path) -> None:
        for section, other in COMMANDS.items():
            if section in tree and other != command:
                raise UserError(
                    f"expected a config of canaryjax {command} in {file}, found one with a section {section!r}; run "
                    f"canaryjax {other} {file}"
                )

    tree = read_tree(find_config(path, command.split()[0]), example, refuse_others, lambda own, start: None)
    return validated(kind, override(tree, list(overrides or []), str(path), item), str(path))


def digest_of(values: dict[str, Any]) -> str:
    """Hex digest of plain values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def yaml_of(values: dict[str, Any]) -> str:
    """Plain values as a run directory keeps them."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
