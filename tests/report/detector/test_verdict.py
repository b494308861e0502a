"""What a detector run may claim, and what it may not."""

import pytest

from canaryjax.report.detector_verdict import judge_detector


def _texts(report):
    verdict = judge_detector(report)
    return verdict.kind, " ".join([verdict.headline, *verdict.qualifiers]).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("case", "kind"),
    [("strong", "raised"), ("api", "raised"), ("fetched", "retrieval"), ("floor", "floor"), ("blind", "blind")],
)
def test_kinds(made, cases, case, kind):
    assert _texts(made(**cases[case]))[0] == kind


def test_a_rise_says_how_sure_and_what_it_is_not(made):
    report = made()
    report["trend"] |= {"p": 0.0123, "alpha": 0.0304}
    _, text = _texts(report)
    for expected in (
        "SmolLM2-135M-Instruct (local) was asked about 80 planted sentences, with 1,620 answers",
        "p = 0.012 (9,999 random permutations), within the alpha of 0.030",
        "Had that made no difference to the model, a rise as steep would come about in 1.2 % of all such lots",
        "Of 13 sentences that stood there 300 times it recalls 9 [0.42, 0.87], of 20 that were never published 0",
        "What it is not: proof of the way",
    ):
        assert expected in text, expected


def test_a_rise_without_a_recorded_lot_says_so(made):
    report = made()
    report["site"]["commitment"] = None
    assert "is taken as decided by lot (none was recorded)" in _texts(report)[1]


def test_hits_of_groups_alone_do_not_make_a_rise(made):
    # Every rung scores alike: nothing rises, but all lie above the floor, which is secondary.
    kind, text = _texts(made(rungs={300: (13, 9), 100: (13, 9), 10: (11, 8), 1: (17, 13)}, cohorts={}, edge={}))
    assert kind == "unshown"
    assert "The primary test does not show that recall rises" in text
    assert "correction for all such tests: above the floor ladder (300 times), ladder (100 times)" in text


def test_a_missing_primary_test_leaves_no_verdict_whatever_the_groups_say(made):
    report = made()
    report["trend"] |= {"p": None, "below_alpha": None, "reason": "the ladder has one rung"}
    kind, text = _texts(report)
    assert kind == "none"
    assert "has no result: the ladder has one rung." in text
    assert "Secondary: sentences of site and ladder together against the floor" in text


@pytest.mark.parametrize(
    ("fetches", "expected"),
    [
        ({"during_run": 1, "log_complete": True}, "fetched once during the run: hits may be retrieval"),
        (
            {"during_run": 0, "log_complete": False},
            "not known to be complete (it does not cover the whole run): hits may be retrieval",
        ),
        ({"during_run": 0, "log_complete": None}, "(it does not say whether it covers the run): hits may be"),
        (
            {"during_run": 0, "log_complete": False, "reason": "it ends at noon"},
            "is not known to be complete (it ends at noon)",
        ),
        ({"during_run": None, "reason": "no request log"}, "is not known (no request log): hits may be retrieval"),
        (None, "is not known (no reason was recorded)"),
        ({"during_run": 0, "log_complete": True}, "nothing was retrieved from the site itself"),
    ],
)
def test_fetches_during_the_run(made, fetches, expected):
    assert expected in _texts(made(fetches=fetches))[1]


def test_throw_away_lists_are_named(made):
    report = made()
    assert "throw-away" not in _texts(report)[1]
    report["site"]["throwaway"] = True
    assert "this run tries the instrument out, and is about no site" in _texts(report)[1]
