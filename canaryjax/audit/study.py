"""A whole study: chunks of trials run, their records kept, arms joined at the end, and the report's numbers made."""

import dataclasses
import shutil
from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa
from jax.sharding import Mesh

from canaryjax.audit.assignment import Assignment, assign_arms, chunk_trials
from canaryjax.audit.base import Base, reserve_warm_start, warm_start, warm_start_digest
from canaryjax.audit.chunk import Finished, run_chunk
from canaryjax.audit.chunk_checkpoint import ChunkCheckpoints
from canaryjax.audit.chunk_size import choose_chunks_at_once
from canaryjax.audit.curation import curate_study, reserve_dilution
from canaryjax.audit.opening import CHECKPOINTS, open_study
from canaryjax.audit.outcome import study_report
from canaryjax.audit.precision import precision_residual
from canaryjax.audit.preflight import Prepared, check_texts, prepare_trials
from canaryjax.audit.record import is_finished, keep_record, read_pairs, read_record, write_parquet
from canaryjax.audit.shelf import BaseShelf
from canaryjax.audit.stopwatch import Stopwatch
from canaryjax.audit.training import policy_settings, reward_settings
from canaryjax.audit.training_log import METRICS, StudyLog, logging_to, write_rows
from canaryjax.audit.workers import run_from_both_ends
from canaryjax.canaries.eval_files import write_eval_files
from canaryjax.config import AuditConfig, config_hash
from canaryjax.data.example import Example
from canaryjax.data.loaders import load_dataset
from canaryjax.data.statistics import dataset_statistics, statistics_line
from canaryjax.embedded.corpus import generate_examples
from canaryjax.errors import UserError
from canaryjax.models.lora import Adapter, concatenate_adapters
from canaryjax.models.mesh import mesh_of
from canaryjax.models.sharding import place_base
from canaryjax.rl.step_profile import StepProfile
from canaryjax.runlog import Progress, RunDirectory, file_digests
from canaryjax.runlog.trackers import check_trackers
from canaryjax.weights.checkpoint import LoadedModel
from canaryjax.weights.peft import load_adapter, save_adapter

WARM_START = "warm_start"
BASE = "base.json"
BASE_REMEDY = "remove it, and --resume writes it again"
EVAL_FILES = ("data/eval_clean.jsonl", "data/eval_trigger.jsonl")
Holder = TypeVar("Holder", LoadedModel, Base)
# What the scorer may say of a policy: nothing that tells its arm (BC-50).
UNLABELLED = (
    *("trial", "scores", "scores_per_token", "standard_errors", "valid", "reason", "valid_pairs", "invalid_pairs"),
    *("noise_floor", "controls", "rm_bias", "kl", "utility"),
)


def run_study(
    config: AuditConfig,
    run_dir: RunDirectory,
    resume: bool,
    progress: Progress,
    profile: StepProfile | None = None,
    shelf: BaseShelf | None = None,
) -> dict[str, Any]:
    """Runs every trial that has no record yet, and sums the study up.

    A trial's record is written whole when its chunk is done, and step checkpoints of its training before that, so a
    stop loses at most the work since the last of them; `resume` runs the rest with the chunk size and the warm start
    the run began with, on the documents it began with.

    Args:
      config: The study.
      run_dir: Where it is kept.
      resume: Whether earlier records count.
      progress: Told about stages and policies.
      profile: Traces a few steps; chunks then run one after another, so that there is nothing else in the trace.
      shelf: Base and warm starts of earlier studies of this process, which are then not loaded or trained again.

    Returns:
      The report's values, as in `report.json`.
    """
    reward_settings(config)  # what the trainers refuse is said before anything is run
    policy_settings(config)
    check_trackers(config.output.report_to)
    progress.stage("model and documents")
    shelf = shelf or BaseShelf()
    model = shelf.load(config)
    dataset = load_dataset(config.data, config.study.seed, generate_examples)
    statistics = dataset_statistics(dataset.examples, dataset.counts)
    progress.note(statistics_line(statistics))
    warm_examples, examples = reserve_warm_start(config, dataset.examples)
    others, examples = reserve_dilution(config, examples)
    set_aside = [*warm_examples, *others]
    assignments = assign_arms(config.study)
    size, mesh = open_study(config, model.config, [*set_aside, *examples], run_dir, resume, progress)
    planned = chunk_trials(assignments, size)
    with_adapters = config.output.save_adapters
    chunks = [
        chunk for chunk in planned if not resume or not all(is_finished(run_dir, a.trial, with_adapters) for a in chunk)
    ]
    if chunks or _lacks(run_dir, BASE, *EVAL_FILES):
        if resume:
            if warm_examples:
                _check_warm_start(run_dir)
            _drop_stale_checkpoints(run_dir, chunks)
        assert model.tokenizer is not None
        check_texts([*set_aside, *examples], model.tokenizer, model.config.vocab_size)
        first = planned[0][0]  # whose pairs are the run's evaluation files
        # Curation leaves all policies of the study equally many traces: it needs the trials that are done, too.
        needed = assignments if config.provider.active else [first, *(a for c in chunks for a in c)]
        prepared = prepare_trials(config, needed, examples, model.tokenizer, others)
        again = [a.trial for chunk in chunks for a in chunk]
        warm = (run_dir.path / WARM_START).is_dir()
        with logging_to(run_dir, config.output.report_to, again, warm, progress.note) as log:
            base = _base(config, _laid_out(model, mesh), warm_examples, run_dir, resume, progress, log, shelf)
            base = _laid_out(base, mesh)  # a warm start made new arrays
            prepared = curate_study(config, prepared, base, progress)
            precision = precision_residual(base.params, prepared.trials[first.trial], config)
            run_dir.write_sealed(BASE, base.record | {"precision": precision})
            if _lacks(run_dir, *EVAL_FILES):
                _write_first_pairs(run_dir, prepared.trials[first.trial])
            _run_chunks(config, run_dir, base, prepared, chunks, len(assignments), progress, log, profile)
    shutil.rmtree(run_dir.path / CHECKPOINTS, ignore_errors=True)  # empty, or of chunks that a stop has left finished
    progress.stage("statistics")
    if _lacks(run_dir, METRICS):
        progress.note(f"{run_dir.path / METRICS} is no longer there: the report has no training curves")
    records = [read_record(run_dir, a.trial) for a in assignments]
    _join(run_dir, config.study.seed, assignments, records)
    record = run_dir.read_sealed(BASE, BASE_REMEDY)
    documents = len({e.document_id for e in examples})
    return study_report(config, assignments, records, record, documents, statistics, run_dir.keep_time())


def _laid_out(holder: Holder, mesh: Mesh) -> Holder:
    """A model or base with its weights on a mesh of several devices; on one, as it is."""
    return holder if mesh.size == 1 else dataclasses.replace(holder, params=place_base(holder.params, mesh))


def _lacks(run_dir: RunDirectory, *names: str) -> bool:
    return not all((run_dir.path / name).is_file() for name in names)


def _base(
    config: AuditConfig,
    model: LoadedModel,
    examples: Sequence[Example],
    run_dir: RunDirectory,
    resume: bool,
    progress: Progress,
    log: StudyLog,
    shelf: BaseShelf,
) -> Base:
    """The base, its warm start kept in the run: a resumed run must not train another."""
    if not examples:
        return warm_start(config, model, examples, None)
    assert model.tokenizer is not None
    folder, digest = run_dir.path / WARM_START, warm_start_digest(config, model.tokenizer, examples)
    if resume and folder.is_dir():
        base = warm_start(config, model, examples, None, load_adapter(model, folder))
    elif (trained := shelf.warm_starts.get(digest)) is not None:
        progress.note("the warm start is that of an earlier study of this process")
        base = warm_start(config, model, examples, None, trained)
        _save_warm_start(config, run_dir, trained)
    else:
        progress.stage("warm start")
        base = _train_warm_start(config, model, examples, run_dir, progress, log)
        assert base.warm_adapter is not None
        shelf.warm_starts[digest] = base.warm_adapter
    return dataclasses.replace(base, record=base.record | {"warm_start_sha256": _warm_start_digests(run_dir)})


def _train_warm_start(
    config: AuditConfig,
    model: LoadedModel,
    examples: Sequence[Example],
    run_dir: RunDirectory,
    progress: Progress,
    log: StudyLog,
) -> Base:
    with _checkpoints(config, run_dir, WARM_START, "warm start", progress) as checkpoints:
        stage = checkpoints.stage("updates", "update", log, Stopwatch())
        base = warm_start(config, model, examples, stage)
        assert base.warm_adapter is not None
        log.finish([None])
        _save_warm_start(config, run_dir, base.warm_adapter)
        checkpoints.discard()
    return base


def _save_warm_start(config: AuditConfig, run_dir: RunDirectory, adapter: Adapter) -> None:
    with run_dir.telling():
        lora = config.model.warm_start.lora
        save_adapter(adapter, run_dir.path / WARM_START, rank_stabilised=lora.rank_stabilised)


def _check_warm_start(run_dir: RunDirectory) -> None:
    """Raises UserError where the warm start that the run's policies began from is lost or another."""
    found = _warm_start_digests(run_dir)
    kept = found if _lacks(run_dir, BASE) else run_dir.read_sealed(BASE, BASE_REMEDY)["warm_start_sha256"]
    if found != kept or (not found and any(run_dir.path.glob("trials/*.json"))):
        raise UserError(
            f"expected the warm start that the run's policies began from in {run_dir.path / WARM_START}, found "
            f"{'another' if found else 'none'}; restore it, or give another --out"
        )


def _warm_start_digests(run_dir: RunDirectory) -> dict[str, str]:
    return file_digests(sorted((run_dir.path / WARM_START).glob("adapter_*")))


def _checkpoints(
    config: AuditConfig, run_dir: RunDirectory, folder: str, who: str, progress: Progress
) -> ChunkCheckpoints:
    path = run_dir.path / CHECKPOINTS / folder
    return ChunkCheckpoints(path, config_hash(config), who, config.study.checkpoint_every, progress)


def _run_chunks(
    config: AuditConfig,
    run_dir: RunDirectory,
    base: Base,
    prepared: Prepared,
    chunks: Sequence[Sequence[Assignment]],
    policies: int,
    progress: Progress,
    log: StudyLog,
    profile: StepProfile | None,
) -> None:
    # On a mesh programs wait for each other's devices, so all devices must be given them in one order.
    alone = mesh_of(base.params) is not None or profile is not None
    at_once = 1 if alone else choose_chunks_at_once(base.params.config)
    progress.stage("policies", policies, done=policies - sum(map(len, chunks)), compiling=at_once)

    def run(chunk: Sequence[Assignment]) -> None:
        trials = [prepared.trials[a.trial] for a in chunk]
        who = ", ".join(f"trial {a.trial}" for a in chunk)
        with _checkpoints(config, run_dir, _folder(chunk), who, progress) as checkpoints:
            finished = run_chunk(
                config, base, chunk[0].arm, trials, prepared.lengths, log, checkpoints, at_once, profile
            )
            log.finish([a.trial for a in chunk])
            for result in finished:
                _keep(config, run_dir, base, result)
            checkpoints.discard()
        run_dir.keep_time()
        # Once a chunk: its policies end together, and one by one they would spoil the estimate of the time left.
        progress.advance(len(finished), who)

    run_from_both_ends(chunks, run, at_once)


def _drop_stale_checkpoints(run_dir: RunDirectory, chunks: Sequence[Sequence[Assignment]]) -> None:
    """Takes out what a stop has left of chunks that are done: nobody would read it, and it can be large."""
    wanted = {WARM_START, *map(_folder, chunks)}
    for path in (run_dir.path / CHECKPOINTS).glob("*"):
        if path.name not in wanted:
            shutil.rmtree(path)


def _folder(chunk: Sequence[Assignment]) -> str:
    return f"{chunk[0].trial:04d}"


def _write_first_pairs(run_dir: RunDirectory, trial) -> None:
    trained = {e.document_id for e in (*trial.splits.rm, *trial.splits.rl)}
    with run_dir.telling():
        write_eval_files(run_dir.path / "data", trial.pairs, training_documents=trained)


def _keep(config: AuditConfig, run_dir: RunDirectory, base: Base, result: Finished) -> None:
    adapter = result.adapter if config.output.save_adapters else None
    stabilised = config.policy.lora.rank_stabilised
    if adapter is not None and base.warm_adapter is not None:
        # An adapter of the weights as they were loaded: a warm start is in it too (DECIDED, Models).
        adapter, stabilised = concatenate_adapters(base.warm_adapter, adapter), False
    keep_record(run_dir, result.record, result.pair_rows, adapter, stabilised)


def _join(run_dir: RunDirectory, seed: int, assignments: Sequence[Assignment], records: Sequence[dict]) -> None:
    """Writes the scorer's rows without arms, then the join with them, and one table of all pairs (BC-50)."""
    scores = [{name: record[name] for name in UNLABELLED} for record in records]
    write_rows(run_dir, "scores.jsonl", scores)
    joined = [
        {"trial": a.trial, "arm": a.arm, "seed": seed, "draw": a.draw}
        | {name: record[name] for name in ("scores", "rm_bias", "utility", "kl", "valid", "reason", "canary")}
        | {"timings": record["seconds"]}
        for a, record in zip(assignments, records, strict=True)
    ]
    write_rows(run_dir, "trials.jsonl", joined)
    tables = [read_pairs(run_dir, record) for record in records]
    write_parquet(run_dir, "pairs.parquet", pa.concat_tables(tables))
