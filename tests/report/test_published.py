"""The published numbers and settings: what `PROTOCOL.md` tells readers is what the code holds."""

import re
from pathlib import Path

import pytest

from canaryjax.report.published import PLANTED, ROWS, TABLE_3, TABLE_4, TABLE_5

TEXT = (Path(__file__).resolve().parents[2] / "canaryjax" / "audit" / "PROTOCOL.md").read_text("utf-8")


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
