"""What a run ran on: enough to repeat it, nothing that names a person or a machine."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    *("canaryjax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "scipy", "transformers"),
    *("tokenizers", "datasets", "safetensors", "pyarrow", "pydantic", "omegaconf", "matplotlib"),
)

THREADS = ("PJRT_NPROC", "NPROC")  # where XLA looks for the number of its threads, in this order


def provenance(dtype: str | None = None) -> dict[str, Any]:
    """Versions, device, cores and commit of this process.

    Args:
      dtype: Compute dtype of the run, recorded as given.

    Returns:
      `versions` by package (null where not installed), `python`, `platform`, `machine`, `cpu_count`, `device`
      {platform, kind, count}, `dtype`, `git` {commit, modified} or null. No host name, user name or path.
    """
    return {
        "python": platform.python_version(),
        "versions": {name: package_version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": cores(),
        "device": _device(),
        "dtype": dtype,
        "git": _git(Path(__file__).resolve().parents[2]),
    }


def package_version(name: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cores() -> int | None:
    """Cores this process may use, which a container or taskset can hold below what the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def threads() -> int | None:
    """Threads that XLA runs on a CPU, and by whose number it sums: one a core, unless the environment names another."""
    for name in THREADS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return cores()


def _device() -> dict[str, Any]:
    import jax

    devices = jax.devices()
    return {"platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices)}


def _git(root: Path) -> dict[str, Any] | None:
    """The commit of the checkout this package is part of; None when it is installed, even inside someone's checkout."""

    def ask(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        ask("ls-files", "--error-unmatch", "canaryjax/__init__.py")
        return {"commit": ask("rev-parse", "HEAD"), "modified": bool(ask("status", "--porcelain", "--", "canaryjax"))}
    except (OSError, subprocess.SubprocessError):
        return None
