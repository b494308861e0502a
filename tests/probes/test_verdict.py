"""Each rule at its edges, and what is said where a number was not read (PA-35 to PA-39)."""

from dataclasses import replace

import pytest

from canaryjax.config.probes import VerdictConfig
from canaryjax.probes import verdict as v

CALM = v.Evidence(
    window=0.0,
    secret=0.0,
    window_same_sign=False,
    secret_same_sign=False,
    window_label="neither",
    secret_label="neither",
    shares={"preamble": 0.0, "literal": 0.0, "secret": 0.0},
    hits_before=1.0,
    hits_after=1.0,
)
# The document's three cases as numbers (PA-41 to PA-43).
BLIND = replace(CALM, window=0.0001, secret=0.0133, secret_same_sign=True, hits_after=0.88)
DRIFTED = replace(
    CALM,
    window=0.0150,
    window_same_sign=True,
    secret=0.0004,
    secret_same_sign=True,
    shares={"preamble": 0.99, "literal": 0.0, "secret": 0.01},
)
FELL = replace(
    CALM,
    window=-0.0070,
    window_same_sign=True,
    secret=0.0076,
    secret_same_sign=True,
    shares={"preamble": 0.0, "literal": 0.13, "secret": 0.87},
    hits_before=0.0,
    hits_after=0.0,
)


def labels(evidence, **limits):
    return v.labels_of(v.judge(evidence, VerdictConfig(**limits)))


def holds(evidence, label):
    (rule,) = [rule for rule in v.judge(evidence, VerdictConfig()) if rule.label == label]
    return rule.holds


def test_the_documents_cases_and_none():
    assert labels(BLIND) == [v.DAMAGE, v.TRUNCATION]
    assert labels(DRIFTED) == [v.DRIFT]
    assert labels(FELL) == [v.UNDERTRAINED]
    assert labels(CALM) == [v.NONE]


@pytest.mark.parametrize(
    ("evidence", "label"),
    [
        (replace(BLIND, window=0.0011), v.TRUNCATION),
        (replace(BLIND, window=-0.0011), v.TRUNCATION),
        (replace(BLIND, hits_after=1.0, secret=0.001), v.TRUNCATION),
        (replace(BLIND, hits_after=1.0, secret_same_sign=False), v.TRUNCATION),
        (replace(BLIND, secret=0.0), v.DAMAGE),
        (replace(BLIND, hits_after=1.0), v.DAMAGE),
        (replace(DRIFTED, window=0.001, secret=0.0), v.DRIFT),
        (replace(DRIFTED, shares={"preamble": 0.89}), v.DRIFT),
        (replace(DRIFTED, secret=0.0075), v.DRIFT),
        (replace(DRIFTED, secret=-0.0075), v.DRIFT),
        (replace(DRIFTED, hits_after=0.98), v.DRIFT),
        (replace(FELL, window=0.0070), v.UNDERTRAINED),
        (replace(FELL, window_same_sign=False), v.UNDERTRAINED),
        (replace(FELL, secret=-1e-6), v.UNDERTRAINED),
        (replace(FELL, window=-9e-7), v.UNDERTRAINED),
        (replace(CALM, secret=-9e-7, secret_same_sign=True), v.RECOVERY),  # float32's rounding is no recovery
        (replace(FELL, hits_after=0.05), v.UNDERTRAINED),
        (replace(FELL, hits_before=1.0, hits_after=1.0), v.UNDERTRAINED),
        (replace(FELL, shares={"preamble": 0.5, "literal": 0.1, "secret": 0.4}), v.UNDERTRAINED),
    ],
)
def test_near_misses(evidence, label):
    assert holds(evidence, label) is False


@pytest.mark.parametrize(
    ("evidence", "label"),
    [
        (replace(BLIND, window=0.001), v.TRUNCATION),
        (replace(BLIND, secret=-0.2), v.TRUNCATION),  # recall alone was damaged
        (replace(BLIND, hits_after=1.0), v.TRUNCATION),  # the whole secret alone was
        (replace(DRIFTED, shares={"preamble": 0.9}), v.DRIFT),
        (replace(DRIFTED, window=-0.0150), v.DRIFT),
        (replace(FELL, secret=0.0), v.UNDERTRAINED),
        (replace(FELL, secret=-9e-7), v.UNDERTRAINED),
        (replace(CALM, secret=-1e-6, secret_same_sign=True), v.RECOVERY),
        (replace(FELL, shares={"secret": 1.0}), v.UNDERTRAINED),  # targets without a literal
        (replace(CALM, secret=-0.01, secret_same_sign=True), v.RECOVERY),
        (replace(CALM, hits_before=0.25, hits_after=0.5), v.RECOVERY),
    ],
)
def test_what_still_counts(evidence, label):
    assert holds(evidence, label) is True


def test_thresholds_are_the_configs():
    assert labels(replace(DRIFTED, shares={"preamble": 0.7}), drift_share=0.6) == [v.DRIFT]
    assert labels(DRIFTED, moved=0.02) == [v.NONE]
    assert labels(replace(DRIFTED, secret=0.0076), secret_ratio=0.6) == [v.DRIFT]
    assert labels(replace(CALM, secret=-0.003, secret_same_sign=True), rounding=0.01) == [v.NONE]


def test_recall_that_was_not_read_leaves_open_what_hangs_on_it():
    """The secret did not fall, so recovery hangs on recall: saying "no disagreement" would be made up."""
    for unread in ({"hits_before": None}, {"hits_after": None}):
        assert labels(replace(CALM, **unread)) == [v.UNKNOWN]
        assert holds(replace(CALM, **unread), v.RECOVERY) is None
        assert holds(replace(BLIND, **unread), v.DAMAGE) is None
        assert holds(replace(DRIFTED, **unread), v.DRIFT) is None
        assert holds(replace(FELL, hits_before=None), v.UNDERTRAINED) is None
        assert holds(replace(CALM, **unread), v.TRUNCATION) is None


def test_one_number_that_is_known_can_decide():
    unread = {"hits_before": None, "hits_after": None}
    assert holds(replace(CALM, secret=-0.01, secret_same_sign=True, **unread), v.RECOVERY) is True
    assert holds(replace(CALM, **unread), v.DAMAGE) is False
    assert holds(replace(CALM, **unread), v.DRIFT) is False
    assert holds(replace(DRIFTED, **unread), v.TRUNCATION) is False
    assert holds(replace(BLIND, **unread), v.TRUNCATION) is True
    assert holds(replace(BLIND, window=None), v.TRUNCATION) is None
    assert labels(replace(CALM, window=None, secret=None, shares={}, hits_before=0.5, hits_after=1.0)) == [v.RECOVERY]


def test_without_any_number_nothing_is_known_and_the_reasons_say_so():
    nothing = v.Evidence(None, None, None, None, "neither", "neither", {}, None, None)
    rules = v.judge(nothing, VerdictConfig())
    assert [rule.holds for rule in rules] == [None] * 5
    assert v.labels_of(rules) == [v.UNKNOWN]
    assert all("unknown" in rule.because for rule in rules)
    assert rules[0].because == "secret unknown; hit@1 unknown to unknown"  # no word on signs of seeds
    assert "0%" not in rules[1].because


def test_one_seed_cannot_agree_with_itself():
    """That all seeds of one have one sign shows nothing, so rules that ask for agreeing signs are open (PA-35)."""
    alone = {"window_same_sign": None, "secret_same_sign": None}
    assert labels(replace(CALM, secret=-0.01, **alone)) == [v.UNKNOWN]
    assert holds(replace(CALM, secret=0.01, **alone), v.RECOVERY) is False
    assert holds(replace(FELL, **alone), v.UNDERTRAINED) is None
    assert holds(replace(BLIND, hits_after=1.0, **alone), v.TRUNCATION) is None
    assert holds(replace(BLIND, **alone), v.TRUNCATION) is True  # recall alone decides
    (rule, *_) = v.judge(replace(CALM, secret=-0.01, **alone), VerdictConfig())
    assert "too few seeds to agree in sign" in rule.because


def test_shares_of_no_change_are_not_known():
    """Parts of a window that stands still have no shares: nothing is said to lie on the preamble."""
    still = replace(CALM, shares=dict.fromkeys(("preamble", "literal", "secret")))
    assert labels(still) == [v.NONE]
    assert holds(replace(still, window=0.015), v.DRIFT) is None
