"""Sentences that numbers choose: missing controls, claims of one family of intervals, the chance of equal signs."""

import numpy as np
import pytest

from canaryjax.probes.findings import analyse
from canaryjax.probes.records import Cell, Reading
from tests.probes import constructed as c

NOT_SATURATED, NOT_UNDERTRAINED = "there is no saturated control", "there is no undertrained control"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((3, 0), []),
        ((3, 2), [NOT_UNDERTRAINED]),
        ((2, 0), [NOT_SATURATED]),
        ((2, 1), [NOT_SATURATED, NOT_UNDERTRAINED]),
    ],
)
def test_a_missing_control_is_warned_of(said, expected):
    """Of two baselines how many of three secrets each says (PA-51)."""
    canaries, tokens = c.material(3)
    nll = tuple(np.full(c.LENGTH, 0.5) for _ in canaries)
    cells = [Cell(name, name, "none", "baseline", 0, None) for name in ("deep", "flat")]
    readings = [
        Reading(
            cell.name, 0, nll, outputs=tuple((one.target if i < count else "no",) * 4 for i, one in enumerate(canaries))
        )
        for cell, count in zip(cells, said, strict=True)
    ]
    warnings = analyse(tokens, canaries, cells, readings, c.config())["warnings"]
    assert [text.split("): ")[1].rstrip(".") for text in warnings if "control" in text] == expected


def test_a_claim_of_students_interval_alone_is_marked_and_so_is_the_chance_of_equal_signs():
    """Seeds that agree on the mean of canaries that do not: Student's interval excludes 0, the bootstrap does not."""
    canaries, tokens = c.material(7)
    values = np.array([-1.0, 1.0, -0.9, 0.9, -0.5, 0.5, 0.07])
    deltas = {seed: [np.full(c.LENGTH, value + 1e-4 * seed) for value in values] for seed in c.SEEDS}
    cells, readings = c.readings(deltas, canaries=canaries)
    report = analyse(tokens, canaries, cells, readings, c.config())
    assert report["cells"][1]["delta"]["secret"]["label"] == "t-only"
    assert any("tuned (secret, t-only)" in text for text in report["reading"])
    assert "3 of 3 seeds with one sign have probability 0.25 under a fair coin." in report["limitations"]
