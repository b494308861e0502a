"""`canaryjax audit --plan`: what a config would run, as a table."""

import json
import os.path
from typing import TYPE_CHECKING, Any

from canaryjax.errors import UserError

if TYPE_CHECKING:
    from canaryjax.audit.plan import Material
    from canaryjax.config import AuditConfig
    from canaryjax.config.probes import ProbesConfig
    from canaryjax.data.example import Example
    from canaryjax.models.config import ModelConfig

    Loaded = tuple[list[Example], list[Example]]


def print_plan(config: "AuditConfig", device: str | None) -> None:
    """Prints counts, tokens, FLOPs, memory and hours of a config; needs no weights and no run directory."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from canaryjax.audit.plan import plan_study

    loaded = study_examples(config)
    plan = plan_study(config, model_shape(config), study_material(config, loaded), device)
    obstacles = machine_obstacles(config, loaded)  # the last that may refuse the plan: nothing is printed before
    table = Table(title=f"Plan of {config.name}", show_header=False, title_justify="left", pad_edge=False)
    for label, value in flat(plan):
        table.add_row(label, Text(value))  # not markup, whatever stands in a value
    Console().print(table)
    for text in missing(config):
        Console().print(f"Not here: {text}", markup=False, highlight=False, soft_wrap=True)
    for text in obstacles:
        Console().print(f"On this machine it would not start: {text}", markup=False, highlight=False, soft_wrap=True)


def missing(config: "AuditConfig") -> list[str]:
    """What a run would need and is not there, with what the plan takes in its place."""
    from canaryjax.weights.checkpoint import model_location

    found = []
    if not model_location(config.model.path).exists():
        found.append(f"the model {config.model.path} (model.path); its shape is taken from its name")
    if config.data.kind != "embedded" and not os.path.exists(config.data.path or ""):
        found.append(f"the documents {config.data.path} (data.path); as many as data.documents are taken")
    return found


def model_shape(config: "AuditConfig | ProbesConfig") -> "ModelConfig":
    """The base model's shape: from its directory where it is there, else from the name of a well-known model."""
    from canaryjax.audit.known_shape import KNOWN_SHAPES, known_shape
    from canaryjax.weights.checkpoint import model_location
    from canaryjax.weights.hf_config import read_config

    file = model_location(config.model.path) / "config.json"
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


def machine_obstacles(config: "AuditConfig", loaded: "Loaded | None") -> list[str]:
    """What keeps the study from starting here, though perhaps not on the machine that the plan is for.

    Raises:
      UserError: What would keep it from starting anywhere, as far as documents and tokenizer are here to tell.
    """
    import jax

    from canaryjax.audit.chunk_size import choose_mesh
    from canaryjax.audit.preflight import check_start
    from canaryjax.models.mesh import make_mesh
    from canaryjax.runlog.trackers import find_trackers
    from canaryjax.weights.checkpoint import load_tokenizer, model_location

    found, wanted = [], config.study.mesh
    try:
        find_trackers(config.output.report_to)
    except UserError as error:
        found.append(str(error))
    if max(wanted.policy or 1, wanted.data, wanted.model) > 1:  # one device is everywhere: none is asked for
        try:
            make_mesh(choose_mesh(config, config.study.policies_per_chunk), jax.local_devices())
        except UserError as error:
            found.append(str(error))
    if not model_location(config.model.path).exists():
        return found
    try:
        tokenizer, vocab_size = load_tokenizer(config.model.path)
    except UserError as error:
        return [*found, str(error)]
    if tokenizer is None:
        return [*found, f"expected a tokenizer beside {config.model.path}, found none; a study writes text: add one"]
    if not tokenizer.eos_ids:
        return [*found, f"expected an EOS id for {config.model.path}, found none; add generation_config.json"]
    if loaded is not None:
        check_start(config, *loaded, tokenizer, vocab_size)
    return found


def study_examples(config: "AuditConfig") -> "Loaded | None":
    """The examples of the warm start and of the study as the run loads them, None where they are not here."""
    from canaryjax.audit.base import reserve_warm_start
    from canaryjax.audit.curation import reserve_dilution
    from canaryjax.data.loaders import load_examples
    from canaryjax.embedded.corpus import generate_examples

    if config.data.kind != "embedded" and not os.path.exists(config.data.path or ""):
        return None
    warm, examples = reserve_warm_start(config, load_examples(config.data, config.study.seed, generate_examples))
    return warm, reserve_dilution(config, examples)[1]


def study_material(config: "AuditConfig", loaded: "Loaded | None") -> "Material":
    """How many documents and questions the study takes: of the examples it loads, else as configured."""
    from canaryjax.audit.plan import Material
    from canaryjax.data.splits import split_documents

    data, wanted, others = config.data, config.model.warm_start.documents, config.provider.dilution_documents
    if loaded is not None:
        warm, examples = loaded
        shares = (data.rm_share, 1.0 - data.rm_share - data.eval_share, data.eval_share)
        split_documents(examples, config.study.seed, "plan", shares)  # for what it refuses
        return Material(len({e.document_id for e in examples}), len(examples), len(warm))
    if data.documents is None:
        raise UserError(f"expected data.documents, or a file at data.path, found {data.path!r}; set one")
    if data.documents <= wanted + others:
        aside = f"{wanted} of model.warm_start.documents" + f" and {others} of provider.dilution_documents" * (
            others > 0
        )
        raise UserError(
            f"expected more documents than the {aside}, found {data.documents}; lower it or raise data.documents"
        )
    questions = data.questions_per_document or 1  # all of them are not known without the file
    documents = data.documents - wanted - others
    return Material(documents, documents * questions, wanted * questions)


def flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """The leaves of a plan as label and text.

    >>> flat({"hours": 1.5, "memory_bytes": {"base": 3e9}})
    [('hours', '1.50'), ('memory bytes: base', '3.00 GB')]
    >>> flat({"hours": 0.00345})
    [('hours', '0.0034 (12.4 seconds)')]
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
    if isinstance(value, int):
        return f"{value:,}"
    if "hours" in label and 0 < value < 1:
        small = f"{60 * value:.1f} minutes" if value >= 1 / 60 else f"{3600 * value:.1f} seconds"
        return f"{value:.2g} ({small})"
    return f"{value:,.2f}" if value >= 0.01 or value == 0 else f"{value:.1g}"
