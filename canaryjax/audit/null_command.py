"""The words that run a study's null."""

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from canaryjax.config import AuditConfig, load_config
from canaryjax.errors import UserError

# Set by a null itself, or without a bearing on whether it is the null of this study.
OWN = {
    *("name", "description", "study.seed", "study.setting", "study.compliant", "study.violating"),
    *("study.scramble_feedback", "study.policies_per_chunk"),
}
MOST = 8  # more keys than these are another study: its own config, changed, is its null


def null_command(config: AuditConfig, shipped: str, changes: str) -> str:
    """How to run the null of a study: a shipped config where it differs in few keys, else the study's own, changed.

    Args:
      config: The study.
      shipped: A shipped config.
      changes: Items `key=value` that make a null of the study's own config.
    """
    own = f"this config again with {changes}"
    try:
        null = load_config(shipped)
    except UserError:  # no configs beside an installed package
        return own
    asked, there = leaves(config.model_dump(mode="json")), leaves(null.model_dump(mode="json"))
    changed = {item.split("=")[0] for item in changes.split()}
    # Keys that the shipped config lacks (PPO's, a warm start's) are not set one by one: that is another study.
    if not asked.keys() <= there.keys():
        return own
    keys = [key for key, value in asked.items() if key not in OWN | changed and value != there[key]]
    if len(keys) > MOST:
        return own
    # One line whatever the value: YAML as an override takes it.
    values = [yaml.safe_dump(asked[key], default_flow_style=True, width=10**6).split("\n")[0] for key in keys]
    return shlex.join(["bin/audit", shipped, *(f"{key}={value}" for key, value in zip(keys, values, strict=True))])


def leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key.

    >>> leaves({"a": {"b": 3}, "c": [1]})
    {'a.b': 3, 'c': [1]}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
