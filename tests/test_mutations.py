"""Known faults, put back into a copy of the package one at a time: each must turn its named test red."""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
PATCHES = {path.stem: path for path in sorted((ROOT / "tests" / "mutations").glob("*.patch"))}
WORKERS = 2  # processes at once; most of a run is JAX's start and one compilation
SECONDS = 1800  # a run that hangs ends here; the longest, of all tests without a patch, takes a tenth of it
HEADER = "# test: "
OTHER_PACKAGE = 77
# Runs pytest on the copy and on nothing else, whatever is installed.
RUN = f"""
import os, sys
import canaryjax, pytest
if not canaryjax.__file__.startswith(os.getcwd() + os.sep):
    sys.exit({OTHER_PACKAGE})
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--tb=short", *sys.argv[1:]]))
"""
# What a failed comparison says; a crash of the mutated code (a TypeError, say) would prove nothing about the test.
ASSERTION = re.compile(r"(AssertionError|assert |Failed: DID NOT RAISE)")


def named_test(patch: Path) -> str:
    """The test that must turn red, `tests/...::name`, from the patch's first line."""
    first = patch.read_text("utf-8").splitlines()[0]
    assert first.startswith(HEADER), f"{patch.name}: expected a first line '{HEADER}tests/...::name', found {first!r}"
    return first.removeprefix(HEADER)


def run_copy(folder: Path, tests: list[str], patch: Path | None = None):
    """Exit status, output and (name, failure or None) of every test run in a copy of the package, mutated if asked."""
    for name in ("canaryjax", "configs", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTEST_"))}
    # Otherwise a repository around the temporary directory would make git leave out files that are not its own.
    environment |= {"PYTHONPATH": str(folder), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    if patch is not None:
        applied = subprocess.run(
            ["git", "apply", "--unidiff-zero", str(patch)], cwd=folder, env=environment, capture_output=True, text=True
        )
        if applied.returncode:
            pytest.fail(f"{patch.name} no longer applies; make it anew (tests/mutations/README.md): {applied.stderr}")
    command = [sys.executable, "-c", RUN, "--junitxml=report.xml", *tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    report, cases = folder / "report.xml", []
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            wrong = [(child.tag, child.get("message", "")) for child in case if child.tag != "system-out"]
            cases.append((case.get("name"), wrong[0] if wrong else None))
    return done.returncode, done.stdout[-3000:] + done.stderr[-2000:], cases


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """`Future` of each run that was asked for, a few at a time; the run without a patch is under ''."""
    here = [item for item in request.session.items if item.path == Path(__file__)]
    chosen = {item.callspec.params["name"] for item in here if hasattr(item, "callspec")}
    wanted = {"": None} | {name: path for name, path in PATCHES.items() if name in chosen}
    clean = sorted({named_test(path) for path in wanted.values() if path is not None})
    with ThreadPoolExecutor(WORKERS) as pool:
        yield {
            name: pool.submit(run_copy, tmp_path_factory.mktemp("mutant"), [named_test(path)] if path else clean, path)
            for name, path in wanted.items()
        }


def test_the_named_tests_pass_without_a_patch(outcomes: dict[str, Future]):
    status, output, cases = outcomes[""].result()
    assert status == 0, output
    assert all(failure is None for _, failure in cases)  # not skipped either


@pytest.mark.parametrize("name", PATCHES)
def test_a_fault_turns_its_test_red(outcomes: dict[str, Future], name):
    status, output, cases = outcomes[name].result()
    assert status != OTHER_PACKAGE, "the copy was not what was imported"
    failures = [failure for _, failure in cases if failure is not None]
    assert status == 1, f"{name}: expected {named_test(PATCHES[name])} to fail, found exit status {status}\n{output}"
    assert cases, output
    assert failures, output
    for kind, message in failures:
        # An error is a fixture or an import that broke, a skip a test that did not run.
        assert kind == "failure", output
        assert ASSERTION.match(message), f"{name}: expected a failed assertion, found {message!r}\n{output}"


def test_there_are_twenty_patches_and_each_names_a_test():
    assert len(PATCHES) >= 20
    assert all(re.fullmatch(r"\d\d_\w+", name) for name in PATCHES)
    assert all(re.fullmatch(r"tests/[\w/]+\.py::test_\w+", named_test(path)) for path in PATCHES.values())
