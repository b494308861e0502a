"""What a resumed run takes over from the one that was stopped, and what it does again."""

import dataclasses
import json
import os
import resource
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from canaryjax.audit import study
from canaryjax.audit.opening import open_study
from canaryjax.audit.record import is_finished, keep_record, read_pairs, read_record
from canaryjax.audit.training_log import logging_to
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, save_tokenizer
from canaryjax.errors import UserError
from canaryjax.models.lora import Adapter, LoraPair, init_adapter
from canaryjax.runlog import RunDirectory, Silence, cores
from canaryjax.weights.export import save_model
from canaryjax.weights.peft import save_adapter


class Notes(Silence):
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", "abc", "name: quick\n")
    yield run
    run.close()


@pytest.mark.parametrize("kept_warm_start", [True, False])
def test_metrics_of_what_is_trained_again_leave_the_log(run, kept_warm_start):
    warm = [{"stage": "warm_start", "step": 0, "loss": 0.1 + 0.2}]
    done = [{"trial": 4, "stage": "grpo", "step": step, "kl": 1e-7 * step} for step in range(3)]
    stale = [{"trial": trial, "stage": "reward_model", "step": 0} for trial in (1, 7)]
    for row in warm + stale[:1] + done + stale[1:]:
        run.append_jsonl("metrics.jsonl", row)
    for trial in (1, 4, 7):
        run.append_jsonl("samples.jsonl", {"trial": trial, "step": 0, "completion": "FINAL:"})
    # Trial 7 ended before the stop, but its chunk is run again with trial 1: kept, its steps would stand there twice.
    with logging_to(run, (), [1, 7], kept_warm_start, print) as log:
        log({"trial": 7, "stage": "sample", "step": 0, "completion": "again"})
    assert run.read_jsonl("metrics.jsonl") == (warm if kept_warm_start else []) + done
    assert run.read_jsonl("samples.jsonl") == [
        {"trial": 4, "step": 0, "completion": "FINAL:"},
        {"trial": 7, "step": 0, "completion": "again"},
    ]


@pytest.fixture(scope="module")
def base_config(small_config, tiny_model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "model"
    save_model(tiny_model, folder, eos_ids=[EOS_ID], pad_id=PAD_ID)
    save_tokenizer(tokenizer.backend, folder)
    section = small_config.model.model_copy(update={"path": str(folder)})
    study_section = small_config.study.model_copy(update={"policies_per_chunk": 3})
    return small_config.model_copy(update={"model": section, "study": study_section})


@pytest.fixture
def opening(base_config, tiny_model, examples, run):
    """Opens the study as a run or a resumed run does: the chunk size, and what was said."""

    def open_it(resume=True, policies_per_chunk=3, examples=examples):
        notes = Notes()
        section = base_config.study.model_copy(update={"policies_per_chunk": policies_per_chunk})
        config = base_config.model_copy(update={"study": section})
        size, _ = open_study(config, tiny_model.config, examples, run, resume, notes)
        return size, notes.said

    return open_it


@pytest.fixture
def model(base_config):
    """The folder of the base model, put back as it was."""
    folder = Path(base_config.model.path)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    yield folder
    for path in folder.iterdir():
        path.unlink()
    for path, data in before.items():
        path.write_bytes(data)


def test_another_number_of_threads_is_told_and_the_chunk_size_kept(run, opening, monkeypatch):
    assert opening(resume=False) == (3, [])
    assert opening(policies_per_chunk=2) == (3, [])
    kept = run.read_sealed("opening.json", "")
    assert kept["threads"] == cores()
    run.write_sealed("opening.json", kept | {"threads": 61})
    size, said = opening(policies_per_chunk=2)
    assert size == 3
    assert len(said) == 1
    assert f"begun with 61 threads and goes on with {cores()}" in said[0]
    monkeypatch.setenv("PJRT_NPROC", "61")  # XLA's own, whatever the cores: as a sweep's worker has it
    assert opening() == (3, [])


def test_other_weights_or_another_tokenizer_are_another_study(opening, model):
    opening(resume=False)
    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1  # one bit of one number: neither size nor header tells, nor does the time stamp
    os_times = weights.stat()
    weights.write_bytes(data)
    os.utime(weights, ns=(os_times.st_atime_ns, os_times.st_mtime_ns))
    with pytest.raises(
        UserError, match=r"base model that .* found other contents in model\.safetensors; give the same"
    ):
        opening()
    data[-1] ^= 1
    weights.write_bytes(data)
    assert opening() == (3, [])  # the same bytes in a newer file
    tokenizer = model / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text("utf-8") + " ", "utf-8")
    (model / "generation_config.json").write_text('{"eos_token_id": 3}')
    with pytest.raises(UserError, match=r"other contents in generation_config\.json, tokenizer\.json; give"):
        opening()


def test_files_that_no_loader_reads_do_not_matter(opening, model):
    opening(resume=False)
    (model / "README.md").write_text("new")
    (model / "trainer_state.json").write_text("{}")
    assert opening() == (3, [])


def test_other_documents_are_another_study(opening, examples):
    opening(resume=False)
    first, *rest = examples
    with pytest.raises(UserError, match=r"the documents that .* was begun with .* give the same data"):
        opening(examples=[dataclasses.replace(first, answer=first.answer + "s"), *rest])


def test_a_run_that_no_longer_says_what_it_was_begun_with_is_refused(run, opening):
    assert opening() == (3, [])  # killed before it was written: nothing was trained, so it is a new run
    (run.path / "opening.json").unlink()
    (run.path / "warm_start").mkdir()
    # Accepted, it would be written anew, with whatever base and documents there are now.
    with pytest.raises(UserError, match=r"opening\.json in .* beside warm_start, found none: .*; restore it"):
        opening()
    assert not (run.path / "opening.json").exists()


@pytest.mark.parametrize("change", [None, {"policies_per_chunk": None}, {"policies_per_chunk": 0}, {"threads": "x"},
                                    {"documents_sha256": None}, {"base_sha256": []}])  # fmt: skip
def test_a_damaged_opening_is_refused(run, opening, change):
    opening(resume=False)
    file = run.path / "opening.json"
    whole = json.loads(file.read_text())
    file.write_text(json.dumps({} if change is None else whole | change))
    with pytest.raises(UserError, match=r"opening\.json as the run wrote it, .*; restore it, or give another --out"):
        opening()


PAIRS = [{"trial": 0, "pair": "a", "logp": -1.5}, {"trial": 0, "pair": "b", "logp": None}]


@pytest.fixture
def kept(run):
    """Two finished trials."""
    for trial in range(2):
        keep_record(run, {"trial": trial, "scores": {"clean_raw": 0.1 + 0.2}}, PAIRS, None)
    assert all(is_finished(run, trial, with_adapter=False) for trial in range(2))
    return run


@pytest.mark.parametrize("name", ["trials/0001.json", "trials/0001.parquet"])
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"PAR1", "half", "other"])
def test_a_damaged_or_copied_record_is_refused_before_anything_is_trained(kept, name, content):
    file = kept.path / name
    if content == "half":
        content = file.read_bytes()[: file.stat().st_size // 2]
    elif content == "other":
        keep_record(kept, {"trial": 0, "scores": None}, PAIRS[:1], None)
        content = (kept.path / name.replace("0001", "0000")).read_bytes()
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}.*; remove it, and --resume trains that policy again"):
        is_finished(kept, 1, with_adapter=False)


def test_the_files_of_another_trial_are_no_record_of_this_one(kept):
    # A whole trial copied over another once counted twice.
    for suffix in ("json", "parquet"):
        shutil.copy(kept.path / f"trials/0000.{suffix}", kept.path / f"trials/0001.{suffix}")
    with pytest.raises(UserError, match=r"0001\.json as the run wrote it, .* is a copy"):
        is_finished(kept, 1, with_adapter=False)


@pytest.mark.parametrize("lost", ["trials/0001.json", "trials/0001.parquet", "adapters/trial-0001"])
def test_a_trial_without_one_of_its_files_is_not_finished(run, tiny_model, lost):
    adapter = init_adapter(jax.random.key(3), tiny_model.config, rank=2, alpha=2.0)
    for trial in range(2):
        keep_record(run, {"trial": trial}, PAIRS, adapter)
    path = run.path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert [is_finished(run, trial, with_adapter=True) for trial in range(2)] == [True, False]


def test_an_adapter_that_is_not_finite_is_left_out_and_its_trial_is_finished(run, tiny_model):
    adapter = init_adapter(jax.random.key(3), tiny_model.config, rank=2, alpha=2.0)
    record = {"trial": 0, "valid": False, "warnings": ["first"]}
    keep_record(run, record, PAIRS, adapter)  # of a chunk that was stopped: it must not stay as this trial's
    broken = Adapter(layers=adapter.layers | {"q": LoraPair(adapter.layers["q"].a * jnp.nan, adapter.layers["q"].b)})
    keep_record(run, record, PAIRS, broken)  # saving refuses it, and that would end the run
    assert list((run.path / "adapters").iterdir()) == []
    assert read_record(run, 0)["warnings"] == ["first", "its adapter is not kept: q.a holds NaN or infinity"]
    assert is_finished(run, 0, with_adapter=True)  # not trained again at every resume


def test_pairs_are_read_back(kept):
    assert read_pairs(kept, read_record(kept, 1)).to_pylist() == PAIRS


@pytest.fixture
def with_warm_start(run, tiny_model):
    save_adapter(init_adapter(jax.random.key(3), tiny_model.config, rank=2, alpha=2.0), run.path / "warm_start")
    return run


def test_the_warm_start_of_finished_policies_is_kept(with_warm_start):
    run = with_warm_start
    study._check_warm_start(run)  # killed before base.json: there is nothing to compare with, and nothing trained on it
    run.write_sealed("base.json", {"warm_start_sha256": study._warm_start_digests(run)})
    study._check_warm_start(run)
    weights = run.path / "warm_start" / "adapter_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(UserError, match=r"warm start that .* began from in .*warm_start, found another; restore it"):
        study._check_warm_start(run)
    shutil.rmtree(run.path / "warm_start")
    with pytest.raises(UserError, match="found none; restore it"):
        study._check_warm_start(run)
    (run.path / "base.json").unlink()
    study._check_warm_start(run)  # no policy is finished: it is trained anew
    keep_record(run, {"trial": 0}, PAIRS, None)
    with pytest.raises(UserError, match="found none; restore it"):
        study._check_warm_start(run)


def test_an_adapter_that_the_disk_does_not_take_says_how_the_run_goes_on(run, tiny_model):
    adapter = init_adapter(jax.random.key(3), tiny_model.config, rank=2, alpha=2.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))  # the weights are larger
    try:
        with pytest.raises(UserError) as caught:
            keep_record(run, {"trial": 0}, PAIRS, adapter)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    message = str(caught.value)
    assert message.startswith(f"expected to write in {run.path}; File too large; ")
    assert message.endswith(f"give --resume --out {run.path}")
    assert "os error" not in message
    assert isinstance(caught.value.__cause__, OSError)  # so that the directory is not taken away as unused
    assert list((run.path / "adapters").iterdir()) == []
