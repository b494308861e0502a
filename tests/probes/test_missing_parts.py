"""The parts of a window add up to it whatever was left out; recall and ranks that are incomplete."""

import json
from dataclasses import replace

import numpy as np
import pytest

from canaryjax.probes.findings import analyse
from canaryjax.probes.records import TargetTokens
from tests.probes import constructed as c

COUNT = 7


def made(**more):
    rng = np.random.default_rng(5)
    deltas = {seed: [rng.normal(0, 1, c.LENGTH) for _ in range(COUNT)] for seed in c.SEEDS}
    canaries, tokens = c.material(COUNT)
    cells, readings = c.readings(deltas, canaries=canaries, **more)
    return tokens, canaries, cells, list(readings), deltas


def report_of(tokens, canaries, cells, readings, **sections):
    report = analyse(tokens, canaries, cells, readings, c.config(**sections))
    json.dumps(report, allow_nan=False)
    return report


def test_parts_add_up_to_the_window_when_seeds_lack_unlike_canaries():
    """Means of a seed, then over seeds: an equal weight for each instance would give another number (PA-31)."""
    tokens, canaries, cells, readings, deltas = made(canonical=0.001)
    rows = [row.copy() for row in readings[1].nll]
    for canary in (1, 2, 3):
        rows[canary][3] = np.nan
    readings[1] = replace(readings[1], nll=tuple(rows))
    cell = report_of(tokens, canaries, cells, readings)["cells"][1]
    parts, window = cell["decomposition"], cell["delta"]["window"]["value"]
    expected = np.mean([np.mean([deltas[0][i][:20].mean() for i in (0, 4, 5, 6)]),
                        *(np.mean([row[:20].mean() for row in deltas[seed]]) for seed in (1, 2))])  # fmt: skip
    assert window == pytest.approx(expected, abs=1e-12)
    assert sum(row["contribution"] for row in parts["rows"]) == pytest.approx(window, abs=1e-12)
    assert parts["residual"] == pytest.approx(0.001, abs=1e-12)
    assert parts["instances"] == 18


def test_a_second_pass_of_some_seeds_takes_nothing_from_the_first():
    tokens, canaries, cells, readings, _ = made(canonical=0.001)
    readings[1] = replace(readings[1], window_nll=None)
    cell = report_of(tokens, canaries, cells, readings)["cells"][1]
    parts = cell["decomposition"]
    assert parts["enumerated"] == pytest.approx(cell["delta"]["window"]["value"], abs=1e-12)
    assert (parts["canonical"], parts["residual"], parts["instances"]) == (None, None, 21)


def test_no_parts_of_a_window_without_a_mean():
    tokens, canaries, cells, readings, _ = made()
    readings[1] = replace(readings[1], nll=tuple(np.full(c.LENGTH, np.nan) for _ in canaries))
    cell = report_of(tokens, canaries, cells, readings)["cells"][1]
    assert (cell["delta"]["window"]["value"], cell["decomposition"]) == (None, None)


def test_rules_have_their_hit_whatever_else_is_asked():
    tokens, canaries, cells, readings, _ = made(lost=[(0, 2)])
    report = report_of(tokens, canaries, cells, readings, reading={"hits": [16, 4]})
    cell = report["cells"][1]
    assert [(one["k"], one["hits"]) for one in cell["hits"]] == [(1, 20), (4, 21), (16, 21)]
    assert "hit@1 1.00 to 0.95" in cell["verdict"]["rules"][0]["because"]
    assert report["selection"]["pools"]["saturated"] == 1


def test_a_rank_that_is_no_number_is_not_known():
    tokens, canaries, cells, readings, _ = made(lost=[(0, 2)])
    readings[1] = replace(readings[1], ranks=tuple(np.full(c.LENGTH, np.nan) for _ in canaries))
    (row,) = report_of(tokens, canaries, cells, readings)["failures"]
    assert (row["canary"], row["position"], row["rank"]) == (2, 23, None)


def test_an_output_that_leaves_its_target_behind_the_last_token():
    tokens, canaries, cells, readings, _ = made()
    tokens = [TargetTokens(t.canary, t.ids[:-1], t.offsets[:-1], t.owners[:-1], ()) for t in tokens]
    canaries = [replace(one, recall=one.target) for one in canaries]
    readings = [replace(one, nll=tuple(row[:-1] for row in one.nll), ranks=None) for one in readings]
    readings[1] = replace(readings[1], outputs=tuple((one.target[:-1] + "u",) for one in canaries))
    rows = [row for row in report_of(tokens, canaries, cells, readings)["failures"] if row["seed"] == 0]
    assert [(row["position"], row["expected"], row["found"]) for row in rows] == [(c.LENGTH - 2, "t", "u")] * COUNT


def test_what_was_not_read_is_said():
    tokens, canaries, cells, readings, _ = made()
    bare = [replace(one, outputs=None) for one in readings]
    said = report_of(tokens, canaries, cells, bare)["reading"]
    # This cell's secret moves by chance, so it may hold a label; a still one holds none and is not known.
    still = [replace(one, nll=readings[0].nll) for one in bare]
    assert any("In 1 of 1 tuned cells (tuned) no rule holds and some could not be decided" in text
               for text in report_of(tokens, canaries, cells, still)["reading"])  # fmt: skip
    assert not any("no rule finds the probes at odds" in text for text in said)
