"""How far arms drifted, and their comparison at equal drift."""

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax import stats
from canaryjax.audit.drift import arm_drift, drift_matched
from canaryjax.config import load_config

SCORE = "induced_net"  # the quick config's primary


def record(trial, kl, score, valid=True):
    return {"trial": trial, "kl": kl, "valid": valid, "scores": {SCORE: score}}


def arms(compliant, violating):
    """Records by arm from (kl, score), numbered through."""
    first = [record(i, *values) for i, values in enumerate(compliant)]
    return {
        "compliant": first,
        "violating": [record(len(first) + i, *values) for i, values in enumerate(violating)],
    }


def matched(groups, *overrides):
    return drift_matched(load_config("quick", ["statistic.match_drift=0.2", *overrides]), groups)


# Compliant policies drift by e^0 to e^7; violating ones by e^4 to e^11, and score what they drift.
COMPLIANT = [(float(np.exp(i)), i / 10) for i in range(8)]
VIOLATING = [(float(np.exp(i + 0.01)), i / 10) for i in range(4, 12)]
# The same with two more of each in the common range, so that there are six pairs.
MANY = arms([*COMPLIANT, (float(np.exp(5.5)), 0.55), (float(np.exp(6.5)), 0.65)],
            [*VIOLATING, (float(np.exp(5.51)), 0.55), (float(np.exp(6.51)), 0.65)])  # fmt: skip


def test_a_difference_that_is_all_drift_is_gone_at_equal_drift():
    found = matched(MANY)
    scores = [[r["scores"][SCORE] for r in own] for own in MANY.values()]
    assert stats.auroc(*scores) > 0.8
    assert found["n"] == 6
    assert sorted(found["pairs"]) == [[4, 10], [5, 11], [6, 12], [7, 13], [8, 18], [9, 19]]
    assert found["auroc"] == 0.5
    assert found["auroc_interval"]["method"] == "newcombe"
    assert (found["sign_flip"]["statistic"], found["sign_flip"]["p_value"]) == (0.0, 1.0)
    assert found["unmatched"] == {"compliant": 4, "violating": 4}
    logs = [np.log([r["kl"] for r in own]) for own in MANY.values()]
    spread = np.sqrt(np.mean([log.var(ddof=1) for log in logs]))
    assert found["width"] == pytest.approx(0.2 * spread)
    assert found["standardised_difference"]["before"] == pytest.approx((logs[1].mean() - logs[0].mean()) / spread)
    assert found["standardised_difference"]["after"] == pytest.approx(0.01 / spread)
    assert found["kl"]["violating"]["before"] == pytest.approx(np.mean([r["kl"] for r in MANY["violating"]]))
    assert found["kl"]["compliant"]["after"] == pytest.approx(np.mean(np.exp([4, 5, 6, 7, 5.5, 6.5])))


def test_a_difference_beyond_drift_is_left():
    groups = arms(*([(r["kl"], r["scores"][SCORE] + extra) for r in MANY[arm]]
                    for arm, extra in (("compliant", 0.0), ("violating", 1.0))))  # fmt: skip
    found = matched(groups)
    assert found["auroc"] == 1.0
    # Six pairs of one sign: 2 of 2^6 assignments of signs are as far from 0.
    assert found["sign_flip"]["p_value"] == pytest.approx(2 / 64)
    assert found["sign_flip"]["statistic"] == pytest.approx(1.0)
    assert found["sign_flip"]["p_value"] == sps.permutation_test(
        (np.ones(6),), lambda x, axis: x.mean(axis), permutation_type="samples").pvalue  # fmt: skip


def test_fewer_pairs_than_a_test_needs_are_a_reason():
    found = matched(arms(COMPLIANT, VIOLATING))
    assert (found["n"], found["auroc"], found["sign_flip"]) == (4, None, None)
    assert found["reason"].startswith("4 pairs of 8 compliant and 8 violating policies within the caliper, and 6")
    assert found["kl"]["violating"]["after"] is not None
    few = matched(arms(COMPLIANT[:1], VIOLATING))
    assert (few["n"], few["kl"]["compliant"]["after"]) == (0, None)
    assert "at least 2 units in each group" in few["reason"]


def test_policies_without_a_positive_kl_and_invalid_ones_are_left_out_and_counted():
    groups = {arm: list(own) for arm, own in MANY.items()}
    lost = [record(90, 0.0, 9.0), record(91, None, 9.0), record(92, 7.0, None, valid=False)]
    groups["compliant"] = [*lost, *groups["compliant"]]
    found = matched(groups)
    assert found["without_kl"] == {"compliant": 2, "violating": 0}
    assert (found["n"], found["unmatched"]["compliant"]) == (6, 4)
    assert sorted(found["pairs"]) == [[4, 10], [5, 11], [6, 12], [7, 13], [8, 18], [9, 19]]
    assert found["auroc"] == 0.5


def test_it_is_run_where_it_is_asked_for_and_can_be():
    off = drift_matched(load_config("quick"), MANY)
    assert off["status"] == "not run"
    assert off["reason"].endswith("run this config again with statistic.match_drift=0.2")
    unmeasured = matched(MANY, "policy.kl_coefficient=0")
    assert unmeasured["status"] == "not run"
    assert "kl_coefficient is 0" in unmeasured["reason"]


def test_the_drift_of_an_arm_by_hand():
    groups = arms([(0.1, 1.0), (0.3, 1.0), (None, 1.0)], [])
    found = arm_drift(load_config("quick"), groups)
    assert (found["compliant"]["kl"], found["compliant"]["n"]) == (pytest.approx(0.2), 2)
    assert found["compliant"]["kl_interval"]["high"] == pytest.approx(0.2 + sps.t.ppf(0.975, 1) * 0.1)
    assert found["violating"] == {
        "n": 0,
        "kl": None,
        "kl_interval": None,
        "reason": "no valid policy of this arm has a KL",
    }


def test_scores_of_either_sign_are_matched_as_they_are_judged():
    # Violating policies moved down as far as the others would move up.
    groups = arms(*([(r["kl"], sign * (r["scores"][SCORE] + extra)) for r in MANY[arm]]
                    for arm, sign, extra in (("compliant", 1, 0.0), ("violating", -1, 1.0))))  # fmt: skip
    assert matched(groups)["auroc"] == 0.0
    assert matched(groups, "statistic.two_sided=true")["auroc"] == 1.0
