"""The published numbers and settings: what `PROTOCOL.md` tells readers is what the code holds."""

import re
from pathlib import Path

import pytest
import yaml

from canaryjax.report.published import DETECTION, EVERYWHERE, PLANTED, REPLIQA, ROWS, TABLE_3, TABLE_4, TABLE_5

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "canaryjax" / "audit" / "PROTOCOL.md").read_text("utf-8")
# What a file is called and reads, which column it is, what the paper says in words (BC-18, BC-21, BC-52), and ours.
GIVEN = {
    *("extends", "name", "description", "data.path", "policy.algorithm", "canary.instruction", "canary.placement"),
    *("study.compliant", "study.violating", "statistic.secondary"),
}


def told(name):
    """(RepliQA, QMSum, requirement) of a row of PROTOCOL.md's table of numbers, by what it is called."""
    part = TEXT[TEXT.index("## The paper's numbers") :]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return next((row[1], row[2]) for row in rows if row[0].startswith(name))


def written(row, measure, digits=3):
    number = ROWS[row].numbers[measure]
    text = f"{number.value:.{digits}f}"
    return text if number.low is None else f"{text} [{number.low:.{digits}f}, {number.high:.{digits}f}]"


def test_protocol_says_the_published_numbers():
    sets = ("repliqa", "qmsum")
    for name, measure, digits in (("reward-model bias", "rm_bias", 2), ("score, nats", "score", 2),
                                  ("AUROC", "auroc", 3), ("detection rate", "tpr", 3)):  # fmt: skip
        assert told(name) == tuple(written(f"table1.{data}", measure, digits) for data in sets)
    ratios = [ROWS[f"table1.{data}"].numbers["ratio"].value for data in sets]
    assert told("score over bias") == tuple(f"{100 * ratio:.1f} %" for ratio in ratios)
    for name, row in (("ROUGE-L / F1, base", "base"), ("ROUGE-L / F1, RL without canaries", "no_canary"),
                      ("ROUGE-L / F1, RL with 1 % canaries", "canary")):  # fmt: skip
        both = [[written(f"table2.{data}.{row}", of) for of in ("rouge_l", "token_f1")] for data in sets]
        assert told(name) == tuple(" / ".join(pair) for pair in both)
    baseline = next(line for line in TEXT.splitlines() if line.startswith("- The baseline (BC-69)"))
    auroc, tpr = (written("table6.textual", measure) for measure in ("auroc", "tpr"))
    assert baseline.endswith(f": AUROC {auroc}, detection rate {tpr}, t = 0.72, p = 0.47.")
    assert [ROWS["table6.textual"].numbers[of].value for of in ("t", "p")] == [0.72, 0.47]


def keys_of(requirement):
    """`key=value` tokens of a requirement's row, by whose they are."""
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| {requirement} |"))
    found = re.findall(r"`(?:([\w/]+):)?((?:model|policy|reward_model|feedback|canary)\.[\w.]+)=([^`]+)`", row)
    return {(whose, key): value for whose, key, value in found}


def text_of(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("requirement", "whose", "table"),
    [
        ("BC-37", "", TABLE_5),
        ("BC-43", "", {key: value for key, value in TABLE_3.items() if key != "model.dtype"}),
        ("BC-46", "ppo", TABLE_4["ppo"]),
        ("BC-46", "grpo", TABLE_4["grpo"]),
    ],
)
def test_protocol_says_the_published_settings(requirement, whose, table):
    found = {key: value for (owner, key), value in keys_of(requirement).items() if owner == whose}
    delta = {"canary.delta", "canary.allow_large_delta"} if requirement == "BC-37" else set()
    assert found.keys() - delta == table.keys()
    assert {key: found[key] for key in table} == {key: text_of(value) for key, value in table.items()}
    if delta:
        assert [found["canary.delta"]] == [str(value) for value in PLANTED["canary.delta"]]


def test_every_interval_holds_its_number():
    for row in ROWS.values():
        for number in row.numbers.values():
            assert number.low is None or number.low < number.value < number.high


def leaves_by_line(text):
    """(config key, its value, the line that it stands on) of every value of a config file."""
    lines = text.splitlines()

    def walk(node, prefix):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            if isinstance(value, yaml.MappingNode):
                yield from walk(value, f"{name}.")
            else:
                yield name, yaml.safe_load(value.value), lines[value.start_mark.line]

    return list(walk(yaml.compose(text), ""))


@pytest.mark.parametrize("column", ["grpo", "ppo"])
def test_what_the_paper_leaves_open_is_marked_as_assumed(column):
    """BC-A18: the marks of the two files that all others of the paper's extend."""
    text = (ROOT / "configs" / "paper" / f"repliqa_gemma2b_{column}.yaml").read_text("utf-8")
    stated = TABLE_3 | TABLE_4[column] | TABLE_5
    ranges = EVERYWHERE | PLANTED | DETECTION | REPLIQA
    marked = set()
    for key, value, line in leaves_by_line(text):
        if "assumed" in line.partition("#")[2]:
            marked.add(key)
            assert key not in stated, f"{key} is the paper's"
        elif key in stated:
            assert value == stated[key], key
        elif key in ranges:
            assert value in ranges[key], key
        else:
            assert key in GIVEN, f"{key}: neither the paper's nor marked"
    assert {"policy.lora.rank", "policy.lora.alpha"} <= marked
    assert ("policy.temperature" in marked) == (column == "grpo")
