"""Cells, runs and screens counted; merged against stacked; robustness to what is missing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from canaryjax.probes.accounting import account
from canaryjax.probes.findings import analyse
from canaryjax.probes.merged import compare
from canaryjax.probes.records import Cell, Reading
from tests.probes import constructed as c


def paper_cells():
    """The document's grid: steps by regime and source, and its noise controls (PA-13, PA-15)."""
    grid = {("image", source): 5 if source == "gui" else 3 for source in ("gui", "synth", "safety", "random")}
    grid |= {("text", source): 3 for source in ("gui", "synth", "safety", "random")}
    grid |= {("under", source): 2 for source in ("gui", "synth", "safety", "random")}
    noise = {("image", "gui"): 3, ("image", "synth"): 3, ("text", "gui"): 3, ("text", "safety"): 3, ("under", "gui"): 2}
    cells = [Cell(regime, regime, "none", "baseline", 0, None) for regime in ("image", "text", "under")]
    for kind, counts in (("sft", grid), ("noise", noise)):
        for (regime, source), count in counts.items():
            cells += [Cell(f"{regime}/{source}/{n}/{kind}", regime, source, kind, n + 1, regime) for n in range(count)]
    return cells


def test_the_papers_counts():
    cells = paper_cells()
    found = account(cells, {cell.name: 1 if cell.kind == "baseline" else 3 for cell in cells})
    assert [(row["kind"], row["cells"], row["runs"]) for row in found["rows"]] == [
        ("baseline", 3, 3), ("sft", 34, 102), ("noise", 14, 42),
    ]  # fmt: skip
    assert (found["total_runs"], found["ci_rows"]) == (144, 48)


def test_merged_against_stacked():
    owners = [("preamble", "preamble", "secret")] * 2
    base = [np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0])]
    stacked = [base[0] + [0.03, 0.03, 0.2], base[1] + [0.01, 0.05, 0.4]]
    merged = [base[0] + [0.003, 0.0, 0.1], base[1] + [0.0, 0.003, 0.2]]
    found = compare(stacked, merged, base, base, owners, "preamble")
    assert found["stacked"] == pytest.approx(0.03)
    assert found["ratio"] == pytest.approx(0.05)
    assert found["mean_abs_difference"] == pytest.approx((0.027 + 0.03 + 0.01 + 0.047) / 4)
    assert compare(stacked, merged, base, base, owners, "secret")["ratio"] == pytest.approx(0.5)
    apart = [row + np.array([0.01, -0.01, 0.0]) for row in stacked]
    found = compare(stacked, apart, base, base, owners, "preamble")
    assert (found["ratio"], found["mean_abs_difference"]) == pytest.approx((1.0, 0.01))  # they do not cancel
    nothing = compare(base, merged, base, base, owners, "secret")
    assert (nothing["ratio"], nothing["reason"]) == (None, "the change is below 1e-06")
    assert compare(stacked, merged, base, base, owners, "end")["reason"] == "no finite token of it"


def test_what_rounding_the_base_loses_is_not_put_on_the_adapter():
    """A base that changes by 0.04 when it is rounded: to the base as it was, all of the adapter's effect were lost."""
    canaries, tokens = c.material(3)
    cells, found = c.readings(c.same_for_all(np.full(c.LENGTH, 0.05), 3), canaries=canaries)
    found = [replace(one, merged_nll=tuple(row - 0.04 for row in one.nll)) for one in found]
    for readings, ratio in ((found, 1.0), ([replace(found[0], merged_nll=None), *found[1:]], 0.2)):
        report = analyse(tokens, canaries, cells, readings, c.config())
        assert [(row["cell"], row["ratio"]) for row in report["merged"]["rows"]] == [
            ("tuned", pytest.approx(ratio)) for _ in c.SIZES
        ]


def test_a_zero_below_counts_only_intervals_that_exclude_it():
    rng = np.random.default_rng(0)
    deltas = {seed: [rng.normal(0, 1, c.LENGTH) for _ in range(c.CANARIES)] for seed in c.SEEDS}
    canaries, tokens = c.material()
    lower = {seed: [row - 2.0 for row in rows] for seed, rows in deltas.items()}
    for own, expected in ((deltas, 0), (lower, 1)):
        report = analyse(tokens, canaries, *c.readings(own), c.config())
        assert report["accounting"]["secret_below_zero"] == expected
    assert report["accounting"]["negative_points"][0]["cell"] == "tuned"


MISSING = ("outputs", "ranks", "window_nll", "decoy_nll", "merged_nll")


@pytest.mark.parametrize("gone", [("ranks",), ("outputs",), MISSING])
def test_parts_that_were_not_read_leave_the_rest(gone):
    canaries, tokens = c.material(7)
    cells, found = c.readings(c.same_for_all(np.full(c.LENGTH, 0.01), 7), canonical=0.0)
    bare = [Reading(**{**vars(one), **dict.fromkeys(gone)}) for one in found]
    report = analyse(tokens, canaries, cells, bare, c.config())
    json.dumps(report, allow_nan=False)
    assert report["cells"][1]["delta"]["window"]["value"] == pytest.approx(0.01)
    if "outputs" in gone:
        assert report["failures"] == []
        assert report["cells"][1]["hits"] is None
        assert report["selection"]["rows"][0]["passes"] is None


def test_levels_and_the_whole_targets_change_are_means_over_their_own_positions():
    """NLL rises by 1 from position to position, so that each mean tells which positions went in."""
    canaries, tokens = c.material(3)
    rise = np.arange(c.LENGTH, dtype=np.float64)
    cells, found = c.readings(c.same_for_all(rise, 3), base_nll=1.0, canaries=canaries)
    report = analyse(tokens, canaries, cells, found, c.config())
    base, tuned = report["cells"]
    places = {"window": (0, 19), "full": (0, 30), "preamble": (0, 9), "literal": (10, 10), "secret": (11, 23),
              "end": (24, 26), "trailing": (27, 30)}  # fmt: skip
    assert base["level"] == dict.fromkeys(places, 1.0)
    assert tuned["level"] == {name: 1 + (first + last) / 2 for name, (first, last) in places.items()}
    assert tuned["delta"]["full"]["value"] == 15.0
    assert {name: one["value"] for name, one in tuned["delta"]["spans"].items()} == {
        name: (first + last) / 2 for name, (first, last) in places.items() if name not in ("window", "full")
    }
    assert tuned["profile"]["delta"] == rise.tolist()
    positions = {row["span"]: (row["first"], row["last"]) for row in report["tokens"]["positions"]}
    assert positions == {name: place for name, place in places.items() if name not in ("window", "full")}
    inside = {row["span"]: row["in_window_mean"] for row in report["tokens"]["positions"]}
    assert inside == {"preamble": 10, "literal": 1, "secret": 9, "end": 0, "trailing": 0}  # PA-18


def test_one_seed_has_means_and_no_intervals():
    canaries, tokens = c.material(5)
    cells, found = c.readings({0: [np.full(c.LENGTH, 0.01)] * 5}, canaries=canaries)
    report = analyse(tokens, canaries, cells, found, c.config())
    window = report["cells"][1]["delta"]["window"]
    assert window["value"] == pytest.approx(0.01)
    assert (window["nested"]["low"], window["student"]["low"], window["label"]) == (None, None, "neither")
    assert window["sign_p"] is None
    assert any("one seed" in text for text in report["warnings"])


def test_a_baseline_of_each_seed_is_taken_where_there_is_one():
    canaries, tokens = c.material(3)
    cells, found = c.readings(c.same_for_all(np.full(c.LENGTH, 0.25), 3), canaries=canaries)
    base = [Reading("base", seed, tuple(np.full(c.LENGTH, 0.5 + seed) for _ in canaries)) for seed in c.SEEDS]
    report = analyse(tokens, canaries, cells, [*base, *found[1:]], c.config())
    assert report["cells"][1]["delta"]["window"]["per_seed"] == pytest.approx([0.75, -0.25, -1.25])
