"""How many policies to train together, and how many chunks at once: what memory holds, and no more than helps."""

import jax

from canaryjax.audit.plan import fitting_chunk, most_together
from canaryjax.config import AuditConfig
from canaryjax.models.config import ModelConfig
from canaryjax.runlog.provenance import cores

MOST_CHUNKS = 4


def choose_chunk_size(config: AuditConfig, shape: ModelConfig) -> int:
    """Policies of one program: as configured, else by free memory, and even chunks of an arm."""
    if config.study.policies_per_chunk is not None:
        return config.study.policies_per_chunk
    return fitting_chunk(config, shape, free_memory(), most_together(jax.default_backend() == "cpu", shape))


def choose_chunks_at_once(shape: ModelConfig) -> int:
    """Chunks to run side by side: one a core where programs are so small that one leaves cores idle, else one."""
    side_by_side = jax.default_backend() == "cpu" and most_together(True, shape) == 1
    return min(MOST_CHUNKS, cores() or 1) if side_by_side else 1


def free_memory() -> float:
    """Bytes free on the first device; on a CPU, bytes the system can still give."""
    stats = jax.local_devices()[0].memory_stats()
    if stats:
        return float(stats["bytes_limit"] - stats["bytes_in_use"])
    try:
        with open("/proc/meminfo") as lines:
            values = dict(line.split(":", 1) for line in lines)
        return 1024.0 * int(values["MemAvailable"].split()[0])
    except (OSError, KeyError):  # not Linux: assume little
        return 4e9
