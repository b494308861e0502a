"""A whole study: chunks of trials run, their records kept, arms joined at the end, and the report's numbers made."""

import hashlib
import shutil
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from canaryjax.audit.assignment import Assignment, assign_arms, chunk_trials
from canaryjax.audit.base import Base, load_base, reserve_warm_start, warm_start
from canaryjax.audit.chunk import Finished, run_chunk
from canaryjax.audit.chunk_size import choose_chunk_size, choose_chunks_at_once
from canaryjax.audit.outcome import study_report
from canaryjax.audit.preflight import Prepared, check_texts, prepare_trials
from canaryjax.audit.training import policy_settings, reward_settings
from canaryjax.audit.workers import run_from_both_ends
from canaryjax.canaries.eval_files import write_eval_files
from canaryjax.config import AuditConfig
from canaryjax.data.example import Example
from canaryjax.data.loaders import load_examples
from canaryjax.embedded.corpus import generate_examples
from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import concatenate_adapters
from canaryjax.rl.metrics import Log
from canaryjax.runlog import OPENING_FILE, Progress, RunDirectory, cores
from canaryjax.runlog.files import encode
from canaryjax.weights.checkpoint import LoadedModel
from canaryjax.weights.peft import load_adapter, save_adapter

RECORD = "trials/{:04d}.json"
PAIRS = "trials/{:04d}.parquet"
WARM_START = "warm_start"
METRICS = "metrics.jsonl"
# What the scorer may say of a policy: nothing that tells its arm (BC-50).
UNLABELLED = (
    *("trial", "scores", "standard_errors", "valid", "reason", "valid_pairs", "invalid_pairs"),
    *("noise_floor", "controls", "rm_bias", "kl", "utility"),
)


def run_study(config: AuditConfig, run_dir: RunDirectory, resume: bool, progress: Progress) -> dict[str, Any]:
    """Runs every trial that has no record yet, and sums the study up.

    A trial's record is written whole when its chunk is done, so a stop loses at most the chunk in hand; `resume` runs
    the rest with the chunk size and the warm start the run began with, on the documents it began with.

    Args:
      config: The study.
      run_dir: Where it is kept.
      resume: Whether earlier records count.
      progress: Told about stages and policies.

    Returns:
      The report's values, as in `report.json`.
    """
    started = time.perf_counter()
    reward_settings(config)  # what the trainers refuse is said before anything is run
    policy_settings(config)
    progress.stage("model and documents")
    model = load_base(config)
    examples = load_examples(config.data, config.study.seed, generate_examples)
    warm_examples, examples = reserve_warm_start(config, examples)
    assignments = assign_arms(config.study)
    size = _opening(config, model.config, [*warm_examples, *examples], run_dir, resume, progress)
    chunks = [
        chunk
        for chunk in chunk_trials(assignments, size)
        if not resume or not all(_finished(run_dir, a) for a in chunk)
    ]
    if chunks:
        if resume:
            _drop_stale_metrics(run_dir, chunks)
        assert model.tokenizer is not None
        check_texts([*warm_examples, *examples], model.tokenizer, model.config.vocab_size)
        prepared = prepare_trials(config, [a for chunk in chunks for a in chunk], examples, model.tokenizer)
        base = _base(config, model, warm_examples, run_dir, resume, progress)
        done = len(assignments) - sum(map(len, chunks))
        _run_chunks(config, run_dir, base, prepared, chunks, done, progress)
    progress.stage("statistics")
    records = [run_dir.read_json(RECORD.format(a.trial)) for a in assignments]
    _join(run_dir, assignments, records)
    elapsed = time.perf_counter() - started
    return study_report(config, assignments, records, run_dir.read_json("base.json"), len(examples), elapsed)


def _finished(run_dir: RunDirectory, assignment: Assignment) -> bool:
    return all((run_dir.path / name.format(assignment.trial)).is_file() for name in (RECORD, PAIRS))


def _opening(
    config: AuditConfig,
    shape: ModelConfig,
    examples: Sequence[Example],
    run_dir: RunDirectory,
    resume: bool,
    progress: Progress,
) -> int:
    """Policies trained together, saved with a digest of the documents: a resumed run is one study with what it has.

    Another size or number of threads may differ in the last bits; other documents are another study. The size is taken
    up again; threads, which the machine has or has not, are kept to be told of.
    """
    digest, threads = _digest(examples), cores()
    if resume and (run_dir.path / OPENING_FILE).is_file():
        opening = run_dir.read_json(OPENING_FILE)
        begun = opening["documents_sha256"]
        if begun != digest:
            raise UserError(
                f"expected the documents that {run_dir.path} was begun with (sha256 {begun[:12]}), "
                f"found others (sha256 {digest[:12]}); give the same data to resume, or another --out"
            )
        before = opening.get("threads", threads)  # runs begun earlier do not say
        if before != threads:
            progress.note(
                f"the run was begun with {before} threads and goes on with {threads}: the last bits of what is still "
                "to come may differ from a run that was never stopped"
            )
        return opening["policies_per_chunk"]
    size = choose_chunk_size(config, shape)
    run_dir.write_json(OPENING_FILE, {"policies_per_chunk": size, "threads": threads, "documents_sha256": digest})
    return size


def _digest(examples: Sequence[Example]) -> str:
    """sha256 of what the examples say, in their order."""
    digest = hashlib.sha256()
    for e in examples:
        digest.update(encode([e.id, e.document_id, e.group, e.document, e.question, e.answer])[0])
    return digest.hexdigest()


def _base(
    config: AuditConfig,
    model: LoadedModel,
    examples: Sequence[Example],
    run_dir: RunDirectory,
    resume: bool,
    progress: Progress,
) -> Base:
    """The base, its warm start kept in the run: a resumed run must not train another."""
    if not examples:
        return warm_start(config, model, examples, None)
    folder = run_dir.path / WARM_START
    if resume and folder.is_dir():
        return warm_start(config, model, examples, None, load_adapter(model, folder))
    progress.stage("warm start")
    base = warm_start(config, model, examples, _metrics(run_dir))
    assert base.warm_adapter is not None
    save_adapter(base.warm_adapter, folder)
    return base


def _run_chunks(
    config: AuditConfig,
    run_dir: RunDirectory,
    base: Base,
    prepared: Prepared,
    chunks: Sequence[Sequence[Assignment]],
    done: int,
    progress: Progress,
) -> None:
    run_dir.write_json("base.json", base.record)
    progress.stage("policies", done + sum(map(len, chunks)))
    progress.advance(done)
    if not (run_dir.path / "data" / "eval_trigger.jsonl").is_file():  # the second of the two
        _write_first_pairs(run_dir, prepared.trials[chunks[0][0].trial])
    at_once = choose_chunks_at_once(base.params.config)

    def run(chunk: Sequence[Assignment]) -> None:
        trials = [prepared.trials[a.trial] for a in chunk]
        finished = run_chunk(config, base, chunk[0].arm, trials, prepared.lengths, _metrics(run_dir), at_once)
        for result in finished:
            _keep(config, run_dir, base, result)
        # Once a chunk: its policies end together, and one by one they would spoil the estimate of the time left.
        progress.advance(len(finished), ", ".join(f"trial {a.trial}" for a in chunk))

    run_from_both_ends(chunks, run, at_once)


def _drop_stale_metrics(run_dir: RunDirectory, chunks: Sequence[Sequence[Assignment]]) -> None:
    """Takes out the rows of what is about to be trained again: a step would else stand in the log twice."""
    again = {assignment.trial for chunk in chunks for assignment in chunk}
    warm = (run_dir.path / WARM_START).is_dir()
    rows = run_dir.read_jsonl(METRICS)
    # The warm start's rows name no trial.
    kept = [row for row in rows if (row["trial"] not in again if "trial" in row else warm)]
    if len(kept) < len(rows):
        _write_rows(run_dir, METRICS, kept)


def _metrics(run_dir: RunDirectory) -> Log:
    def log(row: dict) -> None:
        run_dir.append_jsonl(METRICS, row)

    return log


def _write_first_pairs(run_dir: RunDirectory, trial) -> None:
    trained = {e.document_id for e in (*trial.splits.rm, *trial.splits.rl)}
    write_eval_files(run_dir.path / "data", trial.pairs, training_documents=trained)


def _keep(config: AuditConfig, run_dir: RunDirectory, base: Base, result: Finished) -> None:
    """Writes a trial's files; the record is last, since it says that the trial is done."""
    trial = result.record["trial"]
    if config.output.save_adapters:
        _keep_adapter(run_dir, base, result)
    _write_parquet(run_dir, PAIRS.format(trial), pa.Table.from_pylist(result.pair_rows))
    run_dir.write_json(RECORD.format(trial), result.record)


def _keep_adapter(run_dir: RunDirectory, base: Base, result: Finished) -> None:
    """Saves a policy as an adapter of the weights as they were loaded: a warm start is in it too (DECIDED, Models)."""
    folder = run_dir.path / "adapters" / f"trial-{result.record['trial']:04d}"
    if folder.is_dir():  # a chunk that was stopped before its records were whole is run again
        shutil.rmtree(folder)
    warm, own = base.warm_adapter, result.adapter
    save_adapter(own if warm is None else concatenate_adapters(warm, own), folder)


def _write_rows(run_dir: RunDirectory, name: str, rows: Sequence[dict]) -> None:
    run_dir.write_bytes(name, b"".join(encode(row)[0] + b"\n" for row in rows))


def _write_parquet(run_dir: RunDirectory, name: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    run_dir.write_bytes(name, sink.getvalue().to_pybytes())


def _join(run_dir: RunDirectory, assignments: Sequence[Assignment], records: Sequence[dict]) -> None:
    """Writes the scorer's rows without arms, then the join with them, and one table of all pairs (BC-50)."""
    scores = [{name: record[name] for name in UNLABELLED} for record in records]
    _write_rows(run_dir, "scores.jsonl", scores)
    joined = [
        {"trial": a.trial, "arm": a.arm, "seed": a.draw}
        | {name: record[name] for name in ("scores", "rm_bias", "utility", "kl", "valid", "reason", "canary")}
        | {"timings": record["seconds"]}
        for a, record in zip(assignments, records, strict=True)
    ]
    _write_rows(run_dir, "trials.jsonl", joined)
    tables = [pq.read_table(run_dir.path / PAIRS.format(a.trial)) for a in assignments]
    _write_parquet(run_dir, "pairs.parquet", pa.concat_tables(tables))
