"""A Ray cluster: one that is joined, or one of this machine alone that is started for the sweep and ends with it."""

import contextlib
import importlib
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from canaryjax.errors import UserError
from canaryjax.runlog import cores
from canaryjax.sweep.share import worker_environment

LOCAL = "local"  # the address of a cluster that is started here
BEAT = 2.0  # seconds between looks at whether the cluster is there
PATIENCE = 30.0  # seconds without its head; after 60 Ray would end this process, and nothing would be said
LONGEST = 300  # characters of what Ray says


class ClusterLost(UserError):
    """The cluster ended before the sweep did: what is done is kept, and `--resume` runs the rest anywhere."""


@dataclass(frozen=True)
class Seats:
    """What each worker takes of the cluster: how many `workers`, `cpus` and `gpus` of each, and how many on a node."""

    workers: int
    cpus: float
    gpus: int
    on_a_node: int


def share_cluster(nodes: Sequence[Mapping[str, float]], workers: int | None) -> Seats:
    """Divides a cluster: a GPU a worker where there are any, else the nodes' CPUs evenly.

    Args:
      nodes: Resources of each node, as Ray names them.
      workers: Cells at once; None is one a GPU, or without GPUs one a node.

    Raises:
      UserError: More workers than GPUs, or no node that computes.

    >>> share_cluster([{"CPU": 8.0}, {"CPU": 8.0}], None), share_cluster([{"CPU": 8.0}, {"CPU": 8.0}], 6)
    (Seats(workers=2, cpus=8.0, gpus=0, on_a_node=1), Seats(workers=6, cpus=2.0, gpus=0, on_a_node=3))
    >>> share_cluster([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}], None)
    Seats(workers=2, cpus=4.0, gpus=1, on_a_node=2)
    """
    with_gpus = [node for node in nodes if node.get("GPU", 0) >= 1]
    if with_gpus:
        total = sum(int(node["GPU"]) for node in with_gpus)
        if workers is not None and workers > total:
            raise UserError(
                f"expected at most one worker a GPU, found {workers} workers and {total} GPUs in the Ray cluster; give "
                f"--workers {total} or fewer"
            )
        most = max(int(node["GPU"]) for node in with_gpus)
        return Seats(workers or total, _portion(min(n.get("CPU", 0) / int(n["GPU"]) for n in with_gpus)), 1, most)
    computing = [node["CPU"] for node in nodes if node.get("CPU", 0) > 0]
    if not computing:
        raise UserError("expected nodes with CPUs in the Ray cluster, found none; add some, or leave out --ray")
    wanted = workers or len(computing)
    on_a_node = ceil(wanted / len(computing))
    return Seats(wanted, _portion(min(computing) / on_a_node), 0, on_a_node)


def _portion(cpus: float) -> float:
    """Whole CPUs where there is one; Ray takes parts of one to four decimals."""
    return float(int(cpus)) if cpus >= 1 else int(cpus * 10_000) / 10_000


class Cluster:
    """A cluster that this process has joined. Attributes: `ray`, the module; `seats`."""

    def __init__(self, ray: Any, address: str, workers: int | None) -> None:
        self.ray = ray
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        self._head = (host.strip("[]"), int(port))
        self._name = "that was started here" if address == LOCAL else f"at {address}"
        self._missed: float | None = None  # since when its head does not answer
        self._looked = 0.0
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.seats = share_cluster(nodes, workers)

    def check(self, patience: float = PATIENCE) -> None:
        """Raises ClusterLost where its head has not answered for so many seconds, or no node is left."""
        now = time.monotonic()
        if patience and now - self._looked < BEAT:
            return
        self._looked = now
        try:
            socket.create_connection(self._head, timeout=BEAT).close()
        except OSError as error:
            self._missed = now if self._missed is None else self._missed
            if now - self._missed >= patience:
                raise self.lost(f"its head no longer answers ({error.strerror or error})") from error
            return
        self._missed = None
        try:
            left = any(node["Alive"] for node in self.ray.nodes())
        except Exception:  # the head went between the two questions: the next look says so
            return
        if not left:
            raise self.lost("none of its nodes is left")

    def settle(self) -> None:
        """Waits until it is known whether a worker that does not answer went alone: raises ClusterLost where not."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.check(patience=0.0)
            time.sleep(BEAT / 2)

    def lost(self, why: str) -> ClusterLost:
        """The error of a cluster that is gone."""
        return ClusterLost(
            f"expected the Ray cluster {self._name} to last until every cell has ended, found that {why}"
        )


@contextlib.contextmanager
def joined(address: str, workers: int | None) -> Iterator[Cluster]:
    """A cluster for the length of the block.

    Args:
      address: `local` starts one of this machine; `auto` joins the one that runs here, HOST:PORT another one's head.
      workers: Cells at once, None for what suits the cluster.

    Raises:
      UserError: Ray is not installed, no cluster there, or one without room for the workers.
    """
    if address.startswith("ray://"):
        raise UserError(
            f"expected local, auto or HOST:PORT of a cluster's head for --ray, found {address!r}; start the sweep on a "
            "machine of the cluster, which must see its directory in any case"
        )
    ray = load_ray()
    if ":" in address:
        _knock(address)  # Ray itself would ask for minutes
    own = {"num_cpus": cores(), "include_dashboard": False} if address == LOCAL else {}
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    if address == LOCAL:
        os.environ.update(PYTHONPATH=worker_environment()["PYTHONPATH"])  # its workers load this code
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:
        raise UserError(
            f"expected a Ray cluster for --ray {address}, found {told(error)}; start one (ray start --head), name "
            "another, or give --ray local"
        ) from error
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own in the place of the command's
    try:
        # Ray prints what befalls workers from a thread of its own; stdout is for the result.
        with contextlib.redirect_stdout(sys.stderr):
            yield Cluster(ray, address, workers)
    except SystemError as error:
        # A stop that is met inside of Ray's compiled code comes out wrapped, and is one all the same.
        if isinstance(error.__cause__, BaseException) and not isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"expected the head of a Ray cluster at {address}, found: {getattr(error, 'strerror', None) or error}; "
            "start it (ray start --head), or name another"
        ) from error


def load_ray() -> Any:
    """The module `ray`, or a `UserError` that names the extra."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster started here reports to nobody
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError(
            f"expected the package ray for --ray, found none ({error}); install it with: .venv/bin/python -m pip "
            "install -e '.[ray]', or give --workers for processes of this machine"
        ) from error


def told(error: BaseException) -> str:
    """What Ray says of an error, in one line: of an exception in a worker its last line, the exception itself.

    >>> told(ValueError("raised in its creation task,\\n  File x.py\\nModuleNotFoundError: No module named 'x'"))
    "ModuleNotFoundError: No module named 'x'"
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    if re.search(r"\n *File ", text):
        return text.splitlines()[-1].strip()[:LONGEST]
    return " ".join(f"{type(error).__name__}: {text}".split())[:LONGEST]
