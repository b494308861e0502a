"""Rows of metrics.jsonl in the trackers of `output.report_to`: each once, one run a policy, over updates."""

import contextlib
import json
import os
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from canaryjax.errors import UserError
from canaryjax.runlog import RunDirectory
from canaryjax.runlog.mirror import mirroring, series
from canaryjax.runlog.trackers import TRACKERS, check_trackers

ROWS = [
    {"policy": 0, "stage": "warm_start", "step": 5, "loss": 2.5, "valid": True},
    {"trial": 3, "stage": "reward_model", "step": 0, "loss": 0.75, "grad_norm": None},
    {"trial": 3, "stage": "reward_model_heldout", "heldout_auc": 0.875, "updates": 7},
    {"trial": 11, "stage": "grpo", "step": 0, "kl": 0.0, "valid": False},
    {"trial": 3, "stage": "grpo", "step": 0, "kl": 0.5},
    {"trial": 3, "stage": "grpo", "step": 1, "kl": 0.25},
]
# By policy: (series, update, value); what is null is not there.
SERIES = {
    "base": [("warm_start/loss", 5, 2.5), ("warm_start/valid", 5, 1.0)],
    "trial-0003": [
        ("grpo/kl", 0, 0.5),
        ("grpo/kl", 1, 0.25),
        ("reward_model/loss", 0, 0.75),
        ("reward_model_heldout/heldout_auc", 7, 0.875),
    ],
    "trial-0011": [("grpo/kl", 0, 0.0), ("grpo/valid", 0, 0.0)],
}


class Recorder:
    """A tracker that remembers what it was called with."""

    runs: list

    def __init__(self, place):
        self.place, self.got, self.ended = place, [], []
        Recorder.runs.append(self)

    def add(self, policy, stage, step, values):
        self.got += [(policy, f"{stage}/{name}", step, value) for name, value in values.items()]

    def finish(self, policy):
        self.ended.append(policy)


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", "abc", "name: quick\n")
    yield run
    run.close()


@pytest.fixture
def service(monkeypatch):
    Recorder.runs = []
    monkeypatch.setitem(TRACKERS, "wandb", Recorder)
    return Recorder.runs


def by_policy(got):
    return {policy: sorted(rest for own, *rest in got if own == policy) for policy in {own for own, *_ in got}}


def plain(wanted):
    return {policy: [list(one) for one in rows] for policy, rows in wanted.items()}


def test_a_row_is_numbers_of_one_policy():
    row = {"trial": 3, "stage": "grpo", "step": 4, "kl": 0.5, "note": "text", "non_finite": ["x"], "lost": None}
    assert series(row) == ("trial-0003", "grpo", 4, {"kl": 0.5})


def test_a_service_gets_each_row_once_through_two_stops(run, service):
    def call(before, kept, rows):
        with mirroring(["wandb"], run, before, kept, pytest.fail) as mirror:
            for row in rows:
                mirror.add(row)
        return service[-1]

    first = call([], [], ROWS[:5])
    # Trial 3 is trained again: its rows leave the log, and come once more by its checkpoint.
    kept = [row for row in ROWS if row.get("trial") != 3]
    second = call(ROWS[:5], kept, ROWS[1:2])
    # Stopped at once: the log now lacks most of what the first call had sent.
    third = call([*kept, ROWS[1]], kept, [row for row in ROWS if row.get("trial") == 3])
    assert second.got == []
    assert by_policy(first.got + second.got + third.got) == plain(SERIES)
    assert first.place.token == third.place.token != ""
    assert sorted(first.ended) == ["base", "trial-0003", "trial-0011"]
    assert sorted(third.ended) == ["trial-0003"]


def test_a_service_that_joins_or_comes_back_is_sent_what_it_has_not_had(run, service, monkeypatch):
    monkeypatch.setitem(TRACKERS, "trackio", Recorder)
    done = [row for row in ROWS if row.get("trial") != 3]

    def call(names, before, kept, rows):
        start = len(service)
        with mirroring(names, run, before, kept, pytest.fail) as mirror:
            for row in rows:
                mirror.add(row)
        return {name: one.got for name, one in zip(names, service[start:], strict=True)}

    first = call(["wandb"], [], [], ROWS[:5])
    assert call([], ROWS[:5], done, ROWS[1:4]) == {}  # left out: rows come that nobody is sent
    logged = [*done, *ROWS[1:3], ROWS[4]]
    third = call(["trackio", "wandb"], logged, done, [row for row in ROWS if row.get("trial") == 3])
    # Were all logged rows taken for sent, the one would have none but new ones and the other would lack them.
    assert by_policy(third["trackio"]) == plain(SERIES)
    assert by_policy(first["wandb"] + third["wandb"]) == plain(SERIES)
    assert call(["trackio", "wandb"], ROWS, ROWS, []) == {"trackio": [], "wandb": []}


def test_runs_on_other_machines_have_other_names(run, service, tmp_path):
    other = RunDirectory.create(tmp_path / "other" / "run", "quick", "abc", "name: quick\n")
    for one in (run, other):
        with mirroring(["wandb"], one, [], [], pytest.fail) as mirror:
            mirror.add(ROWS[0])
    other.close()
    assert len({runner.place.name for runner in service}) == 2
    assert all(runner.place.name.startswith("run-") for runner in service)


def test_policies_end_one_by_one_and_no_later_than_the_run(run, service):
    with mirroring(["wandb"], run, [], [], pytest.fail) as mirror:
        for row in ROWS:
            mirror.add(row)
        mirror.finish([11, 12])
        assert service[0].ended == ["trial-0011"]
    assert service[0].ended == ["trial-0011", "base", "trial-0003"]
    got = list(service[0].got)
    mirror.add(ROWS[5])  # by a thread that a stop has left behind
    assert service[0].got == got


def test_a_tracker_that_fails_is_told_of_once_and_left_out(run, service, monkeypatch):
    said = []
    monkeypatch.setitem(TRACKERS, "trackio", Recorder)
    with mirroring(["wandb", "trackio"], run, [], [], said.append) as mirror:
        service[0].add = lambda *_: 1 / 0
        for row in ROWS:
            mirror.add(row)
    assert said == ["wandb gets no more metrics (ZeroDivisionError: division by zero); metrics.jsonl has them all"]
    assert by_policy(service[1].got) == plain(SERIES)


def test_threads_may_log_at_once(run, service):
    with mirroring(["wandb"], run, [], [], pytest.fail) as mirror:
        rows = [{"trial": t, "stage": "grpo", "step": s, "kl": 0.5} for t in range(3) for s in range(101)]
        threads = [
            threading.Thread(target=lambda t=t: [mirror.add(r) for r in rows[t * 101 :][:101]]) for t in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(service[0].got) == 303


@pytest.mark.parametrize(
    "row", [{"step": 3}, {"stage": "grpo", "trial": "x", "step": 3}, {"stage": "grpo", "step": "x"}]
)
def test_a_row_that_is_none_is_named(run, service, row):
    with (
        pytest.raises(UserError, match=r"in every row of metrics\.jsonl in .*restore it"),
        mirroring(["wandb"], run, [row], [row], pytest.fail),
    ):
        pass


@pytest.mark.parametrize("text", ["[]", '{"token": "a", "updates": null}', "", '{"token": "a", "updates": {}}'])
def test_what_services_had_is_read_whole_or_not_at_all(run, service, text):
    (run.path / "reported.json").write_text(text)
    with (
        pytest.raises(UserError, match=r"reported\.json.*leave output\.report_to out"),
        mirroring(["wandb"], run, [], [], pytest.fail),
    ):
        pass


@pytest.fixture
def tensorboard(scalars):
    return lambda run: {path.name: scalars(path) for path in (run.path / "tensorboard").iterdir()}


def test_tensorboard_reads_back_what_was_logged(run, tensorboard):
    check_trackers(("tensorboard",))
    with mirroring(["tensorboard"], run, [], [], pytest.fail) as mirror:
        for row in ROWS:
            mirror.add(row)
    assert tensorboard(run) == plain(SERIES)


def test_a_resumed_run_makes_its_event_files_anew(run, tensorboard):
    with mirroring(["tensorboard"], run, [], [], pytest.fail) as mirror:
        for row in ROWS[:5]:
            mirror.add(row)
    file = next((run.path / "tensorboard" / "trial-0003").iterdir())
    # As a kill may leave it; its name tells another second, in which a new file would not just take its place.
    file.with_name("events.out.tfevents.1000000000.here").write_bytes(file.read_bytes()[:-7])
    file.unlink()
    kept = [row for row in ROWS[:5] if row.get("trial") != 3]
    with mirroring(["tensorboard"], run, ROWS[:5], kept, pytest.fail) as mirror:
        for row in ROWS:
            if row.get("trial") == 3:
                mirror.add(row)
    assert tensorboard(run) == plain(SERIES)
    assert all(len(list(path.iterdir())) == 1 for path in (run.path / "tensorboard").iterdir())


def leveldb_records(data: bytes):
    """Records of a `.wandb` file: 7 bytes of its own, then checksum, length and kind (1: whole) before each record."""
    block, place, part = 32768, 7, b""
    while place + 7 <= len(data):
        if block - place % block < 7:
            place += block - place % block
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        part += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield part
            part = b""


def test_wandb_keeps_the_policies_of_a_run_apart_in_one_group(run, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2 as pb

    monkeypatch.setenv("WANDB_MODE", "offline")
    check_trackers(("wandb",))
    with mirroring(["wandb"], run, [], [], pytest.fail) as mirror:
        for row in ROWS:
            mirror.add(row)
    found, groups, sent = {}, set(), b""
    for file in (run.path / "wandb").glob("offline-run-*/run-*.wandb"):
        for _ in range(300):  # its service is a process of its own, which may still be writing
            records = [pb.Record.FromString(data) for data in leveldb_records(file.read_bytes())]
            if any(record.WhichOneof("record_type") == "exit" for record in records):
                break
            time.sleep(0.1)
        sent += file.read_bytes()
        (about,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
        groups.add(about.run_group)
        assert about.host == "unnamed"
        rows = [
            {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for record in records
            if record.WhichOneof("record_type") == "history"
        ]
        found[about.display_name] = sorted(
            [key, row[f"{key.split('/')[0]}/step"], value]
            for row in rows
            for key, value in row.items()
            if not key.startswith("_") and not key.endswith("/step")
        )
    assert found == plain(SERIES)
    assert len(groups) == 1
    assert str(Path.cwd()).encode() not in sent  # nothing about the machine


def test_trackio_reads_back_what_was_logged(run, tmp_path):
    pytest.importorskip("trackio")
    # It takes its folder from the environment when it is imported, and keeps threads: in a process of its own.
    code = (
        "import json, sys\nfrom pathlib import Path\n"
        "from canaryjax.runlog.trackers import Place, Trackio, check_trackers\n"
        "from canaryjax.runlog.mirror import series\ncheck_trackers(('trackio',))\n"
        "tracker = Trackio(Place(Path(sys.argv[1]), 'abcd'))\nrows = json.loads(sys.argv[2])\n"
        "for row in rows: tracker.add(*series(row))\n"
        "for row in rows: tracker.finish(series(row)[0])\n"
    )
    words = [sys.executable, "-c", code, str(run.path), json.dumps(ROWS)]
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "store")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == ""  # standard output is for the report
    with contextlib.closing(sqlite3.connect(tmp_path / "store" / "canaryjax.db")) as store:
        rows = store.execute("select run_name, step, metrics from metrics").fetchall()
    got = [(name, key, step, value) for name, step, data in rows for key, value in json.loads(data).items()]
    assert by_policy(got) == {f"run-abcd-{policy}": rows for policy, rows in plain(SERIES).items()}
