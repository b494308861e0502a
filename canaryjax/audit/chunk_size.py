"""How many policies to train together: as many as memory holds, and no more than help."""

import jax

from canaryjax.audit.plan import MOST, MOST_ON_CPU, fitting_chunk
from canaryjax.config import AuditConfig
from canaryjax.models.config import ModelConfig


def choose_chunk_size(config: AuditConfig, shape: ModelConfig) -> int:
    """Policies of one program: as configured, else by free memory, and even chunks of an arm."""
    if config.study.policies_per_chunk is not None:
        return config.study.policies_per_chunk
    most = MOST_ON_CPU if jax.default_backend() == "cpu" else MOST
    return fitting_chunk(config, shape, free_memory(), most)


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
