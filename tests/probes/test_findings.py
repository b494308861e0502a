"""A report of readings that lack something or hold what is no number, and of baselines that do not fit."""

import json
from dataclasses import replace

import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.probes.accounting import account, below_zero
from canaryjax.probes.estimate import estimate
from canaryjax.probes.findings import analyse
from canaryjax.probes.merged import compare
from canaryjax.probes.records import SPANS, Cell, TargetTokens
from canaryjax.probes.selection import Candidate, screen
from tests.probes import constructed as c

COUNT = 5


def made(change=0.01, **more):
    """Five canaries, one baseline and one cell that changes alike everywhere, as lists to be damaged."""
    canaries, tokens = c.material(COUNT)
    cells, readings = c.readings(c.same_for_all(np.full(c.LENGTH, change), COUNT), canaries=canaries, **more)
    return tokens, canaries, list(cells), list(readings)


def report_of(tokens, canaries, cells, readings, **sections):
    report = analyse(tokens, canaries, cells, readings, c.config(**sections))
    json.dumps(report, allow_nan=False)
    return report


def with_value(one, canary, positions, value, part="nll"):
    rows = [row.copy() for row in getattr(one, part)]
    rows[canary][positions] = value
    return replace(one, **{part: tuple(rows)})


def test_infinities_of_both_readings_and_both_signs_are_named_and_left_out():
    tokens, canaries, cells, readings = made()
    readings = [with_value(replace(one, merged_nll=one.nll), 2, 12, np.inf) for one in readings]
    readings = [with_value(one, 2, 12, np.inf, "merged_nll") for one in readings]
    readings[1] = with_value(readings[1], 2, [13, 14], [-np.inf, np.nan])
    scored = tuple(np.array([30.0, np.inf, 20.0]) if i == 1 else np.array([30.0, 25.0, 20.0]) for i in range(COUNT))
    readings[1] = replace(readings[1], decoy_nll={"wrong": scored})
    report = report_of(tokens, canaries, cells, readings)
    assert report["not_finite"]["tokens"] == 6
    assert report["not_finite"]["where"][0] == {"cell": "base", "seed": 0, "canary": 2, "positions": [12]}
    assert report["not_finite"]["where"][1] == {"cell": "tuned", "seed": 0, "canary": 2, "positions": [12, 13, 14]}
    # The merged readings and the decoys are named too, as a score file names them.
    beside = report["not_finite"]["beside"]
    assert [(row["part"], row["cell"], row["seed"], row["canary"], row["positions"]) for row in beside] == [
        ("merged_logps", "base", 0, 2, [12]),
        ("merged_logps", "tuned", 0, 2, [12]),
        ("decoys.wrong", "tuned", 0, 1, [1]),
        ("merged_logps", "tuned", 1, 2, [12]),
        ("merged_logps", "tuned", 2, 2, [12]),
    ]
    assert any("5 numbers of other passes or of decoys are not finite" in text for text in report["warnings"])
    secret = report["cells"][1]["delta"]["secret"]
    assert (secret["value"], secret["instances"], secret["excluded"]) == (pytest.approx(0.01), 12, 3)
    rows = {row["span"]: row for row in report["merged"]["rows"] if row["cell"] == "tuned"}
    assert (rows["secret"]["instances"], rows["secret"]["excluded"]) == (12, 3)
    assert (rows["preamble"]["instances"], rows["preamble"]["excluded"]) == (15, 0)
    # Canary 1 has a decoy that is no number and canary 2 a true secret that is none.
    assert [(row["kind"], row["n"]) for row in report["decoys"]] == [("wrong", 3)]
    assert report["exposure"][0]["n"] == 3


def test_a_cell_without_a_number_is_not_known():
    tokens, canaries, cells, readings = made()
    nothing = tuple(np.full(c.LENGTH, np.nan) for _ in canaries)
    readings[1:] = [replace(one, nll=nothing, outputs=None) for one in readings[1:]]
    report = report_of(tokens, canaries, cells, readings)
    cell = report["cells"][1]
    assert cell["verdict"]["labels"] == ["not known"]
    assert cell["delta"]["secret"]["value"] is None
    assert cell["delta"]["secret"]["nested"]["reason"] == "no finite instance"
    assert report["accounting"]["largest_spread"] == dict.fromkeys(("window", *SPANS))
    assert not any("no rule finds" in text for text in report["reading"])


def test_without_outputs_of_either_side_no_agreement_is_claimed():
    tokens, canaries, cells, readings = made(change=0.0)
    for silent in ([0], [1], [0, 1, 2, 3]):
        bare = [replace(one, outputs=None) if i in silent else one for i, one in enumerate(readings)]
        report = report_of(tokens, canaries, cells, bare)
        assert report["cells"][1]["verdict"]["labels"] == ["not known"]
    assert report["selection"]["pools"] == {"saturated": 0, "undertrained": 0, "between": 0, "not read": 1}
    assert report_of(tokens, canaries, cells, readings)["cells"][1]["verdict"]["labels"] == ["no disagreement"]


def test_targets_of_unlike_lengths():
    """The first target ends within the window and within its secret: it is left out of the window alone."""
    tokens, canaries, cells, readings = made()
    first, short = tokens[0], 17
    tokens[0] = TargetTokens(0, first.ids[:short], first.offsets[:short], first.owners[:short], ())
    readings = [replace(one, nll=(one.nll[0][:short], *one.nll[1:]), ranks=None, window_nll=None) for one in readings]
    cell = report_of(tokens, canaries, cells, readings)["cells"][1]
    assert (cell["delta"]["window"]["instances"], cell["delta"]["window"]["excluded"]) == (12, 3)
    assert cell["decomposition"]["instances"] == 12
    assert (cell["delta"]["secret"]["instances"], cell["delta"]["secret"]["excluded"]) == (15, 0)
    assert cell["delta"]["sweep"]["15"]["instances"] == 15
    assert len(cell["profile"]["delta"]) == c.LENGTH


def test_a_baseline_that_was_not_read_is_refused():
    tokens, canaries, cells, readings = made()
    with pytest.raises(UserError, match=r"the baseline 'base' of cell 'tuned' .* found it for seeds \[\]"):
        analyse(tokens, canaries, cells, readings[1:], c.config())


def test_one_seeds_baseline_is_none_of_anothers():
    tokens, canaries, cells, readings = made()
    bases = [replace(readings[0], seed=seed) for seed in (0, 1)]
    with pytest.raises(UserError, match=r"for seeds \[0, 1\] and none for \[2\]"):
        analyse(tokens, canaries, cells, [*bases, *readings[1:]], c.config())
    # One that all share has whatever seed it was read under.
    shared = [replace(readings[0], seed=7), *readings[1:]]
    assert report_of(tokens, canaries, cells, shared)["cells"][1]["delta"]["window"]["value"] == pytest.approx(0.01)


def test_a_cell_that_was_not_read_is_not_in_the_report():
    tokens, canaries, cells, readings = made()
    report = report_of(tokens, canaries, cells, readings[:1])
    assert [cell["name"] for cell in report["cells"]] == ["base"]
    assert report["accounting"]["ci_rows"] == 0
    assert report["accounting"]["negative_points"] == []


def test_one_seed_has_no_rows_with_intervals():
    cells = [Cell(name, "deep", "made", kind, 3, "base") for name, kind in (("a", "sft"), ("b", "noise"), ("c", "sft"))]
    found = account([Cell("base", "deep", "none", "baseline", 0, None), *cells], {"base": 2, "a": 1, "b": 3, "c": 3})
    assert (found["total_runs"], found["ci_rows"]) == (7, 2)


def test_negative_points_and_the_widest_spread_name_their_cells():
    """Points below 0 whose intervals hold 0 are listed and not counted (PA-29, PA-30)."""
    tables = {
        "up": {0: {0: 0.2, 1: 0.3}, 1: {0: 0.25, 1: 0.35}, 2: {0: 0.21, 1: 0.31}},
        "near": {0: {0: -0.9, 1: 0.5}, 1: {0: 0.6, 1: -0.8}, 2: {0: 0.4, 1: 0.14}},
        "down": {0: {0: -0.2, 1: -0.3}, 1: {0: -0.25, 1: -0.35}, 2: {0: -0.7, 1: -0.9}},
        "unread": {0: {0: float("nan")}, 1: {0: float("nan")}, 2: {0: float("nan")}},
    }
    estimates = {name: estimate(table, 0.95, 999, 3) for name, table in tables.items()}
    found = below_zero(
        {name: {"window": estimates["up"], "literal": one, "secret": one} for name, one in estimates.items()}
    )
    assert found["secret_below_zero"] == 1
    assert [row["cell"] for row in found["negative_points"]] == ["near", "down"]
    assert found["negative_points"][0]["value"] == pytest.approx(-0.06 / 6)
    for quantity in ("literal", "secret"):
        assert found["largest_spread"][quantity] == {"cell": "down", "value": pytest.approx(0.8 - 0.25)}
    assert list(found["largest_spread"]) == ["window", "literal", "secret"]  # no more than was read


def test_merged_counts_what_it_leaves_out_and_passes_infinities_by():
    owners = [("preamble", "secret"), ("preamble", "secret"), ("preamble", "preamble")]
    base = [np.array([1.0, np.inf]), np.array([1.0, 2.0]), np.array([1.0, 1.0])]
    stacked = [np.array([1.5, np.inf]), np.array([1.0, 2.5]), np.array([1.0, 1.0])]
    found = compare(stacked, [row * 1.0 for row in stacked], base, base, owners, "secret")
    assert (found["instances"], found["excluded"], found["ratio"]) == (1, 2, 1.0)
    nothing = compare(stacked[:1], stacked[:1], base[:1], base[:1], owners[:1], "secret")
    assert (nothing["reason"], nothing["instances"], nothing["excluded"]) == ("no finite token of it", 0, 1)


def candidate(name, window, secret, before, after, share=1.0):
    def over(value):
        return estimate({s: {i: value * (1 + 0.01 * (i + s)) for i in range(3)} for s in range(3)}, 0.95, 99, 0)

    return Candidate(name, over(window), over(secret), share, before, after)


def test_cases_are_the_first_by_size_of_their_pool():
    cells = [
        candidate("light drop", 0.0001, 0.02, 1.0, 0.95),
        candidate("large drop", -0.0002, 0.01, 1.0, 0.5),
        candidate("moved and dropped", 0.02, 0.01, 1.0, 0.2),
        candidate("drift", 0.015, 0.0004, 1.0, 1.0, 0.99),
        candidate("more drift", 0.03, 0.0004, 1.0, 1.0, 0.95),
        candidate("moved elsewhere", 0.09, 0.0004, 1.0, 1.0, 0.6),
        candidate("secret too", 0.05, 0.026, 1.0, 1.0, 0.95),
        candidate("fell", -0.007, 0.004, 0.0, 0.0),
        candidate("fell further", -0.009, 0.004, 0.0, 0.0),
        candidate("rose", 0.02, 0.004, 0.0, 0.0),
        candidate("half", 0.0, 0.02, 0.5, 0.1),
        candidate("silent", 0.0, 0.02, None, None),
    ]
    found = screen(cells, c.config().verdict)
    assert found["pools"] == {"saturated": 7, "undertrained": 3, "between": 1, "not read": 1}
    assert [(case["cell"], case["pool"], case["fitting"]) for case in found["cases"]] == [
        ("large drop", 7, 2), ("more drift", 7, 2), ("fell further", 3, 2),
    ]  # fmt: skip
    assert all(case["post_hoc"] and case["rank"] == 1 for case in found["cases"])
    rows = {row["cell"]: row for row in found["rows"]}
    assert [name for name, row in rows.items() if row["passes"]] == ["drift", "more drift", "moved elsewhere"]
    assert [name for name, row in rows.items() if row["negative"]] == ["large drop", "fell", "fell further"]
    assert rows["secret too"]["secret_small"] is False
    assert (rows["silent"]["passes"], rows["silent"]["pool"]) == (None, "not read")
