"""Two processes joined by JAX's own runtime train what one device trains."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow
MESHES = [
    {"policy": 4},
    {"data": 2, "model": 2},
]  # policies in both processes; rows in both, the base split within each


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def found(programs, simulated, tmp_path_factory):
    """Of one device, then of each process."""
    folder = tmp_path_factory.mktemp("processes")
    paths = [folder / f"{name}.npz" for name in ("one", "first", "second")]
    programs.finish([programs.start(simulated(1), paths[0], [["whole", {}, ["policies"]]])], 300)
    port = _free_port()
    cases = [["whole", mesh, ["policies"]] for mesh in MESHES]
    programs.finish([programs.start(simulated(2), paths[1 + i], cases, f"{i}/2/{port}") for i in range(2)], 300)
    return [programs.Found(path) for path in paths]


@pytest.mark.parametrize("number", range(len(MESHES)))
@pytest.mark.parametrize("process", [1, 2])
def test_two_processes_train_what_one_device_trains(programs, found, process, number):
    both, alone = found[process][number], found[0][0]
    assert np.array_equal(both["ids"], alone["ids"])
    assert programs.largest_difference(both, alone, "policy") < programs.tolerance
    assert programs.largest_difference(both, alone, "kl") < programs.tolerance


def test_the_readmes_program_trains_in_two_processes(programs, tmp_path):
    root = Path(__file__).resolve().parents[2]
    (code,) = re.findall(
        r"```python\n((?:(?!```).)*jax\.distributed.*?)```", (root / "README.md").read_text("utf-8"), re.S
    )
    (tmp_path / "program.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    words, address = [sys.executable, str(tmp_path / "program.py")], f"127.0.0.1:{_free_port()}"
    options = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    said = programs.finish([subprocess.Popen([*words, address, "2", str(i)], **options) for i in range(2)], 300)
    # Two steps of two prompts each, for a policy in each process.
    assert [text.splitlines()[-1] for text in said] == ["2 [True, True]"] * 2
