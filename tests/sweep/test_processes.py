"""Cells in worker processes: real processes, in which a stand-in takes the place of the training."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canaryjax.audit.chunk_size import SHARERS, free_memory
from canaryjax.errors import UserError
from canaryjax.runlog import Silence
from canaryjax.sweep import processes
from canaryjax.sweep.cells import make_cells
from canaryjax.sweep.cluster import load_ray, share_cluster
from canaryjax.sweep.file import read_sweep
from canaryjax.sweep.message import from_cell, to_cell
from canaryjax.sweep.processes import in_processes
from canaryjax.sweep.run import open_sweep, run_sweep
from canaryjax.sweep.share import share_devices, share_machine

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = str(Path(__file__).with_name("stand_in_worker.py"))
TEXT = "base: quick\ngrid: {canary.delta: [0.0, 0.25, 0.5, 1.0]}"


class Heard(Silence):
    """Keeps what was said."""

    def __init__(self):
        self.said, self.stages, self.counted = [], [], 0

    def note(self, text):
        self.said.append(text)

    def stage(self, *words, **more):
        self.stages.append((*words, *more.values()))

    def advance(self, count=1, detail=""):
        self.counted += count


@pytest.fixture
def swept(tmp_path, monkeypatch):
    """Runs the sweep's cells in workers whose fates are given, and keeps outcomes and what was heard."""
    (tmp_path / "four.yaml").write_text(TEXT)
    file = read_sweep(str(tmp_path / "four.yaml"), [])
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")

    def run(fates, workers=2, resume=False):
        monkeypatch.setenv("CELLS", json.dumps(fates))
        cells, heard = make_cells(file), Heard()
        root = open_sweep(file, cells, tmp_path / "out", resume)
        execute = in_processes(root.path, heard, share_machine(workers, cells), [sys.executable, STAND_IN])
        try:
            return run_sweep(file, cells, root, heard, execute), heard
        finally:
            root.close()

    run.out = tmp_path / "out"
    return run


def _seen(out):
    return [json.loads(path.read_text())["seen"] for path in sorted(out.glob("cells/*/report.json"))]


def _statuses(out):
    return {cell["name"]: cell["status"] for cell in json.loads((out / "sweep.json").read_text())["cells"]}


def test_cells_are_shared_out_to_processes_that_run_one_after_another(swept):
    outcomes, heard = swept({})
    assert [(o.name, o.status) for o in outcomes] == [
        *(("delta-0.0", "done"), ("delta-0.25", "done"), ("delta-0.5", "done"), ("delta-1.0", "done")),
    ]
    seen = _seen(swept.out)
    assert len({one["worker"] for one in seen}) == 2
    assert all(one["worker"] != os.getpid() for one in seen)
    # Ctrl-C in a terminal goes to this process and its group alone.
    assert all(one["process_group"] == one["worker"] for one in seen)
    # As many threads as this process would run, on a share of its cores: XLA sums alike.
    mine = sorted(os.sched_getaffinity(0))
    assert {one["threads"] for one in seen} == {str(len(mine))}
    assert {one["sharers"] for one in seen} == {"2"}
    shares = {tuple(one["cores"]) for one in seen}
    assert set().union(*shares) == set(mine)
    assert len(shares) == min(2, len(mine))
    assert sum(map(len, shares)) == len(mine)
    assert heard.stages == [("4 cells, 2 at once", 80, 0, 2)]
    assert heard.counted == 4
    assert "delta-0.25: policies" in heard.said
    assert [text for text in heard.said if text.startswith("cell ")][-1].endswith("(4 of 4): done")


def test_a_worker_that_dies_fails_its_cell_and_the_others_go_on(swept):
    outcomes, _ = swept({"delta-0.0": "kill", "delta-0.25": "segfault", "delta-0.5": "fault"})
    assert {o.name: o.error for o in outcomes} == {
        "delta-0.0": "expected the worker process to end the cell, found it killed by SIGKILL (as the system does "
        "where memory runs out); --resume runs the cell again, with fewer --workers if it was memory",
        "delta-0.25": "expected the worker process to end the cell, found it killed by SIGSEGV; --resume runs the "
        "cell again",
        "delta-0.5": "RuntimeError: ours",
        "delta-1.0": None,
    }
    trace = (swept.out / "errors" / "delta-0.25.txt").read_text()
    assert "Fatal Python error: Segmentation fault" in trace
    assert "in run_to_report" in trace
    assert "Traceback" in (swept.out / "errors" / "delta-0.5.txt").read_text()
    assert "3 failed" in (swept.out / "sweep.html").read_text()
    again, _ = swept({}, workers=1, resume=True)
    assert {o.status for o in again} == {"done"}
    # What was begun was taken up, though the lock's holder was killed.
    assert json.loads((swept.out / "cells/delta-0.0/trials/0000.json").read_text())["resumed"] is True


def test_a_full_disk_stops_the_sweep_and_every_worker(swept):
    with pytest.raises(UserError, match="expected room") as caught:
        swept({"delta-0.0": "full", "delta-0.25": "wait"})
    assert caught.value.__cause__.errno == 28
    assert set(_statuses(swept.out).values()) == {"not run"}
    assert not _alive(swept.out)


def _alive(out):
    """Workers that wrote into the sweep and still run."""
    found = [json.loads(path.read_text())["worker"] for path in out.glob("cells/*/trials/0000.json")]
    return [number for number in found if Path(f"/proc/{number}").exists()]


def _wait(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for a minute")


COMMAND = """
import sys
from canaryjax.cli import main, sweep
from canaryjax.sweep import check
check.check_cells = lambda cells, tell: None
sweep.WORKER = (sys.executable, sys.argv[1])
main(["sweep", *sys.argv[2:]])
"""


@pytest.fixture
def command(tmp_path):
    """Starts the command in a process of its own, each cell waiting, and gives it once two wait."""
    (tmp_path / "four.yaml").write_text(TEXT)
    out = tmp_path / "out"
    started = []

    def start():
        words = [str(tmp_path / "four.yaml"), "--out", str(out), "--workers", "2"]
        fates = dict.fromkeys(("delta-0.0", "delta-0.25", "delta-0.5", "delta-1.0"), "wait")
        environment = os.environ | {"CELLS": json.dumps(fates), "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", COMMAND, STAND_IN, *words],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        _wait(lambda: len(list(out.glob("cells/*/waiting.txt"))) == 2 or started[0].poll() is not None)
        return started[0], out

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_stop_ends_the_workers_and_says_how_to_go_on(command):
    process, out = command()
    assert len(_alive(out)) == 2
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith(f"canaryjax: stopped by SIGINT; 0 cells are done in {out}; go on with: ")
    assert last.endswith(f"four.yaml --out {out} --workers 2 --resume")
    assert _alive(out) == []
    assert set(_statuses(out).values()) == {"not run"}  # stopped, not failed
    # They ended as a stopped run does: the time that it took is kept.
    assert json.loads((out / "cells/delta-0.0/run.json").read_text())["seconds"] >= 0.0


def test_workers_end_with_a_command_that_is_killed(command):
    process, out = command()
    assert len(_alive(out)) == 2
    process.kill()
    process.communicate(timeout=120)
    _wait(lambda: not _alive(out))


def test_a_worker_that_is_killed_between_cells_is_started_again(swept, monkeypatch):
    give = processes.Worker.give
    killed = []

    def kill_first(self, cell):
        if self._process is not None and not killed:
            killed.append(self._process.pid)
            self._process.kill()
            self._process.wait()
        give(self, cell)

    monkeypatch.setattr(processes.Worker, "give", kill_first)
    outcomes, _ = swept({}, workers=1)
    assert len(killed) == 1
    assert {o.status for o in outcomes} == {"done"}
    assert len({one["worker"] for one in _seen(swept.out)}) == 2


def test_a_cell_comes_out_of_its_message_as_it_went_in():
    for name in ("figure3", "tiny"):
        for cell in make_cells(read_sweep(name, [])):
            assert to_cell(json.loads(json.dumps(from_cell(cell)))) == cell


def test_each_worker_has_a_gpu_of_its_own_or_is_refused():
    assert share_devices(2, "cpu", "", 1, {"CUDA_VISIBLE_DEVICES": "0"}) == [{}, {}]
    assert share_devices(2, "gpu", "cuda 13000", 2, {}) == [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "1"},
    ]
    # Those that this process may not see are not its to give.
    assert share_devices(1, "gpu", "CUDA 13", 1, {"CUDA_VISIBLE_DEVICES": "GPU-1f"}) == [
        {"CUDA_VISIBLE_DEVICES": "GPU-1f"}
    ]
    with pytest.raises(UserError, match=r"found 3 workers and 2 GPUs.*give --workers 2 or fewer"):
        share_devices(3, "gpu", "cuda 13000", 2, {})
    with pytest.raises(UserError, match=r"expected a CPU or NVIDIA GPUs for --workers, found tpu"):
        share_devices(1, "tpu", "v5e", 1, {})
    with pytest.raises(UserError, match=r"found gpu \(rocm 6"):
        share_devices(1, "gpu", "rocm 6", 1, {})


def test_workers_plan_with_their_share_of_the_memory(monkeypatch):
    monkeypatch.setenv(SHARERS, "1")
    alone = free_memory()
    monkeypatch.setenv(SHARERS, "8")
    assert free_memory() < alone / 4  # an eighth, of what may be a little more by now


def test_without_ray_the_command_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    with pytest.raises(UserError, match=r"expected the package ray for --ray, found none.*pip install -e '\.\[ray\]'"):
        load_ray()


def test_a_cluster_with_fewer_gpus_than_workers_is_refused():
    nodes = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 1.0}]
    assert share_cluster(nodes, 3).gpus == 1
    with pytest.raises(UserError, match=r"found 4 workers and 3 GPUs in the Ray cluster; give --workers 3 or fewer"):
        share_cluster(nodes, 4)
    with pytest.raises(UserError, match="expected nodes with CPUs"):
        share_cluster([{"CPU": 0.0}], None)
    assert share_cluster([{"CPU": 2.0}], 4).cpus == 0.5
