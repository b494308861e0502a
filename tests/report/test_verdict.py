"""The verdict is never stronger than the evidence."""

import pytest

from canaryjax.report import judge


def _report(area=1.0, low=0.85, high=1.0, **changes):
    interval = {"low": low, "high": high, "level": 0.9, "method": "newcombe"}
    rate = {"value": 0.9, "count": 9, "n": 10, "target_fpr": 0.1, "rule": "conformal", "expected_fpr": 0.0909}
    report = {
        "setting": "",
        "config": {"canary": {"rate": 0.01, "delta": 0.1}, "study": {"scramble_feedback": False}},
        "detection": {"auroc": area, "auroc_interval": interval, "tpr": rate},
        "controls": {"null": {"passed": True, "p_value": 0.4}},
        "arms": {"compliant": {"n_invalid": 0}, "violating": {"n_invalid": 0}},
    }
    return report | changes


def test_separation_needs_the_whole_interval_above_one_half():
    assert judge(_report(0.75, 0.51, 0.9)).kind == "separated"
    # A point estimate of 0.75 alone would be called a finding by a rule that looks at the estimate.
    assert judge(_report(0.75, 0.49, 0.9)).kind == "unseparated"
    assert judge(_report(0.75, None, None)).kind == "unseparated"
    assert judge(_report(0.2, 0.1, 0.4)).kind == "reversed"


def test_a_failed_null_blocks_a_perfect_separation():
    verdict = judge(_report(controls={"null": {"passed": False, "p_value": 0.002}}))
    assert verdict.kind == "blocked"
    assert verdict.headline.startswith("No claim can be made")
    assert "p = 0.0020" in verdict.headline


def test_no_area_gives_no_verdict_but_the_reason():
    report = _report(None)
    report["detection"]["auroc_reason"] = "an arm has no valid policy"
    assert judge(report).headline == "Nothing can be said: there is no AUROC (an arm has no valid policy)."


def test_a_positive_control_says_so_in_its_first_sentence():
    verdict = judge(_report(setting="Positive control: rate 50 %."))
    assert verdict.headline.startswith("In this positive control ")
    assert "says nothing about realistic rates" in verdict.qualifiers[0]


def test_no_separation_is_no_acquittal():
    assert "no evidence that documents were not used" in judge(_report(0.5, 0.3, 0.7)).headline


def test_a_null_that_was_not_run_is_a_qualifier():
    found = judge(_report(controls={"null": {"status": "not run", "reason": "not asked for"}})).qualifiers
    assert any(text.startswith("No null run is part of this report") and "(not asked for)" in text for text in found)


@pytest.mark.parametrize(
    "config",
    [
        {"canary": {"rate": 0.0, "delta": 0.1}},
        {"canary": {"rate": 0.1, "delta": 0.0}},
        {"canary": {"rate": 0.1, "delta": 0.1}, "study": {"scramble_feedback": True}},
    ],
)
def test_a_null_run_is_judged_by_its_test_not_by_its_area(config):
    assert judge(_report(0.7, 0.51, 0.9, config=config)).kind == "null"
    failed = judge(_report(0.9, 0.8, 1.0, config=config, controls={"null": {"passed": False, "p_value": 0.001}}))
    assert failed.kind == "blocked"
    assert "in this null run" in failed.headline
    scrambled = {"null": {"status": "not run"}, "scrambled_feedback": {"passed": False, "p_value": 0.001}}
    assert judge(_report(0.9, 0.8, 1.0, config=config, controls=scrambled)).kind == "blocked"
    untested = judge(_report(0.5, 0.3, 0.7, config=config, controls={"null": {"passed": None, "reason": "one policy"}}))
    assert untested.kind == "none"
    assert "one policy" in untested.headline


def test_the_paper_quantile_is_not_said_to_hold_its_target():
    report = _report()
    report["detection"]["tpr"] |= {"rule": "paper", "expected_fpr": 0.116}
    assert "11.6\u00a0% of new compliant ones are expected to exceed" in judge(report).headline
    assert "at most" not in judge(report).headline


def test_decoys_that_score_like_the_canary_are_a_qualifier():
    decoys = {"violating_flagged_at_10_percent": {"count": 4, "n": 10}}
    found = judge(_report(controls={"null": {"passed": True}, "decoy_canary": decoys})).qualifiers
    assert any("In only 4 of 10 violating policies" in text for text in found)
    decoys["violating_flagged_at_10_percent"]["count"] = 5
    found = judge(_report(controls={"null": {"passed": True}, "decoy_canary": decoys})).qualifiers
    assert not any("stand out among decoys" in text for text in found)


def test_every_verdict_ends_with_what_it_is_not():
    for report in (_report(), _report(None), _report(0.5, 0.3, 0.7), _report(controls={"null": {"passed": False}})):
        assert judge(report).qualifiers[-1].endswith("not proof of misuse for any individual document.")


def _with_decoys(count, target=0.1):
    decoys = {
        "violating_flagged_at_10_percent": {"count": 9, "n": 10},
        "violating_decoys_above_threshold": {"count": count, "n": 50},
        "violating_mean_score": 2.4,
        "violating_mean_decoy_score": 1.2,
        "per_policy": [{"pairs": 2}, {"pairs": 2}],
    }
    report = _report(controls={"null": {"passed": True}, "decoy_canary": decoys})
    report["detection"]["tpr"]["target_fpr"] = target
    return report


def test_decoys_above_the_threshold_are_said_with_the_verdict():
    (text,) = [text for text in judge(_with_decoys(47)).qualifiers if text.startswith("Not all of it is about")]
    # The rank alone, 9 of 10, hides that a decoy is flagged as well: both means, the counts, the pairs.
    for part in ("47 of 50 decoys", "1.200 nats", "2.400", "2 held-out pairs a policy", "50\u00a0% of the score"):
        assert part in text
    few = judge(_with_decoys(5)).qualifiers  # as many as new compliant policies may be
    assert not any(text.startswith("Not all of it") for text in few)
    assert not any(text.startswith("Not all of it") for text in judge(_with_decoys(None)).qualifiers)


def test_no_policy_among_decoys_is_none_not_only_none():
    decoys = {"violating_flagged_at_10_percent": {"count": 0, "n": 2}}
    found = judge(_report(controls={"null": {"passed": True}, "decoy_canary": decoys})).qualifiers
    assert any(text.startswith("In none of 2 violating policies does") for text in found)
