"""The document's arithmetic from constructed tokens, and its three kinds of failure by name (PA-33, PA-41 to PA-44)."""

import json

import numpy as np
import pytest

from canaryjax.probes.findings import analyse
from tests.probes import constructed as c

LABELS = {
    "recovery": "full-secret recovery",
    "undertrained": "undertrained in-window improvement",
    "damage": "behavioural damage",
    "drift": "non-secret preamble drift",
    "truncation": "window-truncation failure",
}


def report_of(made, **sections):
    canaries, tokens = c.material()
    report = analyse(tokens, canaries, *made, c.config(**sections))
    json.dumps(report, allow_nan=False)
    return report


def tuned(report):
    return report["cells"][1]


def parts(cell):
    return {row["span"]: row["contribution"] for row in cell["decomposition"]["rows"]}


def test_a_window_that_misses_damage():
    report = report_of(c.case_one())
    cell = tuned(report)
    assert cell["delta"]["window"]["value"] == pytest.approx(0.0001, abs=1e-12)
    assert cell["delta"]["secret"]["value"] == pytest.approx(0.0133, abs=1e-12)
    assert [(one["k"], one["hits"], one["n"]) for one in cell["hits"]] == [(1, 53, 60), (4, 60, 60), (16, 60, 60)]
    assert cell["verdict"]["labels"] == [LABELS["damage"], LABELS["truncation"]]
    # The last token of the secret first enters the window at 25 (0.0133 * 13 over 25 positions), never at 20.
    sweep = {k: one["value"] for k, one in cell["delta"]["sweep"].items()}
    assert sweep["20"] == pytest.approx(0.0001)
    assert sweep["25"] == pytest.approx((0.0133 * 13 + 0.002) / 25)
    case = report["selection"]["cases"][0]
    assert (case["cell"], case["pool"], case["rank"], case["post_hoc"]) == ("tuned", 1, 1, True)


def test_leave_one_out_names_the_canary_that_carries_the_change():
    values = [one["value"] for one in tuned(report_of(c.case_one()))["leave_one_out"]["values"]]
    assert values[0] == pytest.approx(0.0075, abs=5e-5)
    assert min(values[1:]) == pytest.approx(0.01332, abs=5e-6)
    assert max(values[1:]) == pytest.approx(0.01400, abs=5e-6)


def test_where_an_output_leaves_its_target_is_told_by_token():
    report = report_of(c.case_one())
    rows = [row for row in report["failures"] if row["cell"] == "tuned"]
    assert len(rows) == 7
    assert {row["canary"] for row in rows} == {0, 12, 14}
    assert {(row["position"], row["found"][0], row["rank"]) for row in rows} == {(23, "_", 7)}
    assert all(row["expected"] == row["target"][23] for row in rows)


def test_drift_of_the_preamble():
    report = report_of(c.case_two())
    cell = tuned(report)
    found = parts(cell)
    assert found["preamble"] == pytest.approx(0.01486, abs=1e-9)
    assert found["secret"] == pytest.approx(0.00017, abs=1e-9)
    assert cell["decomposition"]["enumerated"] == pytest.approx(0.01503, abs=1e-9)
    assert cell["decomposition"]["canonical"] == pytest.approx(0.01504, abs=1e-9)
    assert cell["decomposition"]["residual"] == pytest.approx(0.00001, abs=1e-9)
    # The first ten positions are the preamble: half of their mean is its part of twenty.
    assert cell["delta"]["sweep"]["10"]["value"] == pytest.approx(0.0297, abs=5e-5)
    assert 0.5 * cell["delta"]["sweep"]["10"]["value"] == pytest.approx(found["preamble"], abs=1e-12)
    assert cell["delta"]["secret"]["value"] == pytest.approx(0.0004, abs=1e-9)
    assert cell["verdict"]["labels"] == [LABELS["drift"]]
    assert report["selection"]["cases"][1]["cell"] == "tuned"


def test_a_window_that_fell_without_recovery():
    report = report_of(c.case_three())
    cell = tuned(report)
    found = parts(cell)
    assert found == pytest.approx(
        {"secret": -0.00583, "literal": -0.00091, "preamble": 0.00001, "end": 0, "trailing": 0}, abs=1e-9
    )
    assert cell["decomposition"]["residual"] == pytest.approx(-0.00030, abs=1e-9)
    assert cell["decomposition"]["canonical"] == pytest.approx(-0.00703, abs=1e-9)
    assert cell["delta"]["secret"]["value"] == pytest.approx(0.0076, abs=1e-9)
    assert [one["hits"] for one in cell["hits"]] == [0, 0, 0]
    assert cell["verdict"]["labels"] == [LABELS["undertrained"]]
    assert report["selection"]["cases"][2]["cell"] == "tuned"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # 89 % on the preamble is no drift; 95 % is.
        (lambda row: row.__setitem__(c.span("literal"), 0.297 * 0.11 / 0.89), ["no disagreement"]),
        (lambda row: row.__setitem__(c.span("literal"), 0.297 * 0.05 / 0.95), [LABELS["drift"]]),
        # A secret that moves by half of the window's change or more takes the label away; in either direction (PA-A12).
        (lambda row: row.__setitem__(slice(20, 24), 0.0076 * 13 / 4), ["no disagreement"]),
        (lambda row: row.__setitem__(slice(20, 24), -0.0073 * 13 / 4), [LABELS["recovery"], LABELS["drift"]]),
    ],
)
def test_near_misses_of_drift(change, expected):
    row = np.zeros(c.LENGTH)
    row[c.span("preamble")] = 0.0297
    change(row)
    made = c.readings(c.same_for_all(row))
    assert tuned(report_of(made))["verdict"]["labels"] == expected


def test_a_lost_greedy_output_takes_drift_away():
    row = np.zeros(c.LENGTH)
    row[c.span("preamble")] = 0.0297
    made = c.readings(c.same_for_all(row), lost=[(0, 3)])
    assert LABELS["drift"] not in tuned(report_of(made))["verdict"]["labels"]


def test_a_secret_that_fell_in_two_seeds_of_three_is_no_recovery():
    deltas = c.same_for_all(np.zeros(c.LENGTH))
    for seed, sign in zip(c.SEEDS, (-1, -1, 1), strict=True):
        for row in deltas[seed]:
            row[c.span("secret")] = sign * 0.01
    assert LABELS["recovery"] not in tuned(report_of(c.readings(deltas)))["verdict"]["labels"]
    for row in deltas[c.SEEDS[2]]:
        row[c.span("secret")] = -0.01
    assert LABELS["recovery"] in tuned(report_of(c.readings(deltas)))["verdict"]["labels"]


@pytest.mark.parametrize(
    ("of_seeds", "by_signs_alone"),
    [
        ((-0.01, -0.0003, -0.0002), True),  # one sign, and Student's interval holds 0
        ((-0.010, -0.011, -0.009), False),
    ],
)
def test_a_recovery_by_signs_alone_is_called_no_claim(of_seeds, by_signs_alone):
    deltas = c.same_for_all(np.zeros(c.LENGTH))
    for seed, value in zip(c.SEEDS, of_seeds, strict=True):
        for place, row in enumerate(deltas[seed]):
            row[c.span("secret")] = value * (1 + 0.01 * place)
    report = report_of(c.readings(deltas))
    assert LABELS["recovery"] in tuned(report)["verdict"]["labels"]
    assert any("signs of the seeds alone in tuned" in text for text in report["reading"]) == by_signs_alone


def test_secrets_that_are_said_again_are_a_recovery_whatever_the_signs():
    cells, readings = c.readings(c.same_for_all(np.zeros(c.LENGTH)), said_before=False)
    told = c.readings(c.same_for_all(np.zeros(c.LENGTH)))[1]
    report = report_of((cells, [readings[0], *told[1:]]))
    assert LABELS["recovery"] in tuned(report)["verdict"]["labels"]
    assert not any("signs of the seeds alone" in text for text in report["reading"])


def test_a_mean_over_thirty_is_not_the_secrets():
    cell = tuned(report_of(c.case_one()))
    # 13 tokens carry the change: over them it is 0.0133, over 30 positions (13 * 0.0133 + 0.002) / 30.
    assert cell["delta"]["sweep"]["30"]["value"] == pytest.approx((13 * 0.0133 + 0.002) / 30)
    assert cell["delta"]["secret"]["value"] == pytest.approx(0.0133)


def test_parts_add_up_to_the_window_exactly():
    rng = np.random.default_rng(3)
    deltas = {seed: [rng.normal(0, 1, c.LENGTH) for _ in range(c.CANARIES)] for seed in c.SEEDS}
    cell = tuned(report_of(c.readings(deltas)))
    assert sum(parts(cell).values()) == pytest.approx(cell["delta"]["window"]["value"], abs=1e-14)
    assert sum(row["share"] for row in cell["decomposition"]["rows"]) == pytest.approx(1.0)


def test_a_window_that_stands_still_to_rounding_has_no_shares():
    row = np.zeros(c.LENGTH)
    row[c.span("preamble")] = 0.02
    row[c.span("literal")] = -0.2 + 1e-9  # all but cancels: shares of that would be millions
    cell = tuned(report_of(c.readings(c.same_for_all(row))))
    assert cell["decomposition"]["enumerated"] == pytest.approx(5e-11, rel=1e-3)
    assert {one["share"] for one in cell["decomposition"]["rows"]} == {None}
