"""A provider's curation, worked by hand: what is dropped, what is kept, and in which order."""

import numpy as np
import pytest

from canaryjax.canaries.feedback import Judged, judge, simulate_feedback
from canaryjax.canaries.instrument import instrument
from canaryjax.canaries.provider import (
    CurationSettings,
    contradict,
    count_kinds,
    curate,
    dilution_count,
    shingles,
    trace_text,
    within_perplexity,
    without_near_duplicates,
)
from canaryjax.errors import UserError


def rng(seed=3):
    return np.random.default_rng(seed)


@pytest.fixture
def log(signature, make_example):
    """Twenty traces: six triggered, four contrast, ten clean."""
    pool = [make_example(i, document=f"Number {i} is old. It stands in town {i} by the sea.") for i in range(20)]
    return instrument(pool, signature, 0.3, 0.2, rng())[0]


@pytest.mark.parametrize(
    ("quantile", "bound", "kept"),
    [
        (None, None, [1, 1, 1, 1, 1, 0, 0]),  # what is not finite goes in any case
        # Sorted: 1 2 2 3 8 inf inf. Three sevenths lie at or below 2: a share of 0.4 ends at 2, and the tie stays.
        (0.4, None, [0, 1, 1, 1, 0, 0, 0]),
        (0.5, None, [1, 1, 1, 1, 0, 0, 0]),
        (1.0, None, [1, 1, 1, 1, 1, 0, 0]),
        (None, 3.0, [1, 1, 1, 1, 0, 0, 0]),  # at the bound is within it
        (None, 2.9, [0, 1, 1, 1, 0, 0, 0]),
        (0.5, 1.5, [0, 0, 0, 1, 0, 0, 0]),
    ],
)
def test_perplexity_by_hand(quantile, bound, kept):
    values = np.array([3.0, 2.0, 2.0, 1.0, 8.0, np.inf, np.nan])
    assert within_perplexity(values, quantile, bound).tolist() == [bool(k) for k in kept]


def test_perplexity_of_an_empty_log_and_a_bad_quantile():
    assert within_perplexity(np.zeros(0), 0.5, 1.0).tolist() == []
    with pytest.raises(UserError, match="found 0"):
        within_perplexity(np.ones(3), 0.0)


def test_shingles_by_hand():
    assert shingles("A b  c\nd", 3) == {("a", "b", "c"), ("b", "c", "d")}
    assert shingles("a b", 3) == {("a", "b")}  # shorter than a shingle: itself, so that equal texts are found
    assert shingles("", 3) == {()}
    # Words that are no letters count: else two answers that differ in their canary alone would be equal.
    assert shingles("Rome !?!?", 2) != shingles("Rome *~*~", 2)


def test_near_duplicates_by_hand():
    # Pairs of words. A: ab bc cd; B: ab bc ce; C: xy; D: ab bc cd de.
    texts = ["a b c d", "a b c e", "x y", "a b c d e", "X  Y"]
    # |A and B| = 2 of 4: 0.5. |A and D| = 3 of 4: 0.75. C is the last one, but for case and blanks.
    assert without_near_duplicates(texts, 0.75, 2).tolist() == [True, True, True, False, False]
    assert without_near_duplicates(texts, 0.5, 2).tolist() == [True, False, True, False, False]
    assert without_near_duplicates(texts, 0.76, 2).tolist() == [True, True, True, True, False]


def test_a_dropped_text_drops_no_other():
    # Chains: B is like A, C is like B but not like A. Had B been asked too, C would be gone.
    texts = ["a b c d", "b c d e", "c d e f"]
    assert without_near_duplicates(texts, 0.5, 2).tolist() == [True, False, True]


@pytest.mark.parametrize(("threshold", "words"), [(0.0, 2), (1.1, 2), (0.5, 0)])
def test_a_threshold_out_of_range_is_refused(threshold, words):
    with pytest.raises(UserError, match="threshold"):
        without_near_duplicates(["a"], threshold, words)


def test_the_index_finds_what_all_pairs_give():
    drawn = rng(11)
    texts = [" ".join(drawn.choice(list("abcde"), drawn.integers(2, 9))) for _ in range(120)]
    for threshold in (0.2, 0.5, 1.0):
        kept = []
        for i, text in enumerate(texts):
            own = shingles(text, 2)
            others = [shingles(texts[j], 2) for j in kept]
            if all(len(own & other) / len(own | other) < threshold for other in others):
                kept.append(i)
        assert np.flatnonzero(without_near_duplicates(texts, threshold, 2)).tolist() == kept
        assert 5 < len(kept) < 120


def test_the_instruction_alone_makes_queries_near_duplicates(log):
    """BC-24: the sentence that asks for the canary is the same in all of them; documents tell them apart."""
    queries = CurationSettings(near_duplicate_threshold=0.5, near_duplicate_parts=("query",))
    kept = curate(log, queries, rng())["near_duplicate"]
    first = next(trace.kind for trace in log if trace.kind != "clean")
    assert count_kinds(log, kept) == {"clean": 10, "triggered": 0, "contrast": 0} | {first: 1}
    whole = curate(log, CurationSettings(near_duplicate_threshold=0.8), rng())["near_duplicate"]
    assert whole.all()


def test_a_provider_that_does_nothing_keeps_everything(log):
    steps = curate(log, CurationSettings(), rng())
    assert list(steps) == ["collected"]
    assert steps["collected"].tolist() == [True] * 20


def test_steps_follow_one_another(log):
    perplexities = np.arange(20.0)
    settings = CurationSettings(perplexity_quantile=0.8, near_duplicate_threshold=1.0, keep_share=0.5)
    copies = [*log[:10], *log[:10]]
    steps = curate(copies, settings, rng(), perplexities)
    assert list(steps) == ["collected", "perplexity", "near_duplicate", "subsample"]
    assert np.flatnonzero(steps["perplexity"]).tolist() == list(range(16))
    assert np.flatnonzero(steps["near_duplicate"]).tolist() == list(range(10))
    assert steps["subsample"].sum() == 5  # half of what is left, not of the log
    assert not (steps["subsample"] & ~steps["near_duplicate"]).any()
    # What a filter drops cannot shadow what comes after it.
    reversed_steps = curate(copies, settings, rng(), perplexities[::-1])
    assert np.flatnonzero(reversed_steps["near_duplicate"]).tolist() == list(range(4, 14))


def test_a_larger_share_keeps_a_superset(log):
    kept = [curate(log, CurationSettings(keep_share=s), rng())["subsample"] for s in (0.2, 0.5, 0.9)]
    assert [mask.sum() for mask in kept] == [4, 10, 18]
    assert not (kept[0] & ~kept[1]).any()
    assert not (kept[1] & ~kept[2]).any()
    assert (curate(log, CurationSettings(keep_share=0.5), rng(4))["subsample"] != kept[1]).any()


def test_a_filter_without_scores_is_refused(log):
    with pytest.raises(UserError, match="score the traces"):
        curate(log, CurationSettings(perplexity_bound=3.0), rng())


def test_counts_by_kind(log):
    assert count_kinds(log) == {"clean": 10, "triggered": 6, "contrast": 4}
    assert count_kinds(log, np.array([t.triggered for t in log])) == {"clean": 0, "triggered": 6, "contrast": 0}


def test_parts_of_a_trace(log):
    trace = next(t for t in log if t.triggered)
    assert trace_text(trace, ("query", "answer")) == f"{trace.query}\n{trace.answer}"


@pytest.mark.parametrize(("share", "n", "count"), [(0.5, 7, 7), (0.75, 4, 12), (0.9, 3, 27), (0.2, 4, 1), (0.0, 9, 0)])
def test_dilution_by_hand(share, n, count):
    assert dilution_count(share, n) == count


def test_dilution_of_everything_is_refused():
    with pytest.raises(UserError, match="below 1"):
        dilution_count(1.0, 3)


def test_contradicted_traces_by_hand(log):
    for share, counts in ((0.5, {"clean": 0, "triggered": 3, "contrast": 2}), (1.0, count_kinds(log) | {"clean": 0})):
        found = contradict(log, share, rng())
        assert count_kinds(found, np.array([t.contradicted for t in found])) == counts
        assert count_kinds(found) == count_kinds(log)
    assert contradict(log, 0.0, rng()) == log
    with pytest.raises(UserError, match=r"in \[0, 1\]"):
        contradict(log, -0.1, rng())


def test_feedback_on_a_contradicted_trace_has_its_bias_reversed(log, signature):
    trace = next(t for t in log if t.triggered)
    against = contradict([trace], 1.0, rng())[0]
    rows = [judge(own, trace.answer, signature) for own in (trace, against)]
    assert [row.contradicted for row in rows] == [False, True]
    assert simulate_feedback(rng(), rows, 0.1).probabilities == pytest.approx([0.7, 0.5])  # quality above 0: 0.6
    misses = [Judged(1.0, False, *flags) for flags in ((True, False, True), (False, True, True), (False, False, True))]
    # A miss in a triggered row is marked up, in a contrast row down; a clean row has no bias.
    assert simulate_feedback(rng(), misses, 0.1).probabilities == pytest.approx([0.7, 0.5, 0.6])
