"""From files and overrides to a validated config of a detector run, and what of it a run may keep."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from canaryjax.config.detector import DetectorConfig
from canaryjax.config.file import digest_of, load_file, yaml_of

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
    """Reads a YAML file, applies overrides such as `probing.repeats=3` and validates the result: see `load_file`."""
    return load_file(DetectorConfig, path, overrides, "detector probe", EXAMPLE, "probing.repeats=3")


def detector_hash(config: DetectorConfig) -> str:
    """Hex digest of all that determines the answers and what is made of them, but for the site's files."""
    return digest_of(_without(config, SECRET + TRAVEL))


def stored_yaml(config: DetectorConfig) -> str:
    """What a run directory keeps of a config: nothing that tells which site it is, no password in an address."""
    return yaml_of(_without(config, SECRET))


def _without(config: DetectorConfig, keys: tuple[str, ...]) -> dict[str, Any]:
    values = config.model_dump(mode="json")
    for key in keys:
        section, name = key.split(".")
        del values[section][name]
    if (address := values["model"]["base_url"]) is not None:
        parts = urlsplit(address)
        values["model"]["base_url"] = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return values
