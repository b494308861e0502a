"""What a run was begun with, kept so that a resumed run is one study with what it has."""

import hashlib
import math
import shutil
from collections.abc import Sequence

import jax
from jax.sharding import Mesh

from canaryjax.audit.chunk_size import choose_chunk_size, choose_mesh, shrink_mesh
from canaryjax.config import AuditConfig
from canaryjax.data.example import Example
from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.mesh import make_mesh
from canaryjax.runlog import OPENING_FILE, Progress, RunDirectory, file_digests, threads
from canaryjax.runlog.files import encode
from canaryjax.runlog.opening import read_opening, refuse_changed
from canaryjax.weights.checkpoint import model_files, model_location

CHECKPOINTS = "checkpoints"


def open_study(
    config: AuditConfig,
    shape: ModelConfig,
    examples: Sequence[Example],
    run_dir: RunDirectory,
    resume: bool,
    progress: Progress,
) -> tuple[int, Mesh]:
    """Policies trained together and their mesh, saved with digests of the documents and of the base model.

    Another size, mesh or number of threads may differ in the last bits; other documents or weights are another study.
    Size and mesh are taken up again; threads and devices, which the machine has or has not, are kept to be told of.

    Args:
      config: The study.
      shape: The base model's.
      examples: All documents with their questions, the warm start's too.
      run_dir: Where the study is kept.
      resume: Whether it was begun before.
      progress: Told where the number of threads is another, or the mesh must be.

    Raises:
      UserError: The run was begun with other documents or another base, or no longer says with what; a mesh that the
        machine's devices do not make.
    """
    now = {
        "threads": threads(),
        "documents_sha256": _digest(examples),
        "base_sha256": file_digests(model_files(model_location(config.model.path))),
    }
    opening = read_opening(run_dir) if resume else None
    if opening is not None:
        _compare(run_dir, opening, now)
        if opening["threads"] != now["threads"]:
            progress.note(
                f"the run was begun with {opening['threads']} threads and goes on with {now['threads']}: the last bits "
                "of what is still to come may differ from a run that was never stopped"
            )
        return opening["policies_per_chunk"], _mesh_again(opening, run_dir, progress)
    mesh = make_mesh(choose_mesh(config, config.study.policies_per_chunk), jax.local_devices())
    size = choose_chunk_size(config, shape, mesh.shape)
    run_dir.write_sealed(OPENING_FILE, {"policies_per_chunk": size, "mesh": dict(mesh.shape)} | now)
    return size, mesh


def _mesh_again(opening: dict, run_dir: RunDirectory, progress: Progress) -> Mesh:
    """The mesh the run was on last, or where there are too few devices for it, the largest within it that they make."""
    begun, devices = opening["mesh"], jax.local_devices()
    if math.prod(begun.values()) <= len(devices):
        return make_mesh(begun, devices)
    mesh = make_mesh(shrink_mesh(begun, opening["policies_per_chunk"], len(devices)), devices)
    progress.note(
        f"the run was begun on the mesh {begun} and goes on with {len(devices)} devices on {dict(mesh.shape)}: "
        "what was under way begins anew, and the last bits of what is still to come may differ"
    )
    shutil.rmtree(run_dir.path / CHECKPOINTS, ignore_errors=True)  # copies may fill their chunks up to another number
    run_dir.write_sealed(OPENING_FILE, opening | {"mesh": dict(mesh.shape)})
    return mesh


def _compare(run_dir: RunDirectory, opening: dict, now: dict) -> None:
    begun, found = opening["documents_sha256"], now["documents_sha256"]
    if begun != found:
        raise UserError(
            f"expected the documents that {run_dir.path} was begun with (sha256 {begun[:12]}), "
            f"found others (sha256 {found[:12]}); give the same data to resume, or another --out"
        )
    refuse_changed(run_dir, "base model", opening["base_sha256"], now["base_sha256"])


def _digest(examples: Sequence[Example]) -> str:
    """sha256 of what the examples say, in their order."""
    digest = hashlib.sha256()
    for e in examples:
        digest.update(encode([e.id, e.document_id, e.group, e.document, e.question, e.answer])[0])
    return digest.hexdigest()
