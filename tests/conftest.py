"""What every test shares: a Matplotlib without windows and a compilation cache, set before JAX is imported."""

import gc
import os
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "canaryjax-test-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


@pytest.fixture(scope="session")
def qwen_files() -> Path:
    """The folder of a real Qwen tokenizer; it is too large for the repository and lies beside it where there is one."""
    folder = SHARED / "data" / "tokenizers" / "qwen3"
    if not folder.is_dir():
        pytest.skip(f"no Qwen tokenizer at {folder}: it is not part of the repository")
    return folder


@pytest.fixture(scope="session")
def qwen(qwen_files):
    """That tokenizer."""
    from canaryjax.data.tokens import TextTokenizer

    return TextTokenizer.from_directory(qwen_files)


@pytest.fixture(scope="session")
def simulated() -> Callable[[int], dict[str, str]]:
    """From a number of devices to the environment of a process that simulates them: JAX fixes it when it starts."""
    import jax

    flags = ["--xla_backend_optimization_level=0"]
    if jax.version.__version_info__ < (0, 11):  # later releases refuse what they do not know
        # Compiles several times faster, which is most of the time of such a process; what is computed is the same.
        flags += ["--xla_cpu_use_fusion_emitters=false"]

    def environment(devices: int) -> dict[str, str]:
        words = " ".join([f"--xla_force_host_platform_device_count={devices}", *flags])
        return os.environ | {"XLA_FLAGS": words, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}

    return environment


@pytest.fixture(scope="session")
def scalars() -> Callable[[Path], list]:
    """From a folder of TensorBoard's event files to their scalars: [tag, step, value], sorted.

    Read from their bytes: length, checksum, record, checksum.
    """
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")

    def read(folder: Path) -> list:
        found = []
        for file in sorted(folder.glob("events.out.tfevents.*")):
            data = file.read_bytes()
            while data:
                (length,) = struct.unpack("<Q", data[:8])
                event = event_pb2.Event.FromString(data[12 : 12 + length])
                found += [[value.tag, event.step, value.simple_value] for value in event.summary.value]
                data = data[16 + length :]
        return sorted(found)

    return read


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out tests that need an accelerator where there is none, and says so."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import jax

    if jax.default_backend() == "cpu":
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an accelerator, found a CPU only"))


@pytest.fixture(autouse=True, scope="module")
def _programs_of_one_module():
    """Lets go of a module's compiled programs: each maps memory, and a process may have 65,530 maps (Linux's default).

    A worker that kept those of all modules was aborted by the loader of the next program.
    """
    yield
    if "jax" in sys.modules:  # many modules never import it
        sys.modules["jax"].clear_caches()
        gc.collect()
