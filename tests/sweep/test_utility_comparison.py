"""RL with canaries against RL without: which cells are compared, how, and what is said where none are."""

import pytest
from scipy import stats as sps

from canaryjax.audit.utility import METRICS
from canaryjax.config import load_config
from canaryjax.report.sweep_utility import utility_section
from canaryjax.sweep.utility import utility_comparison

ARMS = ("compliant", "violating")
BASE = 0.5


def row(name, changes, *overrides, trials=None, margin=0.02):
    """A finished cell whose policies' metrics are the base's plus `changes`, by arm; `None` is a lost policy."""
    config = load_config("quick", ["canary.contrast=null", f"evaluation.utility_margin={margin}", *overrides])
    arms = {}
    for arm in ARMS:
        kept = [(trial, change) for trial, change in zip(trials or range(99), changes[arm], strict=False)
                if change is not None]  # fmt: skip
        arms[arm] = {
            "trials": [trial for trial, _ in kept],
            "utility": {metric: [BASE + change for _, change in kept] for metric in METRICS},
            "base_utility": {metric: [BASE] * len(kept) for metric in METRICS},
        }
        arms[arm]["utility"]["not_found_accuracy"] = arms[arm]["base_utility"]["not_found_accuracy"] = [None] * len(
            kept
        )
    utility = {"margin": margin, "base": {"n": 7}}
    return {"name": name, "report": {"config": config.model_dump(mode="json"), "arms": arms, "utility": utility}}


def both(*changes):
    return dict.fromkeys(ARMS, changes)


PLAIN = row("plain", both(0.01, 0.03, -0.02, 0.0), "canary.rate=0")
PLANTED = {"compliant": (0.02, 0.03, -0.01, 0.02), "violating": (0.11, 0.14, 0.08, 0.10)}


def test_cells_of_one_seed_are_paired_by_trial():
    found = utility_comparison([row("planted", PLANTED), PLAIN])
    (item,) = found["comparisons"]
    assert (item["cell"], item["without"], item["design"], item["reason"]) == ("planted", "plain", "paired", None)
    for metric in ("exact_match", "rouge_l", "false_not_found"):
        gaps = {"compliant": [0.01, 0.0, 0.01, 0.02], "violating": [0.10, 0.11, 0.10, 0.10]}
        for arm, expected in gaps.items():
            result = item["arms"][arm][metric]
            own = sps.ttest_1samp(expected, 0).confidence_interval(0.95)
            assert (result["difference"], result["n"]) == (pytest.approx(sum(expected) / 4), 4)
            assert (result["interval"]["low"], result["interval"]["high"]) == pytest.approx(tuple(own))
    # Mean 0.01, standard error 0.00408: t = -2.45 against the margin. Taken as independent, what trials have in common
    # would be noise, and nothing shown.
    assert item["arms"]["compliant"]["rouge_l"]["verdict"] == "equivalent within 0.02"
    assert item["arms"]["violating"]["rouge_l"]["verdict"] == "differs"
    assert "at least 2 units, found 0" in item["arms"]["violating"]["not_found_accuracy"]["reason"]


def test_a_trial_that_one_cell_lost_is_left_out_of_both():
    lost = {"compliant": (0.02, None, -0.01, 0.02), "violating": (0.11, 0.14, 0.08, 0.10)}
    (item,) = utility_comparison([PLAIN, row("planted", lost)])["comparisons"]
    # By position instead of by trial, the third policy would be held against the second.
    assert item["arms"]["compliant"]["rouge_l"]["n"] == 3
    assert item["arms"]["compliant"]["rouge_l"]["difference"] == pytest.approx((0.01 + 0.01 + 0.02) / 3)


def test_cells_of_different_seeds_are_independent():
    (item,) = utility_comparison([PLAIN, row("planted", PLANTED, "study.seed=5")])["comparisons"]
    result = item["arms"]["violating"]["token_f1"]
    own = sps.ttest_ind(PLANTED["violating"], [0.01, 0.03, -0.02, 0.0], equal_var=False).confidence_interval(0.95)
    assert (item["design"], result["n"]) == ("independent", [4, 4])
    assert (result["interval"]["low"], result["interval"]["high"]) == pytest.approx(tuple(own))


def test_of_several_cells_without_canaries_the_one_of_the_same_kind():
    emoji = row("plain emoji", both(0.01, 0.02), "canary.rate=0", "canary.family=emoji")
    found = utility_comparison([PLAIN, emoji, row("a", PLANTED, "canary.family=emoji"), row("b", PLANTED)])
    assert [(item["cell"], item["without"]) for item in found["comparisons"]] == [("a", "plain emoji"), ("b", "plain")]


def test_a_cell_of_the_same_trials_comes_before_one_of_the_same_kind():
    # Of the same family, but of other documents: the emoji cell of one seed can be paired trial by trial.
    stranger = row("stranger", both(0.01, 0.02), "canary.rate=0", "study.seed=5")
    emoji = row("plain emoji", both(0.01, 0.02), "canary.rate=0", "canary.family=emoji")
    (item,) = utility_comparison([stranger, emoji, row("planted", PLANTED)])["comparisons"]
    assert (item["without"], item["design"]) == ("plain emoji", "paired")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "no finished cell is RL without canaries"),
        ([{"name": "a", "report": None}, row("b", PLANTED)], "no finished cell is RL without canaries"),
        # Contrast rows ask for the canary, and their feedback speaks against it: that is not without canaries.
        ([row("a", PLANTED, "canary.rate=0", "canary.contrast=0.5"), row("b", PLANTED)], "RL without canaries"),
        ([PLAIN], "no finished cell has canaries"),
    ],
)
def test_nothing_to_compare_has_a_reason(rows, reason):
    found = utility_comparison(rows)
    assert found["comparisons"] == []
    assert reason in found["reason"]
    section = utility_section({"utility_comparison": found})
    assert section.table is None
    assert reason in section.notes[0]


def test_another_study_is_not_compared():
    other = row("other", PLANTED, "policy.kl_coefficient=0.1", "evaluation.utility_examples=5", "statistic.level=0.8")
    (item,) = utility_comparison([PLAIN, other])["comparisons"]
    assert (item["without"], item["arms"]) == (None, None)
    # The level of an interval changes nothing that is trained.
    assert item["reason"].endswith("differs in policy.kl_coefficient, evaluation.utility_examples")


def test_cells_that_answered_nothing_say_so():
    silent = row("planted", PLANTED)
    silent["report"]["utility"]["base"] = {"n": 0}
    (item,) = utility_comparison([PLAIN, silent])["comparisons"]
    assert (item["arms"], item["reason"]) == (None, "no utility examples were answered")


def test_the_section_of_the_page():
    section = utility_section({"utility_comparison": utility_comparison([PLAIN, row("planted", PLANTED)])})
    # Nobody asked an unanswerable question: no column.
    assert section.table.head == (
        *("cell, arm", "against", "exact match", "token F1", "ROUGE-L", "“Not found” where it is wrong"),
    )
    assert section.table.rows[1][:3] == ("planted, violating", "plain (same trials)", "+0.102 [0.095, 0.110]: differs")
    assert "Equivalent within 0.02" in section.table.caption
    assert utility_section({}) is None
