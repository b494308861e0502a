"""Run directories: what a full disk, a kill, a second process or a changed config leaves behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from canaryjax.config import config_hash, load_config
from canaryjax.errors import UserError
from canaryjax.runlog import RunDirectory, jsonable, provenance, read_jsonl
from canaryjax.runlog import directory as directory_module
from canaryjax.runlog import files as files_module

CONFIG = "name: quick\ncanary:\n  rate: 0.5\n  delta: 1.0\n"


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", "a" * 64, CONFIG)
    yield run
    run.close()


def test_default_directories_are_numbered_and_named_after_config_and_hash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [RunDirectory.create(None, "quick", "0123456789abcdef", CONFIG) for _ in range(2)]
    # Overwriting the first run instead of counting on would give "-1" twice.
    assert [str(run.path) for run in runs] == ["runs/quick-01234567-1", "runs/quick-01234567-2"]
    assert (runs[1].path / "config.yaml").read_text() == CONFIG
    for run in runs:
        run.close()


def test_a_directory_with_another_run_is_refused_and_kept(run):
    run.append_jsonl("scores.jsonl", {"trial": 1})
    before = sorted((p.name, p.read_bytes()) for p in run.path.iterdir())
    with pytest.raises(
        UserError, match=r"new or empty, found another run \(config.yaml, run.json, scores.jsonl\).*--resume"
    ):
        RunDirectory.create(run.path, "quick", "a" * 64, CONFIG)
    assert sorted((p.name, p.read_bytes()) for p in run.path.iterdir()) == before


def test_a_directory_with_other_files_is_refused_without_offering_resume(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"found other files \(thesis.tex\); give another --out$"):
        RunDirectory.create(tmp_path, "quick", "a" * 64, CONFIG)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_out_that_is_a_file_is_a_user_error(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(UserError, match="File exists"):
        RunDirectory.create(tmp_path / "out", "quick", "a" * 64, CONFIG)


def test_resume_names_the_keys_that_differ(run):
    changed = "name: quick\ncanary:\n  rate: 0.1\n  delta: 1.0\n  contrast: 0.2\n"
    with pytest.raises(
        UserError, match=r"begun with \(aaaaaaaa\), found bbbbbbbb; differing keys: canary.rate, canary.contrast;"
    ):
        RunDirectory.resume(run.path, "b" * 64, changed)


def test_what_only_observes_may_differ_and_is_kept_as_asked_for_now(tmp_path):
    begun = load_config("quick", ["output.report_to=[tensorboard]"])
    asked = load_config("quick", ["output.log_every=3", "output.sample_every=0", "output.report_to=[wandb]"])
    RunDirectory.create(tmp_path / "run", "quick", config_hash(begun), begun.to_yaml()).close()
    RunDirectory.resume(tmp_path / "run", config_hash(asked), asked.to_yaml()).close()
    assert load_config(tmp_path / "run" / "config.yaml") == asked
    other = load_config("quick", ["output.save_adapters=true", "output.log_every=5", "study.seed=3"])
    with pytest.raises(UserError, match=r"differing keys: study\.seed, output\.save_adapters; give"):
        RunDirectory.resume(tmp_path / "run", config_hash(other), other.to_yaml())


def test_resume_without_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"found no run\.json there; check --out, or leave out --resume"):
        RunDirectory.resume(tmp_path, "a" * 64, CONFIG)


def test_resume_cuts_a_half_written_line_and_goes_on(run):
    run.append_jsonl("metrics.jsonl", {"step": 0})
    run.append_jsonl("metrics.jsonl", {"step": 1})
    with (run.path / "metrics.jsonl").open("ab") as log:
        log.write(b'{"step": 2, "rew')
    again = RunDirectory.resume(run.path, "a" * 64, CONFIG)
    again.append_jsonl("metrics.jsonl", {"step": 2})
    # Appending to the half line would give the unreadable '{"step": 2, "rew{"step": 2}'.
    assert again.resumed
    assert [row["step"] for row in again.read_jsonl("metrics.jsonl")] == [0, 1, 2]


def test_non_finite_numbers_become_null_and_are_listed(run):
    lost = run.write_json(
        "report.json", {"auroc": float("nan"), "arms": {"kl": [1.5, np.float32("inf")]}, "n": np.int64(3)}
    )
    text = (run.path / "report.json").read_text()
    assert lost == ["auroc", "arms.kl[1]"]
    expected = {"auroc": None, "arms": {"kl": [1.5, None]}, "n": 3, "non_finite": ["auroc", "arms.kl[1]"]}
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"found {name}")) == expected


def test_line_separators_inside_a_string_do_not_break_a_row(run):
    texts = ["a\u2028b", "c\x85d", "\ud800", "\U0001f600", "line\nfeed"]
    run.append_jsonl("data/rows.jsonl", {"texts": texts})
    raw = (run.path / "data/rows.jsonl").read_bytes()
    # str.splitlines, as many readers do, must see one line too.
    assert len(raw.decode().splitlines()) == 1
    assert run.read_jsonl("data/rows.jsonl") == [{"texts": texts}]


def test_a_file_of_others_with_a_raw_line_separator_is_read_by_line_feeds_only(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"t": "a\u2028b"}\n\n{"t": 2}\n', encoding="utf-8")
    assert [row["t"] for row in read_jsonl(tmp_path / "in.jsonl")] == ["a\u2028b", 2]


def test_a_malformed_line_is_named(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"t": 1}\n{"t": \n')
    with pytest.raises(UserError, match=r"in.jsonl; line 2: "):
        read_jsonl(tmp_path / "in.jsonl")


def test_jsonable_refuses_what_json_has_no_form_for():
    with pytest.raises(TypeError, match=r"at a\[1\], found object"):
        jsonable({"a": [1, object()]})


class _FullDisk:
    """Lets the real file take some bytes, then fails as a full disk does."""

    def __init__(self, handle, room):
        self.handle, self.room = handle, room

    def write(self, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.handle.write(bytes(data)[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(self.handle, name)

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.handle.close()


def test_a_full_disk_leaves_the_old_file_and_no_temporary(run, monkeypatch):
    run.write_text("report.html", "old")
    real = os.fdopen
    monkeypatch.setattr(files_module.os, "fdopen", lambda *a, **k: _FullDisk(real(*a, **k), room=0))
    with pytest.raises(UserError, match=r"room on the disk of .*run, found it full; free some, then give --resume"):
        run.write_text("report.html", "new" * 1000)
    monkeypatch.undo()
    assert (run.path / "report.html").read_text() == "old"
    assert sorted(p.name for p in run.path.iterdir()) == ["config.yaml", "report.html", "run.json"]


def test_a_full_disk_in_the_middle_of_a_row_takes_the_row_back(run, monkeypatch):
    run.append_jsonl("scores.jsonl", {"trial": 0})
    real = Path.open
    monkeypatch.setattr(directory_module.Path, "open", lambda *a, **k: _FullDisk(real(*a, **k), room=5))
    with pytest.raises(UserError, match="found it full"):
        run.append_jsonl("scores.jsonl", {"trial": 1})
    monkeypatch.undo()
    assert (run.path / "scores.jsonl").read_text() == '{"trial": 0}\n'


WRITER = """
import sys
from pathlib import Path
from canaryjax.runlog import RunDirectory
run = RunDirectory.resume(Path(sys.argv[1]), "a" * 64)
print("ready", flush=True)
while True:
    run.write_text("report.html", "x" * 200_000)
"""


def test_a_kill_while_writing_leaves_a_whole_file_and_frees_the_directory(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", "a" * 64, CONFIG)
    run.write_text("report.html", "x" * 200_000)
    run.close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(run.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with pytest.raises(UserError, match="another process writing to it"):
            RunDirectory.resume(run.path, "a" * 64)
        time.sleep(0.05)  # any moment will do: the outcome must not depend on it
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    assert (run.path / "report.html").read_text() == "x" * 200_000
    RunDirectory.resume(run.path, "a" * 64).close()
    assert not list(run.path.glob(".*.tmp"))  # what the kill left is cleared by the resume


def test_provenance_names_versions_and_no_person(monkeypatch):
    monkeypatch.setenv("USER", "zebedee")
    monkeypatch.setattr("socket.gethostname", lambda: "zebedees-laptop")
    found = provenance("float32")
    assert found["versions"]["jax"].count(".") >= 1
    assert found["device"]["count"] >= 1
    assert found["dtype"] == "float32"
    text = json.dumps(found)
    assert "zebedee" not in text
    assert str(Path.home()) not in text
    assert os.uname().nodename not in text or len(os.uname().nodename) < 4


def test_a_run_that_never_began_is_taken_away_and_a_begun_one_is_kept(tmp_path):
    # Left behind, it would refuse the corrected config ("found another run"); taken away too often, policies are lost.
    run = RunDirectory.create(tmp_path / "run", "quick", "abc", "name: quick\n")
    run.write_json("opening.json", {"policies_per_chunk": 2})
    run.discard_unused()
    assert not (tmp_path / "run").exists()
    begun = RunDirectory.create(tmp_path / "run", "quick", "abc", "name: quick\n")
    begun.append_jsonl("metrics.jsonl", {"step": 0})
    begun.discard_unused()
    assert (tmp_path / "run" / "metrics.jsonl").is_file()
    begun.close()
    resumed = RunDirectory.resume(tmp_path / "run", "abc")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    resumed.discard_unused()
    assert (tmp_path / "run" / "run.json").is_file()
    resumed.close()


def test_a_run_file_of_another_kind_is_named(tmp_path):
    RunDirectory.create(tmp_path / "run", "quick", "abc", "name: quick\n").close()
    (tmp_path / "run" / "run.json").write_text("[1]")
    with pytest.raises(UserError, match=r"run\.json, found list"):
        RunDirectory.resume(tmp_path / "run", "abc")
    (tmp_path / "run" / "run.json").write_text("[" * 100_000)  # a RecursionError, not a ValueError
    with pytest.raises(UserError, match=r"valid JSON in .*run\.json"):
        RunDirectory.resume(tmp_path / "run", "abc")
