"""The record of a finished trial: written whole, and believed when a run is resumed only as it was written."""

import hashlib
import shutil
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from canaryjax.errors import UserError
from canaryjax.models.lora import Adapter
from canaryjax.runlog import RunDirectory
from canaryjax.weights.peft import not_finite, save_adapter

RECORD = "trials/{:04d}.json"
PAIRS = "trials/{:04d}.parquet"
ADAPTER = "adapters/trial-{:04d}"
WITHOUT_ADAPTER = "without_adapter"  # stands in the record of a trial whose adapter could not be kept
REMEDY = "remove it, and --resume trains that policy again"


def keep_record(
    run_dir: RunDirectory,
    record: dict[str, Any],
    pair_rows: Sequence[dict],
    adapter: Adapter | None,
    rank_stabilised: bool = False,
) -> None:
    """Writes a trial's files, its adapter where one is given; the record is last, since it says the trial is done.

    An adapter that training has left with NaN or infinity is not written; the record and so the report say so.
    `rank_stabilised` is how the adapter's scale is written: with the alpha that the study was configured with.
    """
    trial = record["trial"]
    if adapter is not None:
        folder = run_dir.path / ADAPTER.format(trial)
        if folder.is_dir():  # a chunk that was stopped before its records were whole is run again
            shutil.rmtree(folder)
        lost = not_finite(adapter)
        if lost is None:
            with run_dir.telling():
                save_adapter(adapter, folder, rank_stabilised=rank_stabilised)
        else:
            note = f"its adapter is not kept: {lost} holds NaN or infinity"
            record = record | {WITHOUT_ADAPTER: True, "warnings": [*record["warnings"], note]}
    pairs = write_parquet(run_dir, PAIRS.format(trial), pa.Table.from_pylist(list(pair_rows)))
    run_dir.write_sealed(RECORD.format(trial), record | {"pairs_sha256": hashlib.sha256(pairs).hexdigest()})


def is_finished(run_dir: RunDirectory, trial: int, with_adapter: bool) -> bool:
    """Whether a trial has all its files.

    Raises:
      UserError: A file is damaged or another trial's: better said now than after hours of training the rest.
    """
    if not all((run_dir.path / name.format(trial)).is_file() for name in (RECORD, PAIRS)):
        return False
    record = read_record(run_dir, trial)
    read_pairs(run_dir, record)
    return not with_adapter or WITHOUT_ADAPTER in record or (run_dir.path / ADAPTER.format(trial)).is_dir()


def read_record(run_dir: RunDirectory, trial: int) -> dict[str, Any]:
    """A trial's record.

    Raises:
      UserError: It is missing, damaged, or another trial's.
    """
    return run_dir.read_sealed(RECORD.format(trial), REMEDY)


def read_pairs(run_dir: RunDirectory, record: dict[str, Any]) -> pa.Table:
    """The rows of `pairs.parquet` that belong to a record.

    Raises:
      UserError: The file is missing or not the one that was written with the record.
    """
    path = run_dir.path / PAIRS.format(record["trial"])
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"expected the file {path}, found: {error.strerror}; {REMEDY}") from None
    if hashlib.sha256(data).hexdigest() != record["pairs_sha256"]:
        raise UserError(f"expected {path} as the run wrote it, found other contents; {REMEDY}")
    return pq.read_table(pa.BufferReader(data))


def write_parquet(run_dir: RunDirectory, name: str, table: pa.Table) -> bytes:
    """Writes a whole table and returns the file's bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    run_dir.write_bytes(name, data)
    return data
