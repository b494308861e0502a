"""Run directories that a kill, an editor or a careless copy has left in another state than the run did."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from canaryjax.errors import UserError
from canaryjax.runlog import RunDirectory, directory

HASH = "a" * 64
CONFIG = "name: quick\ncanary:\n  rate: 0.5\n"


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", HASH, CONFIG)
    yield run
    run.close()


def test_a_kill_while_a_run_begins_leaves_nothing_that_refuses_the_next(tmp_path):
    # Taken for "other files", the directory could be neither begun nor resumed.
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".run.json.k3j5x7.tmp").write_text('{"sche')
    RunDirectory.create(folder, "quick", HASH, CONFIG).close()
    assert sorted(p.name for p in folder.iterdir()) == ["config.yaml", "run.json"]
    other = tmp_path / "other"
    other.mkdir()
    (other / ".mine.tmp").write_text("x")  # hidden, but not ours
    with pytest.raises(UserError, match=r"found other files \(\.mine\.tmp\)"):
        RunDirectory.create(other, "quick", HASH, CONFIG)
    assert (other / ".mine.tmp").read_text() == "x"


KILLED = """
import os, signal, sys
from pathlib import Path
from canaryjax.weights.atomic import new_directory
with new_directory(Path(sys.argv[1])) as partial:
    (partial / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_resume_clears_half_written_folders_at_any_depth(run):
    for name in ("warm_start", "adapters/trial-0001"):
        done = subprocess.run([sys.executable, "-c", KILLED, str(run.path / name)], timeout=300)
        assert done.returncode == -signal.SIGKILL
    assert len([p for p in run.path.rglob(".*") if p.is_dir()]) == 2
    (run.path / "adapters" / "trial-0000").mkdir()
    RunDirectory.resume(run.path, HASH, CONFIG)
    left = sorted(str(p.relative_to(run.path)) for p in run.path.rglob("*"))
    assert left == ["adapters", "adapters/trial-0000", "config.yaml", "run.json"]


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff\xfe", b"[1]", b"name: other\n", b"\t:", b"a: !!timestamp x", b"a: !!bool x"]
)
def test_a_resume_writes_a_lost_or_damaged_config_again(run, content):
    file = run.path / "config.yaml"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    RunDirectory.resume(run.path, HASH, CONFIG)
    assert file.read_text() == CONFIG


def test_a_resume_leaves_a_config_that_says_the_same_as_it_is(run):
    (run.path / "config.yaml").write_text(f"# mine\n{CONFIG}")
    RunDirectory.resume(run.path, HASH, CONFIG)
    assert (run.path / "config.yaml").read_text().startswith("# mine")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[1]", b"\t:", b"", None])
def test_keys_that_differ_are_named_only_where_the_old_ones_are_known(run, content):
    (run.path / "config.yaml").unlink()
    if content is not None:
        (run.path / "config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=r"begun with \(aaaaaaaa\), found bbbbbbbb; give the same config to resume"):
        RunDirectory.resume(run.path, "b" * 64, CONFIG)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"valid JSON in .*run\.json; .*; restore"),
        ("[]", r"object in .*run\.json, found list; give"),
        ("{}", r"run of this version .*run\.json, found None; finish"),
        ('{"schema": "canaryjax.run/1", "config_hash": "' + HASH + '"}', "found 'canaryjax.run/1'; finish"),
        ('{"schema": "canaryjax.run/4", "config_hash": null, "seconds": 1}', "config_hash and seconds .*; restore"),
        *(
            (f'{{"schema": "canaryjax.run/4", "config_hash": "{HASH}", "seconds": {seconds}}}', "seconds in .*; rest")
            for seconds in ("null", "-1", "NaN", "Infinity", "true", "9" * 400, '"7"')
        ),
    ],
)
def test_a_damaged_run_file_is_named(run, content, message):
    (run.path / "run.json").write_text(content)
    with pytest.raises(UserError, match=message):
        RunDirectory.resume(run.path, HASH, CONFIG)


@pytest.mark.parametrize(
    ("name", "as_folder", "message"),
    [
        ("figures", False, r"a folder at .*figures, found a file; move it away"),
        ("trials", False, r"a folder at .*trials, found a file"),
        ("warm_start", False, r"a folder at .*warm_start, found a file"),
        ("opening.json", True, r"a file at .*opening\.json, found a folder; move it away"),
        ("metrics.jsonl", True, r"a file at .*metrics\.jsonl, found a folder"),
        ("trials/0003.parquet", True, r"a file at .*0003\.parquet, found a folder"),
    ],
)
def test_a_file_for_a_folder_and_the_reverse_are_found_before_anything_is_trained(run, name, as_folder, message):
    path = run.path / name
    path.parent.mkdir(exist_ok=True)
    if as_folder:
        path.mkdir()
    else:
        path.write_text("")
    with pytest.raises(UserError, match=message):
        RunDirectory.resume(run.path, HASH, CONFIG)


@pytest.mark.parametrize("line", ["5", "null", "[]", '"x"', "garbage", "\udcff"])
def test_a_row_that_is_no_object_is_named_with_its_line(run, line):
    (run.path / "metrics.jsonl").write_bytes(f'{{"step": 0}}\n{line}\n'.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=r"metrics\.jsonl; line 2: .*; correct or remove the line"):
        run.read_jsonl("metrics.jsonl")


RECORD = {"trial": 0, "scores": {"clean_raw": 0.1 + 0.2}, "seconds": [1e-7, None], "text": "\ud800\u2028é"}


def test_what_is_sealed_is_read_back_as_it_was(run):
    run.write_sealed("trials/0000.json", RECORD)
    assert run.read_sealed("trials/0000.json", "") == RECORD
    run.write_sealed("trials/0001.json", {"kl": float("nan")})
    assert run.read_sealed("trials/0001.json", "") == {"kl": None, "non_finite": ["kl"]}


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"trial": 0}', None])
def test_a_damaged_sealed_file_is_named_with_the_remedy(run, content):
    run.write_sealed("trials/0000.json", RECORD)
    file = run.path / "trials" / "0000.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"^expected .*0000\.json.*; sow again$"):
        run.read_sealed("trials/0000.json", "sow again")


@pytest.mark.parametrize("key", list(RECORD))
def test_a_sealed_file_of_which_one_value_was_changed_is_refused(run, key):
    run.write_sealed("trials/0000.json", RECORD)
    file = run.path / "trials" / "0000.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: None}))
    with pytest.raises(UserError, match=r"found that it was changed"):
        run.read_sealed("trials/0000.json", "")


def test_a_sealed_file_belongs_to_its_name_and_to_its_run(run, tmp_path):
    run.write_sealed("trials/0000.json", RECORD)
    shutil.copy(run.path / "trials" / "0000.json", run.path / "trials" / "0001.json")
    with pytest.raises(UserError, match=r"0001\.json as the run wrote it, found that it .* is a copy"):
        run.read_sealed("trials/0001.json", "")
    other = RunDirectory.create(tmp_path / "other", "quick", "b" * 64, CONFIG)
    (other.path / "trials").mkdir()
    shutil.copy(run.path / "trials" / "0000.json", other.path / "trials" / "0000.json")
    with pytest.raises(UserError, match="is a copy"):
        other.read_sealed("trials/0000.json", "")
    other.close()


def test_only_what_was_made_here_is_taken_away_after_a_mistake(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    for out, left in ((mine, mine), (mine / "a" / "b", mine), (tmp_path / "new" / "run", tmp_path)):
        run = RunDirectory.create(out, "quick", HASH, CONFIG)
        run.discard_unused()
        # The user's own empty directory stays, empty; folders made on the way to a new one go.
        assert left.is_dir()
        assert sorted(p.name for p in left.iterdir()) == (["mine"] if left == tmp_path else [])


def test_what_others_put_into_a_new_directory_meanwhile_is_kept(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", HASH, CONFIG)
    (run.path / ".notes").write_text("mine")
    run.discard_unused()
    assert [p.name for p in (tmp_path / "run").iterdir()] == [".notes"]


def test_seconds_are_summed_over_all_calls(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(directory, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    run = RunDirectory.create(tmp_path / "run", "quick", HASH, CONFIG)
    for seconds, total in ((7.0, 7.0), (4.0, 11.0)):  # counted from the start each time, so once: 18 would be twice
        clock[0] += seconds
        assert run.keep_time() == total
    clock[0] += 1000.0  # a kill, and a night
    again = RunDirectory.resume(run.path, HASH, CONFIG)
    clock[0] += 2.0
    assert again.keep_time() == 13.0  # 2 would be this call's alone
    assert json.loads((run.path / "run.json").read_text())["seconds"] == 13.0
    run.close()


def test_what_a_library_says_of_a_full_disk_becomes_how_the_run_goes_on(run):
    told = UserError("expected room to write the adapter; free some")
    told.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(UserError, match=r"disk of .*run, found it full; free some, then give --resume"), run.telling():
        raise told
    with pytest.raises(UserError, match=r"^expected room$"), run.telling():
        raise UserError("expected room")  # a mistake of another kind keeps its words
