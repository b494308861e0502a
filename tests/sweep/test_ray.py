"""Cells on a real local Ray, in whose workers a stand-in takes the place of the training."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canaryjax.cli.worker import RayCells, versions
from canaryjax.config import config_hash
from canaryjax.errors import UserError
from canaryjax.runlog import Silence
from canaryjax.sweep.actors import on_cluster
from canaryjax.sweep.cells import make_cells
from canaryjax.sweep.cluster import joined
from canaryjax.sweep.file import read_sweep
from canaryjax.sweep.message import Telling, to_cell
from canaryjax.sweep.run import open_sweep, run_sweep

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
TEXT = "base: quick\ngrid: {canary.delta: [0.0, 0.5, 1.0]}"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "three.yaml").write_text(TEXT)
    return read_sweep(str(tmp_path / "three.yaml"), [])


class StandIn(RayCells):
    """Writes what a cell leaves, and is killed in the first."""

    def run(self, values):
        cell = to_cell(values)
        folder = self._root / "cells" / cell.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "worker.txt").write_text(f"{os.getpid()} {os.environ['CANARYJAX_SHARERS']}")
        Telling(cell.name, self._said.put).note("begins")
        if cell.name == "delta-0.0":
            while not self._said.empty():
                time.sleep(0.05)
            time.sleep(1.0)  # for what was taken to be on its way
            os.kill(os.getpid(), signal.SIGKILL)
        report = {"config_hash": config_hash(cell.config), "warnings": []}
        (folder / "report.json").write_text(json.dumps(report))
        (folder / "report.html").write_text("a page")
        return {"kind": "outcome", "outcome": {"name": cell.name, "status": "done", "error": None, "trace": None}}


class Elsewhere(RayCells):
    """A worker that does not see the sweep's directory."""

    def __init__(self, root, environment):
        super().__init__(f"{root}-not-mounted", environment)


class Heard(Silence):
    """Keeps what was said."""

    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def _sweep(file, out, cluster, actor, versions=versions):
    cells, heard = make_cells(file), Heard()
    root = open_sweep(file, cells, out, False)
    try:
        execute = on_cluster(root.path, heard, cluster, actor, versions())
        return run_sweep(file, cells, root, heard, execute), heard.said
    finally:
        root.close()


def test_cells_run_in_actors_and_what_a_node_lacks_is_told_first(ray, local_ray, file, tmp_path, capfd):
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test
    with joined(local_ray.address, 2) as cluster:
        assert cluster.seats.workers == 2
        outcomes, said = _sweep(file, tmp_path / "out", cluster, StandIn)
        assert [o.status for o in outcomes] == ["failed", "done", "done"]
        assert outcomes[0].error.startswith("expected the Ray worker to end the cell, found ActorDiedError: ")
        assert outcomes[0].error.endswith("; --resume runs the cell again")
        # Each under its own name, though one actor runs two of them.
        assert "delta-0.0: begins" in said
        assert {text for text in said if text.endswith(": begins")} <= {f"{o.name}: begins" for o in outcomes}
        found = [(tmp_path / "out/cells" / o.name / "worker.txt").read_text().split() for o in outcomes]
        assert len({number for number, _ in found}) in (
            2,
            3,
        )  # two, and the one in the dead one's place if it was quick
        assert str(os.getpid()) not in {number for number, _ in found}
        assert {sharers for _, sharers in found} == {"2"}  # both are on one node
        assert not list((tmp_path / "out").glob(".shared-*"))
        with pytest.raises(UserError, match=r"to see and write the sweep's directory .*No such file.* all nodes share"):
            _sweep(file, tmp_path / "other", cluster, Elsewhere)
        with pytest.raises(UserError, match=r"the same versions on every node.* found jax 0\.0 here and "):
            _sweep(file, tmp_path / "third", cluster, RayCells, lambda: versions() | {"jax": "0.0"})
    assert not ray.is_initialized()
    # What Ray tells of dead workers is no result of the command.
    assert capfd.readouterr().out == ""


COMMAND = """
import time
from canaryjax.cli import main, worker
from canaryjax.sweep import check

class Waiting(worker.RayCells):
    def run(self, values):
        (self._root / f"waiting-{values['name']}").touch()
        time.sleep(600)

check.check_cells = lambda cells, tell: None
worker.RayCells = Waiting
main()
"""


def test_the_command_says_how_to_go_on_when_the_cluster_dies_or_the_user_stops_it(local_ray, file, tmp_path):
    out, address = tmp_path / "out", local_ray.address
    words = [sys.executable, "-c", COMMAND, "sweep", file.path, "--out", str(out), "--workers", "2", "--ray", address]

    def ended(how, *more):
        for path in out.glob("waiting-*"):
            path.unlink()
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen([*words, *more], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(1200):
            if len(list(out.glob("waiting-*"))) == 2 or process.poll() is not None:
                break
            time.sleep(0.1)
        how(process)
        err = process.communicate(timeout=120)[1]
        assert "Traceback" not in err
        return process.returncode, err.splitlines()[-1]

    status, last = ended(lambda process: process.send_signal(signal.SIGTERM))
    assert status == 1
    assert last.startswith("canaryjax: stopped by SIGTERM; 0 cells are done")
    assert last.endswith(f"--out {out} --workers 2 --ray {address} --resume")
    status, last = ended(lambda process: local_ray.shut_down(), "--resume")
    assert status == 2
    assert f"expected the Ray cluster at {address} to last until every cell has ended, found that" in last
    assert last.endswith(f"--out {out} --resume (in this process, or add --ray of another cluster)")


def test_an_address_where_no_cluster_is_says_so(ray):
    for address, message in [
        ("127.0.0.1:9", r"expected the head of a Ray cluster at 127\.0\.0\.1:9, found: Connection refused"),
        ("ray://127.0.0.1:9", r"expected local, auto or HOST:PORT"),
    ]:
        with pytest.raises(UserError, match=message), joined(address, None):
            pass
