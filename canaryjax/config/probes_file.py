"""From files and overrides to a validated config of a probe audit."""

from pathlib import Path

from canaryjax.config.file import digest_of, load_file, yaml_of
from canaryjax.config.probes import ProbesConfig

EXAMPLE = "configs/probes_quick.yaml"


def load_probes_config(path: str | Path, overrides: list[str] | None = None) -> ProbesConfig:
    """Reads a YAML file, applies overrides such as `reading.window=24` and validates the result: see `load_file`."""
    return load_file(ProbesConfig, path, overrides, "probes", EXAMPLE, "reading.window=24")


def probes_hash(config: ProbesConfig) -> str:
    """Hex digest of the whole config, but for what changes no number: how often training is kept on disk."""
    values = config.model_dump(mode="json")
    del values["tuning"]["checkpoint_every"]
    return digest_of(values)


def probes_yaml(config: ProbesConfig) -> str:
    """The resolved config, every value, as a run directory keeps it."""
    return yaml_of(config.model_dump(mode="json"))
