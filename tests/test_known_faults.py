"""`known_faults.md` names, for every fault that stacks like this one have had, tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COUNT = 56  # faults in the list this project started from
LINE = re.compile(
    r"(?P<number>\d+)\. (?P<kind>.+)|   - `(?P<test>tests/[\w/]+\.py::test_\w+)`|   - not here yet: (?P<part>.+)"
)
# Parts that faults are put off to, and the package that each will be.
PARTS = {
    "the memorisation probes": "canaryjax/probes",
}


def read_faults(text: str) -> dict[int, dict[str, list[str]]]:
    """Per fault its `kind`, its `test`s and the `part` it is put off to."""
    faults: dict[int, dict[str, list[str]]] = {}
    for line in text[text.index("\n1. ") :].splitlines():
        match = LINE.fullmatch(line)
        assert match or not line, f"expected a fault, a test of it or 'not here yet', found {line!r}"
        if match and match["number"]:
            faults[int(match["number"])] = {"kind": [match["kind"]], "test": [], "part": []}
        elif match:
            last = faults[max(faults)]
            last["test" if match["test"] else "part"].append(match["test"] or match["part"])
    return faults


FAULTS = read_faults((ROOT / "tests" / "known_faults.md").read_text("utf-8"))


@cache
def names_in(file: str) -> frozenset[str]:
    """Names of a file's functions, without importing it."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_fault_is_listed():
    assert list(FAULTS) == list(range(1, COUNT + 1))


@pytest.mark.parametrize("number", FAULTS)
def test_a_fault_has_tests_that_exist_or_a_part_that_does_not(number):
    fault = FAULTS[number]
    assert bool(fault["test"]) != bool(fault["part"])
    for test in fault["test"]:
        file, name = test.split("::")
        assert name in names_in(file), f"{fault['kind'][0]}: {test} is no longer there; name the test that took over"
    for part in fault["part"]:
        # When the part comes, so do tests against its faults.
        assert not (ROOT / PARTS[part]).exists(), f"{fault['kind'][0]}: {part} is here now; name tests against it"


def test_every_mutation_is_of_a_listed_fault():
    # A patch is called NN_name; the test it names stands in the list under that number.
    for path in (ROOT / "tests" / "mutations").glob("*.patch"):
        test = path.read_text("utf-8").splitlines()[0].removeprefix("# test: ")
        assert test in FAULTS[int(path.name[:2])]["test"], path.name
