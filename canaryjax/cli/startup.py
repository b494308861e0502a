"""What must be set before NumPy and JAX allocate or read their settings."""

import contextlib
import ctypes
import logging
import os
import sys
import warnings
from pathlib import Path

# malloc.h; an int parameter caps the threshold at 2 GiB, where the environment variable may be larger (bin/audit).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_QUIET = {
    # XLA logs a long compilation as an error ("file a bug"); its true errors are raised besides.
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


def prepare() -> None:
    """Sets the process up for a long job; settings the user made in the environment win."""
    keep_memory()
    use_compilation_cache()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger("jax").setLevel(logging.ERROR)
    logging.getLogger("absl").setLevel(logging.ERROR)
    # Libraries' warnings are for developers and the test run turns them into errors; ours are in the report.
    warnings.simplefilter("ignore")


def keep_memory() -> bool:
    """Tells glibc not to hand big buffers back to the kernel after each step, which cost 27 % system time.

    Returns:
      Whether anything was set: False off glibc, or where `MALLOC_*` variables of the user already say so.
    """
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        libc = ctypes.CDLL(None)
        if not hasattr(libc, "gnu_get_libc_version"):
            return False
        settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 200_000_000))
        return sum(libc.mallopt(name, value) for name, value in settings) == len(settings)
    except (OSError, AttributeError):
        return False


def use_compilation_cache() -> Path | None:
    """Keeps compiled programs between runs, in `JAX_COMPILATION_CACHE_DIR` or the user's cache folder.

    Returns:
      The folder, or None where it cannot be made (programs are then compiled each time).
    """
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or _cache_home() / "canaryjax" / "jax")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    # Every program counts: many are small, and compiling them all again is most of a short run.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    if "jax" in sys.modules:  # imported already, so that the variables come too late
        import jax

        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def _cache_home() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    if given and os.path.isabs(given):
        return Path(given)
    with contextlib.suppress(RuntimeError):  # no home directory is known
        return Path.home() / ".cache"
    return Path("/tmp")
