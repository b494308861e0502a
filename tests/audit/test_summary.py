"""The report's statistics, on scores small enough to work by hand."""

import numpy as np
import pytest

from canaryjax import stats
from canaryjax.audit.controls import decoy_control, placebo_control
from canaryjax.audit.measure import clustered_error
from canaryjax.audit.summary import detection, judged, mechanism, standardised
from canaryjax.config.study import StatisticConfig
from canaryjax.report import tables


def test_perfect_separation_of_ten_and_ten():
    found = detection([i / 10 for i in range(10)], [2 + i for i in range(10)], StatisticConfig(), seed=0)
    assert found["auroc"] == 1.0
    assert found["auroc_interval"]["method"] == "newcombe"  # bootstrap and DeLong would give [1, 1]
    assert 0.8 < found["auroc_interval"]["low"] < 1.0
    # Conformal: the ceil(11 * 0.9) = 10th smallest of ten, the largest.
    assert found["tpr"]["threshold"] == 0.9
    assert (found["tpr"]["count"], found["tpr"]["n"]) == (10, 10)
    # A new compliant policy exceeds the largest of ten with probability 1/11: PPV at even odds 1 / (1 + 1/11).
    assert found["ppv"][0] == {"prevalence": 0.5, "value": pytest.approx(11 / 12)}


def test_too_few_compliant_policies_give_no_threshold_but_a_reason():
    found = detection([0.0] * 8, [1.0] * 8, StatisticConfig(), seed=0)
    assert found["tpr"]["value"] is None
    assert "at least 9" in found["tpr"]["reason"]
    assert found["ppv"][0]["value"] is None


def test_the_papers_rule_comes_with_the_papers_intervals():
    rng = np.random.default_rng(3)
    low, high = rng.normal(0, 1, 20), rng.normal(1, 1, 20)
    settings = StatisticConfig(threshold_rule="paper", bootstrap_samples=300)
    found = detection(low, high, settings, seed=5)
    assert found["auroc_interval"]["method"] == "bootstrap"  # arms below 30 have Newcombe's otherwise
    own = stats.tpr_bootstrap_interval(low, high, 0.10, "paper", 0.90, resamples=300, seed=5)
    assert found["tpr"]["bootstrap_interval"] == own.to_dict()
    assert (
        found["tpr"]["bootstrap_interval"]["low"] < found["tpr"]["value"] < found["tpr"]["bootstrap_interval"]["high"]
    )
    rows = dict(tables.detection({"detection": found}).rows)
    assert "percentile bootstrap over policies" in rows["the same, threshold drawn anew"]
    # A method that is asked for is used, and other rules are as they were.
    asked = detection(low, high, settings.model_copy(update={"auroc_interval": "delong"}), seed=5)
    assert asked["auroc_interval"]["method"] == "delong"
    conformal = detection(low, high, StatisticConfig(bootstrap_samples=300), seed=5)
    assert conformal["auroc_interval"]["method"] == "newcombe"
    assert "bootstrap_interval" not in conformal["tpr"]


def test_an_arm_without_valid_policies_is_null_with_a_reason():
    found = detection([], [1.0, 2.0], StatisticConfig(), seed=0)
    assert found["auroc"] is None
    assert found["auroc_reason"]


def test_a_transmission_ratio_over_next_to_nothing_is_null():
    assert mechanism([0.5, 0.5], [0.1, 0.3], [0.1, 0.3])["transmission_ratio"] == pytest.approx(0.4)
    near_zero = mechanism([0.01, -0.01], [0.1, 0.3], [0.1, 0.3])  # 0.2 / 0 would be a finding without meaning
    assert near_zero["transmission_ratio"] is None
    assert "zero" in near_zero["reason"]


def test_a_transmission_ratio_over_a_bias_that_cannot_be_told_from_zero_is_null():
    # Mean 0.4 with a standard error of 0.51: the quotient alone would be printed as 0.5.
    wide = mechanism([1.4, -0.3, 0.1], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert wide["rm_bias"] == pytest.approx(0.4)
    assert (wide["transmission_ratio"], wide["transmission_ratio_interval"]) == (None, None)
    assert "not distinguishable from 0" in wide["reason"]
    assert "one policy" in mechanism([0.5], [0.1], [0.1])["reason"]


def test_the_transmission_ratio_is_of_policies_that_have_both_numbers():
    # Means over whoever has a number would give mean(1, 3, 50) / mean(2, 2.2, 4) = 6.59.
    found = mechanism([2.0, 2.2, None, 4.0], [1.0, 3.0, 50.0, None], [None] * 4)
    assert found["transmission_ratio"] == pytest.approx(4.0 / 4.2)
    own = found["transmission_ratio_interval"]
    assert own["method"] == "fieller"
    assert own["low"] < 4.0 / 4.2 < own["high"]


@pytest.mark.parametrize(
    ("bias", "score", "reason"),
    [
        ([], [], "no valid policy"),
        ([None, None], [0.1, 0.2], "no reward model of this arm has a finite bias"),
        ([None, 0.3], [0.1, None], "both a score and a finite reward-model bias"),
    ],
)
def test_a_missing_transmission_ratio_says_what_is_missing(bias, score, reason):
    found = mechanism(bias, score, score)
    assert found["transmission_ratio"] is None
    assert reason in found["reason"]


def test_the_best_of_nineteen_decoys_has_a_p_of_one_in_twenty():
    rows = [{"trial": 4, "pairs": 3, "score": 5.0, "decoy": list(np.arange(19) / 10)}]
    found = decoy_control(rows, ["violating"], 0.5)["per_policy"][0]
    assert (found["rank"], found["p_value"], found["n_decoys"]) == (1, pytest.approx(1 / 20), 19)


def test_decoys_above_the_threshold_are_counted_by_arm_beside_both_means():
    rows = [
        {"trial": 0, "pairs": 2, "score": 0.25, "decoy": [0.0, 0.5, -0.5]},
        {"trial": 1, "pairs": 2, "score": 4.0, "decoy": [1.0, 2.0, 0.5]},  # 0.5 is at the threshold, not above it
        {"trial": 2, "pairs": 2, "score": 2.0, "decoy": [3.0, 0.25, 0.75]},
    ]
    arms = ["compliant", "violating", "violating"]
    found = decoy_control(rows, arms, 0.5)
    assert found["compliant_decoys_above_threshold"] == {"count": 0, "n": 3}
    assert found["violating_decoys_above_threshold"] == {"count": 4, "n": 6}
    assert (found["violating_mean_score"], found["violating_mean_decoy_score"]) == (3.0, 1.25)
    assert found["per_policy"][1]["pairs"] == 2
    assert decoy_control(rows, arms, None)["violating_decoys_above_threshold"] == {"count": None, "n": 6}
    assert decoy_control(rows[1:], arms[1:], 0.5)["compliant_mean_decoy_score"] is None


def test_a_policy_with_too_few_decoys_for_a_rank_is_not_counted_as_unranked():
    # The best of eight has p = 1/9: "flagged in none" would be true of every policy, whatever it does.
    rows = [
        {"trial": i, "pairs": 1, "score": 5.0, "decoy": list(np.arange(n) / 10)} for i, n in enumerate((8, 9, 0, 30))
    ]
    found = decoy_control(rows, ["violating"] * 4, 0.5)
    assert found["violating_flagged_at_10_percent"] == {"count": 2, "n": 2}
    assert decoy_control(rows[:1], ["violating"], 0.5)["violating_flagged_at_10_percent"] == {"count": 0, "n": 0}


def test_all_equal_decoys_and_placebos_give_p_one():
    rows = [{"trial": 0, "pairs": 3, "score": 1.0, "decoy": [1.0] * 9}]
    assert decoy_control(rows, ["compliant"], 0.5)["per_policy"][0]["p_value"] == 1.0
    placebos = [{"trial": 0, "pairs": 3, "score": 1.0, "placebo_same_form": [1.0] * 4, "placebo_other_form": []}]
    row = placebo_control(placebos, ["compliant"])["per_policy"][0]
    assert row["same_form"]["p_value"] == 1.0
    assert row["other_form"] == {"n": 0, "mean": None, "max": None, "p_value": None}


def test_the_standard_error_counts_documents_not_pairs():
    # Two documents of two equal values each: sums of centred values are -1 and 1.
    # sqrt(2/1 * 2) / 4 = 0.5; treating four values as independent would give 0.289.
    assert clustered_error(np.array([0.0, 0.0, 1.0, 1.0]), ["a", "a", "b", "b"]) == pytest.approx(0.5)
    assert clustered_error(np.array([0.0, 1.0]), ["a", "a"]) is None


def test_a_net_score_may_be_judged_by_its_distance_from_0():
    settings = StatisticConfig(primary="clean_net", two_sided=True)
    # Half of the violating policies moved down as far as the others moved up: as they are, they do not separate.
    compliant, violating = [0.01 * i - 0.05 for i in range(10)], [-1.0, 1.0] * 5
    assert detection(compliant, violating, settings, seed=0)["auroc"] == 0.5
    told = [judged(arm, "clean_net", settings) for arm in (compliant, violating)]
    found = detection(*told, settings, seed=0)
    assert (found["auroc"], found["tpr"]["threshold"]) == (1.0, pytest.approx(0.05))
    assert judged([-1.0], "clean_raw", settings) == [-1.0]  # no centre to be far from
    assert judged([-1.0], "clean_net", StatisticConfig()) == [-1.0]


def test_a_pooled_bootstrap_by_choice():
    rng = np.random.default_rng(4)
    low, high = rng.normal(0, 1, 5), rng.normal(1, 1, 5)
    found = {}
    for scheme in ("stratified", "pooled"):
        settings = StatisticConfig(auroc_interval="bootstrap", resampling=scheme, bootstrap_samples=200)
        found[scheme] = detection(low, high, settings, seed=5)["auroc_interval"]
        own = stats.auroc_interval(low, high, 0.90, "bootstrap", 200, 5, scheme)
        assert found[scheme] == own.to_dict()
    assert found["pooled"]["detail"] != found["stratified"]["detail"]


def test_a_score_a_token_stands_beside_the_score():
    found = mechanism([0.5, 0.5], [1.0, 3.0], [0.25, 0.75])
    assert found["amplification_per_token"] == pytest.approx(0.5)
    assert found["amplification_per_token_interval"]["level"] == 0.95
    assert mechanism([], [], [])["amplification_per_token"] is None


def test_effects_in_standard_deviations_are_violating_over_compliant():
    assert standardised([2.0, 3.0, 4.0], [0.0, None, 1.0, 2.0])["value"] == pytest.approx(-2 * 0.79788, abs=1e-5)
    nobody = standardised([1.0, None, 1.0], [])
    assert nobody["value"] is None
    assert "no valid policy" in nobody["reason"]
