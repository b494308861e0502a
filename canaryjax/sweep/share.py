"""How worker processes share a machine: its cores, its memory and its accelerators."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from canaryjax.audit.chunk_size import SHARERS
from canaryjax.errors import UserError
from canaryjax.runlog import THREADS, threads
from canaryjax.sweep.cells import Cell

# What JAX finds here, asked of another process: whoever asks takes memory of each device for as long as it lives.
FIND = """
import json, jax
device = jax.local_devices()[0]
print(json.dumps([device.platform, device.client.platform_version, jax.local_device_count()]))
"""
CHOOSER = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Place:
    """Where a worker process runs.

    Attributes:
      cores: That it may use; None where the system has no way to say so.
      environment: Variables that it is started with, besides this process's own.
    """

    cores: tuple[int, ...] | None
    environment: dict[str, str]


def share_machine(workers: int, cells: Sequence[Cell]) -> list[Place]:
    """A place for each worker: an even share of the cores, and one accelerator of its own where there are any.

    XLA sums in an order that follows from the number of its threads. So each worker runs as many as this process would,
    on its share of the cores, and finds the same numbers to the last bit.

    Args:
      workers: At least 1.
      cells: To be run, for what one device cannot do.

    Raises:
      UserError: More workers than accelerators, or accelerators of which no process can be given one alone.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    shares = [None] * workers if cores is None else share_cores(cores, workers)
    common = {THREADS[0]: str(threads() or 1), SHARERS: str(workers)}
    devices = share_devices(workers, *find_devices(), os.environ)
    if any(devices):
        check_meshes(cells)
    return [Place(share, common | own) for share, own in zip(shares, devices, strict=True)]


def share_cores(cores: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """Which cores each worker runs on: blocks as even as can be, or where there are too few, one core for several.

    >>> share_cores([0, 1, 2, 3, 4], 2), share_cores([4, 6], 3)
    ([(0, 1), (2, 3, 4)], [(4,), (6,), (4,)])
    """
    n = len(cores)
    if workers > n:
        return [(cores[k % n],) for k in range(workers)]
    return [tuple(cores[k * n // workers : (k + 1) * n // workers]) for k in range(workers)]


def share_devices(
    workers: int, platform: str, version: str, count: int, environment: Mapping[str, str]
) -> list[dict[str, str]]:
    """The variables by which each worker sees one device alone; none on a CPU.

    JAX takes three quarters of a device's memory when it starts: two processes cannot share one.

    Args:
      workers: How many there are.
      platform: `cpu`, `gpu` or another, as JAX says.
      version: JAX's word on what is behind it.
      count: Devices that this process would have.
      environment: Of this process, which may see some devices only.

    Raises:
      UserError: As `share_machine`.

    >>> share_devices(2, "gpu", "cuda 13", 3, {"CUDA_VISIBLE_DEVICES": "4,5,7"})
    [{'CUDA_VISIBLE_DEVICES': '4'}, {'CUDA_VISIBLE_DEVICES': '5'}]
    """
    if platform == "cpu":
        return [{} for _ in range(workers)]
    if platform != "gpu" or "cuda" not in version.lower():
        raise UserError(
            f"expected a CPU or NVIDIA GPUs for --workers, found {platform} ({version}), of which no worker can be "
            "given one device alone; leave out --workers: cells then run one after another on all devices"
        )
    if workers > count:
        raise UserError(
            f"expected at most one worker a GPU, found {workers} workers and {count} GPUs: JAX takes most of a GPU's "
            f"memory for one process; give --workers {count} or fewer"
        )
    seen = [name.strip() for name in environment.get(CHOOSER, "").split(",") if name.strip()]
    names = seen or [str(number) for number in range(count)]
    return [{CHOOSER: names[k]} for k in range(workers)]


def check_meshes(cells: Sequence[Cell]) -> None:
    """Raises UserError for a cell whose mesh asks for more than the one device that a worker has."""
    for cell in cells:
        mesh = cell.config.study.mesh
        wanted = (mesh.policy or 1) * mesh.data * mesh.model
        if wanted > 1:
            raise UserError(
                f"expected a mesh of one device for a worker, found study.mesh of {wanted} in cell {cell.name}; leave "
                "out --workers, or the mesh"
            )


def find_devices() -> tuple[str, str, int]:
    """Platform, its version and the number of devices that a process started here would have.

    Raises:
      UserError: JAX cannot start.
    """
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return "cpu", "cpu", 1
    environment = worker_environment() | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-P", "-c", FIND], capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise UserError(f"expected JAX to start in a worker process, found: {last}; mend that, or leave out --workers")
    platform, version, count = json.loads(done.stdout.splitlines()[-1])
    return platform, version, count


def worker_environment() -> dict[str, str]:
    """This process's variables, with its import path: a worker loads the same code wherever it was started from."""
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
