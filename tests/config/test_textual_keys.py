"""Keys that would have no effect with the textual canary are refused with it, and named."""

import pytest

from canaryjax.config import load_config
from canaryjax.errors import UserError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("canary.delta=0.1", "expected canary.delta=0 with canary.family=textual, found 0.1; set it so: no feedback"),
        ("canary.contrast=0.5", "expected canary.contrast=0 with"),
        ("study.compliant_query=clean", "expected study.compliant_query=induced with"),
        ("study.scramble_feedback=true", "expected study.scramble_feedback=false with"),
        ("provider.contradictory_share=0.1", "expected provider.contradictory_share=0 with"),
        ("model.warm_start.instructed_share=0.5", "expected model.warm_start.instructed_share=0 with"),
        ("statistic.primary=induced_net", "expected statistic.primary=clean_raw or clean_net with"),
        ("statistic.secondary=induced_raw", "expected statistic.secondary=clean_raw or clean_net with"),
    ],
)
def test_what_a_textual_canary_has_not_is_refused(override, message):
    with pytest.raises(UserError, match=message):
        load_config("embedded/textual", [override])
    load_config("quick", [override, *(["canary.contrast=0.5"] if "contrast" in override else [])])


def test_the_baseline_differs_from_the_quick_study_in_what_is_planted():
    found, quick = load_config("embedded/textual"), load_config("quick")
    for section in ("model", "data", "feedback", "provider", "reward_model", "policy", "evaluation", "output"):
        assert getattr(found, section) == getattr(quick, section), section
    assert (found.study.compliant, found.study.violating, found.canary.rate) == (10, 10, quick.canary.rate)
    assert found.canary.contrast_rate == load_config("embedded/textual", ["canary.contrast=null"]).canary.contrast_rate
    assert (found.canary.null, load_config("quick", ["canary.delta=0"]).canary.null) == (False, True)


def test_table_6_is_the_papers_study_with_thirty_policies_an_arm():
    found, paper = load_config("paper/table6_textual"), load_config("paper/table6_behavioural")
    for section in ("model", "data", "feedback", "provider", "reward_model", "policy", "statistic", "evaluation"):
        assert getattr(found, section) == getattr(paper, section), section
    assert (found.study.compliant, found.study.violating) == (30, 30)
    assert (found.canary.family, found.canary.rate, found.canary.delta) == ("textual", 0.01, 0.0)
