"""`canaryjax audit --plan`: what a config would run, as a table."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.config import AuditConfig
    from canaryjax.models.config import ModelConfig


def print_plan(config: "AuditConfig", device: str) -> None:
    """Prints counts, tokens, FLOPs, memory and hours of a config; needs no weights and no run directory."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from canaryjax.audit.plan import plan_study

    table = Table(title=f"Plan of {config.name}", show_header=False, title_justify="left", pad_edge=False)
    for label, value in flat(plan_study(config, model_shape(config), document_count(config), device)):
        table.add_row(label, Text(value))  # not markup, whatever stands in a value
    Console().print(table)


def model_shape(config: "AuditConfig") -> "ModelConfig":
    """The base model's shape: from its directory where it is there, else from the name of a well-known model."""
    from canaryjax.audit.base import model_path
    from canaryjax.audit.plan import KNOWN_SHAPES, known_shape
    from canaryjax.weights.hf_config import read_config

    file = model_path(config) / "config.json"
    if file.is_file():
        try:
            return read_config(json.loads(file.read_bytes()), str(file), config.model.dtype)
        except ValueError as error:
            raise error if isinstance(error, UserError) else UserError(f"expected JSON in {file}; {error}") from error
    shape = known_shape(config.model.path)
    if shape is None:
        raise UserError(
            f"expected a model directory, or a path that names one of {sorted(KNOWN_SHAPES)}, found "
            f"{config.model.path!r}; set model.path"
        )
    return shape


def document_count(config: "AuditConfig") -> int:
    """How many documents the study takes: as configured, else the lines of its file."""
    if config.data.documents is not None:
        return config.data.documents
    file = Path(config.data.path or "")
    if not file.is_file():
        raise UserError(f"expected data.documents, or a file at data.path, found {config.data.path!r}; set one")
    with file.open("rb") as lines:
        return sum(bool(line.strip()) for line in lines)


def flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """The leaves of a plan as label and text.

    >>> flat({"hours": 1.5, "memory_bytes": {"base": 3e9}})
    [('hours', '1.50'), ('memory bytes: base', '3.00 GB')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        label = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, dict):
            rows += flat(value, f"{label}: ")
        else:
            rows.append((label, _text(label, value)))
    return rows


def _text(label: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unknown"
    if not isinstance(value, (int, float)):
        return str(value)
    if "bytes" in label:
        return f"{value / 1e9:,.2f} GB"
    if "flops" in label:
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
