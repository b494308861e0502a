"""How a study's policies meet the machine: on which devices, how many together, and how many chunks at once."""

import math
import os
from collections.abc import Mapping

import jax

from canaryjax.audit.plan import fitting_chunk, most_together, weight_bytes
from canaryjax.config import AuditConfig
from canaryjax.models.config import ModelConfig
from canaryjax.models.sharding import base_share
from canaryjax.runlog.provenance import cores

MOST_CHUNKS = 4
SHARERS = "CANARYJAX_SHARERS"  # of the environment: how many processes share the machine's memory, 1 if it is not there


def choose_mesh(config: AuditConfig, chunk: int | None) -> dict[str, int]:
    """Devices along each axis of the mesh: as configured; by default all accelerators of this process share policies.

    Args:
      config: The study.
      chunk: Policies of one program where that is fixed: the policy axis then divides it. None where it is free.
    """
    wanted = config.study.mesh
    if wanted.policy is not None:
        return wanted.model_dump()
    accelerators = 1 if jax.default_backend() == "cpu" else jax.local_device_count()
    together = chunk or max(config.study.compliant, config.study.violating)
    most = max(1, min(accelerators // (wanted.data * wanted.model), together))
    policy = most if chunk is None else max(n for n in range(1, most + 1) if chunk % n == 0)
    return {"policy": policy, "data": wanted.data, "model": wanted.model}


def shrink_mesh(begun: Mapping[str, int], chunk: int, devices: int) -> dict[str, int]:
    """The largest mesh of at most `devices` within one that a run was begun on; policies give way first, the base last.

    Args:
      begun: Devices along each axis.
      chunk: Policies of one program, which the policy axis divides.
      devices: How many there are now.
    """
    model = min(begun["model"], devices)
    data = min(begun["data"], devices // model)
    most = min(begun["policy"], devices // (model * data))
    return {"policy": max(n for n in range(1, most + 1) if chunk % n == 0), "data": data, "model": model}


def choose_chunk_size(config: AuditConfig, shape: ModelConfig, mesh: Mapping[str, int]) -> int:
    """Policies of one program: as configured, else by free memory, in even chunks of an arm, as many on each device."""
    if config.study.policies_per_chunk is not None:
        return config.study.policies_per_chunk
    free = free_memory()
    if jax.default_backend() == "cpu":
        free /= math.prod(mesh.values())  # simulated devices share the machine's memory
    if mesh["model"] > 1:  # each device's part of the base is not there yet
        free -= weight_bytes(config, shape) * base_share(shape, mesh["model"])
    return fitting_chunk(config, shape, free, most_together(jax.default_backend() == "cpu", shape), mesh["policy"])


def choose_chunks_at_once(shape: ModelConfig) -> int:
    """Chunks to run side by side: one a core where programs are so small that one leaves cores idle, else one."""
    side_by_side = jax.default_backend() == "cpu" and most_together(True, shape) == 1
    return min(MOST_CHUNKS, cores() or 1) if side_by_side else 1


def free_memory() -> float:
    """Bytes free on the first device; on a CPU this process's share of what the system can still give."""
    stats = jax.local_devices()[0].memory_stats()
    if stats:
        return float(stats["bytes_limit"] - stats["bytes_in_use"])
    try:
        with open("/proc/meminfo") as lines:
            values = dict(line.split(":", 1) for line in lines)
        free = 1024.0 * int(values["MemAvailable"].split()[0])
    except (OSError, KeyError):  # not Linux: assume little
        free = 4e9
    sharers = os.environ.get(SHARERS, "")
    return free / max(1, int(sharers) if sharers.isdigit() else 1)
