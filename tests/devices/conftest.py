"""Programs of several devices run in processes of their own, and what they find is compared."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

PROGRAM = Path(__file__).with_name("cases.py")
TOLERANCE = 1e-5
# Rates are 5e-4: a policy moves 2e-3 in four steps, so an update that lost a device's part is far beyond 1e-5.


def start(environment: dict[str, str], out: Path, cases: list, process: str | None = None) -> subprocess.Popen:
    """Runs cases (see the program) in an environment of simulated devices."""
    if process is not None:
        environment = environment | {"PROCESS": process}
    words = [sys.executable, str(PROGRAM), str(out), json.dumps(cases)]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(processes: list[subprocess.Popen], seconds: float) -> list[str]:
    """Waits for all and gives what each said; one that fails or takes too long ends the others."""
    said = []
    try:
        for process in processes:
            said.append(process.communicate(timeout=seconds)[0])
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)[-4000:]
    return said


class Found:
    """What cases found, by number."""

    def __init__(self, path: Path):
        self._arrays = dict(np.load(path))

    def __getitem__(self, number: int) -> dict[str, np.ndarray]:
        front = f"{number}/"
        return {name.removeprefix(front): x for name, x in self._arrays.items() if name.startswith(front)}


def largest_difference(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], prefix: str) -> float:
    """Over all arrays whose names begin so; a log-prob's difference is relative to its size where that is above 1."""
    names = [name for name in wanted if name.startswith(prefix)]
    assert names, f"nothing was found for {prefix}"
    gaps = [np.abs(found[name] - wanted[name]) / np.maximum(1.0, np.abs(wanted[name])) for name in names]
    return max(float(gap.max()) for gap in gaps)


@pytest.fixture(scope="session")
def programs():
    """The helpers of this file, which is no module that tests could import."""
    return SimpleNamespace(
        start=start, finish=finish, Found=Found, largest_difference=largest_difference, tolerance=TOLERANCE
    )
