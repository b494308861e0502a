"""The document's intervals, spreads and merge table from readings made up to have them (PA-28, PA-29, PA-46, PA-47)."""

import numpy as np
import pytest

from canaryjax.probes.findings import analyse
from tests.probes import constructed as c
from tests.probes import printed

PRINTED = 6e-5  # four decimals
# The third case's canaries differ most: bounds of 10,000 resamples are themselves known to some 0.0002.
RESAMPLED = 1.5e-4


def report_of(made):
    canaries, tokens = c.material()
    return analyse(tokens, canaries, *made, c.config(statistics={"resamples": 10_000}))


def tuned(deltas, **how):
    return report_of(c.readings(deltas, **how))["cells"][1]


def bounds(interval):
    return interval["low"], interval["high"]


def test_the_first_case_moves_in_both_families():
    found = tuned(printed.case_one(), base_nll=0.01)["delta"]["secret"]
    assert found["value"] == pytest.approx(0.0133, abs=1e-6)
    assert found["spread"] == pytest.approx(0.0049, abs=1e-6)
    assert bounds(found["student"]) == pytest.approx((0.0066, 0.0200), abs=PRINTED)
    assert bounds(found["nested"]) == pytest.approx((0.0061, 0.0226), abs=PRINTED)
    assert (found["label"], found["direction"], found["same_sign"], found["sign_p"]) == ("both", 1, True, 0.25)


def test_leaving_canaries_out_of_the_first_case():
    values = [one["value"] for one in tuned(printed.case_one(), base_nll=0.01)["leave_one_out"]["values"]]
    assert values[0] == pytest.approx(0.0075, abs=PRINTED)
    assert min(values[1:]) == pytest.approx(0.01332, abs=6e-6)
    assert max(values[1:]) == pytest.approx(0.01400, abs=6e-6)


def test_students_interval_of_the_second_case_is_the_wider():
    found = tuned(printed.case_two(), base_nll=0.01)["delta"]["window"]
    assert found["value"] == pytest.approx(0.01503, abs=1e-6)
    # A bootstrap over three seeds never draws one further out than those it has.
    assert bounds(found["student"]) == pytest.approx((0.0106, 0.0195), abs=PRINTED)
    assert bounds(found["nested"]) == pytest.approx((0.0129, 0.0169), abs=PRINTED)
    assert found["label"] == "both"


def test_the_third_case_moves_for_students_interval_alone():
    delta = tuned(printed.case_three(), base_nll=2.62, said_before=False, canonical=-0.00030)["delta"]
    # The printed intervals are those of the window's own pass, 0.00030 below this one's.
    window = delta["window"]
    assert [one - 0.00030 for one in bounds(window["student"])] == pytest.approx([-0.0096, -0.0045], abs=PRINTED)
    assert [one - 0.00030 for one in bounds(window["nested"])] == pytest.approx([-0.0118, -0.0021], abs=PRINTED)
    assert (window["label"], window["direction"]) == ("both", -1)
    secret = delta["secret"]
    assert bounds(secret["student"]) == pytest.approx((0.0027, 0.0124), abs=PRINTED)
    assert bounds(secret["nested"]) == pytest.approx((-0.0045, 0.0198), abs=RESAMPLED)
    assert (secret["label"], secret["direction"], secret["same_sign"]) == ("t-only", 1, True)
    assert delta["spans"]["literal"]["spread"] == pytest.approx(0.0255, abs=1e-6)


def merge_rows(deltas, left, **how):
    found = report_of(printed.merged(c.readings(deltas, **how), left))["merged"]
    return {row["span"]: row for row in found["rows"]}


def test_the_secrets_change_survives_a_merge():
    first = merge_rows(printed.case_one(), {"secret": 0.98}, base_nll=0.01)["secret"]
    assert first["ratio"] == pytest.approx(0.98, abs=1e-9)
    assert 0 < first["mean_abs_difference"] < 0.005
    third = merge_rows(printed.case_three(), {"secret": 0.77}, base_nll=2.62, said_before=False)["secret"]
    assert third["ratio"] == pytest.approx(0.77, abs=1e-9)


def test_the_preambles_change_does_not():
    # By token: twelve of the secret's lose a little more than 0.49 of their change, one gains; on average 0.51 is left.
    row = np.zeros(c.LENGTH)
    row[c.span("preamble")], row[c.span("secret")] = 0.02972, 0.00044
    lost = np.full(13, 13 * (0.00024 + 0.00044 * 0.49) / 2 / 12)
    lost[5] = -13 * (0.00024 - 0.00044 * 0.49) / 2
    left = {"preamble": 0.001351 / 0.02972, "secret": 1 - lost / 0.00044}
    rows = merge_rows(c.same_for_all(row), left, base_nll=0.01)
    assert rows["preamble"]["stacked"] == pytest.approx(0.0297, abs=PRINTED)
    assert rows["preamble"]["merged"] == pytest.approx(0.0014, abs=PRINTED)
    assert rows["preamble"]["ratio"] == pytest.approx(0.05, abs=5e-3)
    assert rows["preamble"]["mean_abs_difference"] == pytest.approx(0.02837, abs=1e-5)
    assert rows["secret"]["ratio"] == pytest.approx(0.51, abs=1e-9)
    assert rows["secret"]["mean_abs_difference"] == pytest.approx(0.00024, abs=1e-9)
    assert rows["preamble"]["mean_abs_difference"] / rows["secret"]["mean_abs_difference"] == pytest.approx(
        118, abs=0.5
    )
