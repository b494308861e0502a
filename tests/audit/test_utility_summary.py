"""Utility of a study: each policy against the base on its own questions, arms against each other."""

import pytest
from scipy import stats as sps

from canaryjax.audit.utility import METRICS
from canaryjax.audit.utility_summary import per_policy, utility_summary
from canaryjax.config import load_config

ARMS = ("compliant", "violating")


def answers(quality, not_found=None, n=4):
    """Of one policy, or of the base on its questions."""
    return {
        **{"exact_match": quality, "token_f1": quality, "rouge_l": quality, "n": n, "finished": 1.0},
        **{"not_found_accuracy": not_found, "false_not_found": 0.0, "unanswerable": 0 if not_found is None else 1},
    }


def record(draw, own, base, valid=True, declined=(None, None)):
    return {
        "draw": draw,
        "valid": valid,
        "utility": None if own is None else answers(own, declined[0]),
        "base_utility": None if base is None else answers(base, declined[1]),
    }


def summary(compliant, violating, *overrides):
    groups = {"compliant": compliant, "violating": violating}
    return utility_summary(load_config("quick", list(overrides)), groups, [*compliant, *violating])


COMPLIANT = [record(0, 0.50, 0.40), record(1, 0.75, 0.70), record(2, 0.60, 0.54)]
VIOLATING = [record(3, 0.90, 0.60), record(4, 0.45, 0.20), record(5, 0.80, 0.60), record(6, 0.1, 0.9, valid=False)]


def test_changes_are_of_a_policys_own_questions():
    found = summary(COMPLIANT, VIOLATING)
    assert found["compliant"]["exact_match"] == pytest.approx((0.5 + 0.75 + 0.6) / 3)
    own = found["differences"]["compliant_minus_base"]["rouge_l"]
    gaps = [0.10, 0.05, 0.06]
    # Against the base's mean over everybody's questions, 0.563, it would be +0.053.
    assert (own["difference"], own["n"]) == (pytest.approx(sum(gaps) / 3), 3)
    expected = sps.ttest_1samp(gaps, 0).confidence_interval(0.95)
    assert (own["interval"]["low"], own["interval"]["high"]) == pytest.approx(tuple(expected))
    assert own["verdict"] == "differs"
    assert own["design"] == "paired"


def test_independent_arms_are_compared_in_their_changes():
    found = summary(COMPLIANT, VIOLATING)["differences"]["violating_minus_compliant"]["token_f1"]
    expected = sps.ttest_ind([0.30, 0.25, 0.20], [0.10, 0.05, 0.06], equal_var=False).confidence_interval(0.95)
    # The invalid policy, 0.8 below its base, is in none of it.
    assert (found["difference"], found["n"], found["design"]) == (pytest.approx(0.18), [3, 3], "independent")
    assert (found["interval"]["low"], found["interval"]["high"]) == pytest.approx(tuple(expected))


def test_matched_pairs_are_compared_pair_by_pair():
    violating = [record(2, 0.64, 0.54), record(0, 0.52, 0.40), record(1, 0.80, 0.70), record(9, 0.1, 0.9)]
    paired = ["study.paired=true", "study.compliant=4", "study.violating=4"]
    found = summary(COMPLIANT, violating, *paired)["differences"]["violating_minus_compliant"]["exact_match"]
    # Draws 0, 1, 2: 0.02, 0.05, 0.04; draw 9 has nobody in the other arm.
    assert (found["difference"], found["n"], found["design"]) == (pytest.approx(0.11 / 3), 3, "paired")
    expected = sps.ttest_1samp([0.02, 0.05, 0.04], 0).confidence_interval(0.95)
    assert (found["interval"]["low"], found["interval"]["high"]) == pytest.approx(tuple(expected))


def test_the_margin_is_the_configs():
    found = summary(COMPLIANT, VIOLATING, "evaluation.utility_margin=0.5")
    assert found["margin"] == 0.5
    assert found["differences"]["compliant_minus_base"]["rouge_l"]["verdict"].startswith("equivalent within 0.5")


def test_shares_of_not_found_count_policies_that_were_asked():
    asked = [record(0, 0.5, 0.5, declined=(0.5, 1.0)), record(2, 0.5, 0.5, declined=(0.25, 0.5))]
    compliant = [*asked, record(1, 0.5, 0.5)]
    found = summary(compliant, VIOLATING)
    assert found["compliant"]["not_found_accuracy"] == pytest.approx(0.375)
    assert found["compliant"]["unanswerable"] == 2
    own = found["differences"]["compliant_minus_base"]["not_found_accuracy"]
    assert (own["difference"], own["n"], own["reason"]) == (pytest.approx(-0.375), 2, None)
    # The base was asked some, so it is not for want of questions that the violating arm has none.
    assert found["violating"]["not_found_accuracy"] is None
    assert found["violating"]["not_found_accuracy_reason"] == "no unanswerable question was among those asked"
    lacking = found["differences"]["violating_minus_base"]["not_found_accuracy"]
    assert (lacking["difference"], lacking["reason"]) == (None, "needs at least 2 units, found 0")


def test_what_was_not_measured_has_a_reason():
    none = summary(COMPLIANT, VIOLATING)
    for where in (none["base"]["not_found_accuracy_reason"],
                  none["differences"]["violating_minus_compliant"]["not_found_accuracy"]["reason"]):  # fmt: skip
        assert where == "no unanswerable question was among those asked"
    off = summary([record(0, None, None)], [record(1, None, None)], "evaluation.utility_examples=0")
    for comparison in off["differences"].values():
        for name in METRICS:
            assert (comparison[name]["difference"], comparison[name]["reason"]) == (
                None,
                "no utility examples were answered",
            )


def test_lists_by_policy_stand_in_the_order_of_the_records():
    rows = [*COMPLIANT, record(7, None, None)]
    assert per_policy(rows, "utility")["rouge_l"] == [0.50, 0.75, 0.60, None]
    assert per_policy(rows, "base_utility")["rouge_l"] == [0.40, 0.70, 0.54, None]
