"""The deal: uniform, the same everywhere, and such that comparisons of parts are exact permutation tests."""

import itertools
from collections import Counter

import pytest

from canaryjax.detector import design
from canaryjax.detector.derive import negative_id, static_id
from canaryjax.detector.design import Part, Sizes, deal, parts_of, permutation, ticket
from canaryjax.detector.secret import Secret
from canaryjax.errors import UserError

SMALL = Sizes(site=0, linked=0, sitemap=0, honeypot=0, per_rung=1, negatives=3)


def nonce(number):
    return number.to_bytes(32, "big")


def test_parts_of_the_default_sizes_by_hand():
    # SD-2 to SD-5: a few dozen canaries over three tiers, three cohorts and four rungs; twenty negatives.
    parts = parts_of(Sizes())
    assert Counter((part.tier, part.cohort, part.occurrences) for part in parts) == {
        ("site", None, 1): 12,
        ("cohort", "linked", 1): 4,
        ("cohort", "sitemap", 1): 4,
        ("cohort", "honeypot", 1): 4,
        ("ladder", None, 300): 5,
        ("ladder", None, 100): 5,
        ("ladder", None, 10): 5,
        ("ladder", None, 1): 5,
        (None, None, 0): 20,
    }
    assert {part.population for part in parts if part.tier is None} == {"negative"}
    assert {part.population for part in parts if part.tier is not None} == {"canary"}


def test_a_permutation_stays_the_same_for_a_nonce():
    # Other numbers here mean that a deal that was committed to can no longer be shown to be the nonce's.
    # Reckoned from the output of sha256sum over "canaryjax-deal/1/", the nonce and the counters 0 and 1.
    assert permutation(7, bytes(range(32))) == [3, 2, 4, 6, 5, 0, 1]


def test_a_draw_that_would_favour_small_numbers_is_thrown_away(monkeypatch):
    # 2^64 - 1 is the one word too many for three choices; kept, it would choose 0 and give [1, 2, 0] or [2, 1, 0].
    monkeypatch.setattr(design, "_words", lambda nonce: iter([2**64 - 1, 1, 0]))
    assert permutation(3, b"") == [2, 0, 1]


def test_all_permutations_are_equally_frequent():
    counts = Counter(tuple(permutation(4, nonce(number))) for number in range(2400))
    assert len(counts) == 24
    # Chi-square with 23 degrees of freedom: above 60 once in 25,000. A shuffle that draws from all places each time
    # gives about 400.
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 60


def test_each_position_gets_each_part_in_its_share():
    rungs = Counter(part.occurrences for number in range(1400) for part in deal(SMALL, nonce(number))[5:6])
    # Expected 200 at each rung and 600 negatives; a standard deviation is 13 and 19.
    assert set(rungs) == {300, 100, 10, 1, 0}
    assert all(abs(rungs[rung] - 200) < 65 for rung in (300, 100, 10, 1))
    assert abs(rungs[0] - 600) < 93


def share_of_small_p(p_values):
    return sum(p <= 0.25 for p in p_values) / len(p_values)


def test_the_trend_over_rungs_is_exact_whatever_the_positions_show():
    # One seed, so that what a position shows (here the low bits of its id) is fixed, and only the deal is random.
    seed, p_values = Secret(b"example-not-secret"), []
    for number in range(800):
        published = [(p, part) for p, part in enumerate(deal(SMALL, nonce(number))) if part.occurrences]
        shown = [static_id(seed, p) % 10007 for p, _ in published]
        rungs = [part.occurrences for _, part in published]
        seen = sum(x * r for x, r in zip(shown, rungs, strict=True))
        others = [sum(x * r for x, r in zip(shown, order, strict=True)) for order in itertools.permutations(rungs)]
        p_values.append(sum(other >= seen for other in others) / len(others))
    # Exactly uniform over 1/24 ... 24/24, so a quarter is at most 0.25; five standard deviations are 0.077.
    assert abs(share_of_small_p(p_values) - 0.25) < 0.077


def test_the_comparison_with_the_floor_is_exact_for_a_model_that_saw_nothing():
    p_values = []
    for number in range(800):
        seed, control = Secret(b"example-seed-%06d" % number), Secret(b"example-control-%06d" % number)
        parts = deal(SMALL, nonce(number))
        shown = [
            (static_id(seed, p) if part.occurrences else negative_id(control, p)) % 10007
            for p, part in enumerate(parts)
        ]
        seen = sum(x for x, part in zip(shown, parts, strict=True) if part.occurrences)
        others = [sum(four) for four in itertools.combinations(shown, 4)]
        p_values.append(sum(other >= seen for other in others) / len(others))
    # P(p <= 0.25) is 8/35 = 0.229, as p is one of 1/35 ... 35/35; five standard deviations are 0.074.
    assert abs(share_of_small_p(p_values) - 8 / 35) < 0.074


def test_tickets_of_two_draws_are_unlike():
    first, second = ticket(nonce(1), "choice", "position/007"), ticket(nonce(1), "order", "position/007")
    assert first != second != ticket(nonce(2), "order", "position/007")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"negatives": 0}, "expected one or more negatives, found 0"),
        ({"site": -1}, "expected site to be a count of at least 0, found -1"),
        ({"per_rung": True}, "expected per_rung to be a count of at least 0, found True"),
        ({"site": 0, "linked": 0, "sitemap": 0, "honeypot": 0, "per_rung": 0}, "sentences to publish, found 0"),
        ({"per_rung": 30_000}, "expected at most 100000 sentences in all, found 120044"),
    ],
)
def test_sizes_that_make_no_experiment(sizes, message):
    with pytest.raises(UserError, match=message):
        Sizes(**sizes)


def test_a_part_names_its_targets():
    assert Part("canary", "ladder", None, 10).name == "ladder"
    assert Part("negative", None, None, 0).name == "negative"
