"""Controls stand beside the tuned cell of the same setting, whatever the cells are called (PA-15, PA-48)."""

from dataclasses import replace

import numpy as np
import pytest

from canaryjax.probes.findings import analyse
from canaryjax.probes.matrix import counterpart
from canaryjax.probes.records import Cell
from tests.probes import constructed as c

TUNED = Cell("t", "deep", "made", "sft", 5, "base")


def test_the_cell_of_the_same_setting_is_the_one():
    others = [replace(TUNED, name=name, **{key: value}) for name, key, value in (
        ("u", "regime", "flat"), ("v", "source", "other"), ("w", "steps", 7), ("x", "baseline", "ground"),
    )]  # fmt: skip
    noise = replace(TUNED, name="random one", kind="noise")
    assert counterpart([*others, noise, TUNED], noise) is TUNED
    assert counterpart(others, noise) is None
    assert counterpart([TUNED, replace(TUNED, name="again")], noise) is None  # no telling which
    assert counterpart([TUNED, noise], TUNED) is None


@pytest.mark.parametrize(("change", "said"), [(0.0011, "the probes can move"), (0.0009, "hardly move")])
def test_controls_are_compared_by_setting_and_not_by_name(change, said):
    canaries, tokens = c.material(3)
    cells, readings = c.readings(c.same_for_all(np.full(c.LENGTH, 0.02), 3), canaries=canaries)
    more = [Cell(name, "base", "made", kind, 5, "base") for name, kind in (("a", "noise"), ("b", "reexposed"))]
    for cell, value in zip(more, (0.01, 0.02 + change), strict=True):
        own = c.readings(c.same_for_all(np.full(c.LENGTH, value), 3), canaries=canaries, cell=cell.name)[1][1:]
        readings += own
    report = analyse(tokens, canaries, [*cells, *more], readings, c.config())
    assert [cell["counterpart"] for cell in report["cells"]] == [None, None, "tuned", "tuned"]
    text = " ".join(report["reading"])
    assert "The secret changes more than under a random update of the same norm in 1 of 1 cells." in text
    assert f"tuned changes the window by {0.02 + change:+.4f} instead of +0.0200" in text
    assert said in text
    wider = analyse(tokens, canaries, [*cells, *more], readings, c.config(verdict={"moved": 0.01}))
    assert "hardly move" in " ".join(wider["reading"])  # the config's threshold
