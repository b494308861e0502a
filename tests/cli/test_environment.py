"""bin/environment.sh: what an interrupted or refused installation leaves, and what it says."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:9/simple"  # the discard port: refused at once
# No built wheel of anything is needed: the build's own requirement cannot be fetched.
PROJECT = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
PROJECT += '[project]\nname = "canaryjax"\nversion = "0.0.1"\ndependencies = ["numpy"]\n'
INSTALL = 'set -eu; . "$1/bin/environment.sh"; make_environment "$1" ""'


def _checkout(path: Path) -> Path:
    (path / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "environment.sh", path / "bin")
    (path / "pyproject.toml").write_text(PROJECT)
    (path / "constraints.txt").write_text("")
    return path


def _install(path: Path, words: str = INSTALL) -> subprocess.CompletedProcess:
    first = str(Path(sys.base_prefix) / "bin")
    asked = os.environ | {"PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    asked |= {"PATH": f"{first}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", words, "sh", str(path)], capture_output=True, text=True, env=asked, timeout=300)


def _half_made(folder: Path, kind: str) -> None:
    if kind == "no pip":  # stopped before pip was there: bin/python runs
        venv.create(folder, with_pip=False, symlinks=True)
    else:  # its Python was uninstalled
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(folder / "gone")


@pytest.mark.parametrize("kind", ["no pip", "no python"])
def test_a_half_made_environment_is_made_again_and_a_refused_index_is_said_once(tmp_path, kind):
    path = _checkout(tmp_path / "a clone")  # a blank in its path, as people have
    _half_made(path / ".venv", kind)
    done = _install(path)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("canaryjax: .venv is not whole; making it again with ")
    # bin/python alone was once taken for an environment: "No module named pip", for ever.
    pip = subprocess.run([path / ".venv/bin/python", "-m", "pip", "--version"], capture_output=True, text=True)
    assert pip.returncode == 0, pip.stderr
    assert done.returncode == 1
    errors = [line for line in lines if "canaryjax: error:" in line]
    assert errors == lines[-1:]
    for word in (
        "expected",
        "found:",
        "No matching distribution found for setuptools",
        "network or the package index",
        "run this again",
        f"{path}/.venv/pip.log",
    ):
        assert word in errors[0]
    assert "newest" not in done.stderr  # nothing is wrong with this Python
    assert not list((path / ".venv").glob("canaryjax-*"))  # neither done nor half made


def test_an_environment_that_is_done_is_left_alone(tmp_path):
    path = _checkout(tmp_path)
    venv.create(path / ".venv", with_pip=False, symlinks=True)
    words = INSTALL.replace("make_environment", "checksum() { echo same; }; make_environment")
    (path / ".venv" / "canaryjax-installed-core").write_text("same \n")
    done = _install(path, words)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
