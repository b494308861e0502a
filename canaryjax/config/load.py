"""From files and overrides to a validated config: OmegaConf merges, pydantic checks."""

import hashlib
import json
import os.path
from pathlib import Path

from omegaconf import DictConfig
from pydantic import ValidationError

from canaryjax.config.mistake import describe
from canaryjax.config.policy import ALGORITHMS, chosen_algorithm
from canaryjax.config.schema import AuditConfig
from canaryjax.config.tree import SHIPPED_CONFIGS, SWEEPS, UNREADABLE, find_config, override, read_tree
from canaryjax.errors import UserError

__all__ = [
    "OBSERVING",
    "SHIPPED_CONFIGS",
    "SWEEPS",
    "UNREADABLE",
    "config_hash",
    "find_config",
    "load_config",
    "validate_config",
]

# Keys that only observe a run: they change no bit of what it trains and scores, so a resumed run may have others.
OBSERVING = ("output.log_every", "output.sample_every", "output.report_to")
MOST_MISTAKES = 5  # that are told at once
SHIPPED_FOR = {"grpo": "quick", "ppo": "embedded/ppo"}
EXAMPLE = "configs/quick.yaml"


def config_hash(config: AuditConfig) -> str:
    """Hex digest of every value but those of `OBSERVING`; two runs with equal hashes train and score the same."""
    values = config.model_dump(mode="json")
    for key in OBSERVING:
        section, name = key.split(".")
        del values[section][name]
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load_config(path: str | Path, overrides: list[str] | None = None) -> AuditConfig:
    """Reads a YAML file, applies `key=value` overrides and validates the result.

    Args:
      path: A file, or the name of a shipped config such as `quick` or `embedded/null`. A file's `extends:` key names
        another, relative to it, whose values it starts from; a policy section that names another algorithm replaces
        that file's, since the two have other keys and other defaults.
      overrides: Items such as `canary.rate=0.1`.

    Returns:
      The validated tree.

    Raises:
      UserError: A missing or malformed file, an unknown key (the nearest is named), or a value out of range.
    """
    tree = read_tree(find_config(path), EXAMPLE, _refuse_others, _drop_other_policy)
    values = override(tree, list(overrides or []), str(path), "canary.rate=0.1", _refuse_other_algorithm)
    return validate_config(values, where=str(path))


def validate_config(values: object, where: str) -> AuditConfig:
    """Turns plain values into a config, or raises one `UserError` that names each mistake."""
    if not isinstance(values, dict):
        raise UserError(f"expected a mapping of config keys in {where}, found {type(values).__name__}")
    try:
        return AuditConfig.model_validate(values)
    except ValidationError as error:
        algorithm = chosen_algorithm(values.get("policy"))
        algorithm = algorithm if algorithm in list(ALGORITHMS) else "grpo"
        found = "; ".join(describe(item, algorithm) for item in error.errors()[:MOST_MISTAKES])
        raise UserError(f"{found} (in {where})") from None


def _refuse_others(tree: DictConfig, path: Path) -> None:
    if "grid" in tree or "factors" in tree:
        raise UserError(
            f"expected the config of one audit in {path}, found a sweep of several; run canaryjax sweep {path}"
        )
    if "injection" in tree or "tuning" in tree:
        raise UserError(
            f"expected the config of one audit in {path}, found a probe audit's; run canaryjax probes {path}"
        )
    if "site" in tree or "probing" in tree:
        raise UserError(
            f"expected the config of one audit in {path}, found a detector run's; run canaryjax detector probe {path}"
        )


def _drop_other_policy(tree: DictConfig, start: DictConfig) -> None:
    own, inherited = tree.get("policy"), start.get("policy")
    if isinstance(own, DictConfig) and "algorithm" in own and own.algorithm != chosen_algorithm(inherited):
        start.pop("policy", None)


def _refuse_other_algorithm(tree, over, where: str) -> None:
    """A policy section is written for one algorithm: its rates and lengths make no study of the other, nor do defaults.

    Those are the paper's, for models a thousand times the embedded one's size.
    """
    own, wanted = tree.get("policy"), over.get("policy")
    if not (isinstance(own, DictConfig) and isinstance(wanted, DictConfig) and "algorithm" in wanted):
        return
    before, now = chosen_algorithm(own), wanted.algorithm
    if before == now or now not in list(ALGORITHMS) or not set(own) - {"algorithm"}:
        return
    sibling = where.removesuffix(".yaml").replace(f"_{before}", f"_{now}")
    known = sibling != where.removesuffix(".yaml") and os.path.isfile(SHIPPED_CONFIGS / f"{sibling}.yaml")
    raise UserError(
        f"expected policy.algorithm={before}, for which the policy section of {where} is written, found the override "
        f"{now}; take the config {sibling if known else SHIPPED_FOR[now]}, or a file with `extends: {where}` and a "
        "policy section of its own"
    )
