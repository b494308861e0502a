"""`PROTOCOL.md` says where each requirement is met and what shows it: none is left out, and all it names is there."""

import ast
import re
from functools import cache, reduce
from pathlib import Path

import pytest

from canaryjax import stats
from canaryjax.config import load_config
from canaryjax.config.detector import DetectorConfig
from canaryjax.config.listing import config_keys, detector_keys, probes_keys, written
from canaryjax.config.policy import ALGORITHMS
from canaryjax.config.probes import ProbesConfig
from canaryjax.config.schema import AuditConfig

ROOT = Path(__file__).resolve().parents[1]
TABLES = {
    "audit": ("BC", 71, 19),
    "detector": ("SD", 41, 15),
    "probes": ("PA", 53, 15),
}  # letters of the IDs; requirements; points left open
TEST = re.compile(r"`(tests/(?:\w+/)*test_\w+\.py)::(test_\w+)`")
KEY = re.compile(r"(?:(?P<whose>[\w/]+):)?(?P<name>\w+(?:\.\w+)+)(?:=(?P<value>.+))?")


def protocol(part):
    """The text of a part's table."""
    return (ROOT / "canaryjax" / part / "PROTOCOL.md").read_text("utf-8")


def read_rows(part):
    """(ID, what, where, shown by) of each row, in order."""
    return [cells(line) for line in protocol(part).splitlines() if line.startswith(f"| {TABLES[part][0]}-")]


def cells(line):
    """The cells of a table's row; no cell holds a bar."""
    return tuple(cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|"))


@cache
def names_in(file):
    """Names of a file's functions, without importing it; none of a file that is not there."""
    path = ROOT / file
    tree = ast.parse(path.read_text("utf-8") if path.is_file() else "")
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@cache
def defaults(whose):
    """Keys and their values as an override writes them: a shipped config's, an algorithm's, or what both have alike."""
    others = {"detector": detector_keys, "probes": probes_keys}
    if whose in others:
        return {key.name: key.default for key in others[whose]()}
    if whose is not None and whose not in ALGORITHMS:
        config = load_config(whose)
        names = [key.name for key in config_keys() if key.algorithm in (None, config.policy.algorithm)]
        return {name: written(reduce(lambda node, part: getattr(node, part, None), name.split("."), config))
                for name in names}  # fmt: skip
    return {key.name: key.default for key in config_keys() if key.algorithm in (None, whose)}


def where_faults(cell):
    """What a cell names in backticks and is neither a file nor a key with that value."""
    for token in re.findall(r"`([^`]+)`", cell):
        key = KEY.fullmatch(token)
        others = {"detector": DetectorConfig, "probes": ProbesConfig}
        sections = others.get(key["whose"] if key else None, AuditConfig).model_fields
        if key and key["name"].split(".")[0] in sections:
            found = defaults(key["whose"]).get(key["name"])
            if found is None:
                yield f"{token}: no such key"
            elif key["value"] is not None and key["value"] != found:
                yield f"{token}: it is {found}"
        elif not any((folder / token).is_file() for folder in (ROOT / "canaryjax", ROOT)):
            yield f"{token}: no such file"


def shown_faults(cell):
    """What is wrong with the tests of a row, or with what stands in their place."""
    tests, words = TEST.findall(cell), re.sub(r"[\s,;]+$", "", TEST.sub("", cell)).strip()
    for file, name in tests:
        if name not in names_in(file):
            yield f"{file}::{name}: no such test"
    if "tests/" in words:
        yield f"{words}: a test is named as `tests/...::test_name`"
    yield from where_faults(words)
    if re.match(r"not yet: \w", words):
        if tests:
            yield "a test of what is not there"
    elif not (re.match(r"partly: \w", words) or (tests and not words.strip(" ,;"))):
        yield f"expected tests, 'partly: ...' or 'not yet: ...', found {cell!r}"


def row_faults(row):
    """Everything wrong with one row."""
    if len(row) != 4 or not row[1]:
        return [f"expected four cells, found {row}"]
    return [*where_faults(row[1]), *where_faults(row[2]), *shown_faults(row[3])]


@pytest.mark.parametrize("part", TABLES)
def test_every_requirement_has_one_row_in_order(part):
    letters, requirements, points = TABLES[part]
    numbers = [*range(1, requirements + 1), *(f"A{n}" for n in range(1, points + 1))]
    assert [row[0] for row in read_rows(part)] == [f"{letters}-{number}" for number in numbers]


@pytest.mark.parametrize("part", TABLES)
def test_all_that_the_table_names_is_there(part):
    assert {row[0]: faults for row in read_rows(part) if (faults := row_faults(row))} == {}


GOOD = "`tests/test_protocol.py::test_every_requirement_has_one_row_in_order`"


@pytest.mark.parametrize(
    ("where", "shown", "fault"),
    [
        ("`audit/nowhere.py`", GOOD, "no such file"),
        ("`canary.rte`", GOOD, "no such key"),
        ("`policy.clip_range`", GOOD, "no such key"),  # PPO's alone, so it says so
        ("`ppo:policy.clip_range`, `grpo:policy.clip_range`", GOOD, "grpo:policy.clip_range: no such key"),
        ("`canary.rate=0.02`", GOOD, "it is 0.01"),
        ("`ppo:policy.temperature=1.0`", GOOD, "it is 0.7"),
        ("`embedded/null:canary.rate=0.5`", GOOD, "it is 0.0"),
        ("`detector:probing.repeats=3`", GOOD, "it is 2"),
        ("`detector:probing.repeat`", GOOD, "no such key"),
        ("", "", "expected tests"),
        ("", "met", "expected tests"),
        ("", "partly:", "expected tests"),
        ("", f"yes, {GOOD}", "expected tests"),
        ("", f"not yet: soon; {GOOD}", "not there"),
        ("", "`tests/test_protocol.py::test_gone`", "no such test"),
        ("", "`tests/audit/test_gone.py::test_gone`", "no such test"),
        ("", f"{GOOD}, `tests/test_protocol.py`", "is named as"),
    ],
)
def test_a_row_that_is_wrong_is_found(where, shown, fault):
    assert any(fault in found for found in row_faults(("BC-1", "what", where, shown)))


def test_rows_that_are_right_are_left_alone():
    for where, shown in (
        ("`keys.py`, `bin/audit`", GOOD),
        ("`detector:model.path`", GOOD),
        ("", f"partly: more; {GOOD}, {GOOD}"),
        ("", "not yet: x"),
    ):
        assert row_faults(("BC-1", "what", where, shown)) == []
    assert row_faults(("BC-1", "what", GOOD)) != []


def test_the_papers_numbers_are_there_and_fit_together():
    text = protocol("audit")
    part = text[text.index("## The paper's numbers") :]
    rows = [cells(line) for line in part.splitlines() if line.startswith("|")]
    numbers = {row[3]: row[1:3] for row in rows}
    assert set(numbers) >= {f"BC-{n}" for n in (45, 58, 59, 61, 62, 64, 66)}
    for column in (0, 1):
        bias, score, rate = (float(numbers[name][column].split()[0]) for name in ("BC-45", "BC-58", "BC-62"))
        assert numbers["BC-59"][column] == f"{100 * score / bias:.1f} %"
        assert numbers["BC-64"][column] == f"{100 * stats.ppv(rate, 0.10, 0.5):.1f} %"
    for number in ("31,000", "144,000", "10^2 to 10^3", "10,000 to 100,000", "10^13", "0.537 [0.412, 0.658]"):
        assert number in part
