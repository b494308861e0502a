"""Two processes joined by JAX's own runtime train what one device trains."""

import socket

import numpy as np
import pytest

pytestmark = pytest.mark.slow
MESHES = [
    {"policy": 4},
    {"data": 2, "model": 2},
]  # policies in both processes; rows in both, the base split within each


@pytest.fixture(scope="module")
def found(programs, simulated, tmp_path_factory):
    """Of one device, then of each process."""
    folder = tmp_path_factory.mktemp("processes")
    paths = [folder / f"{name}.npz" for name in ("one", "first", "second")]
    programs.finish([programs.start(simulated(1), paths[0], [["whole", {}, ["policies"]]])], 300)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
