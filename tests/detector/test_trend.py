"""The primary test over the ladder and the floor test: level where nothing was learned, power where something was."""

import math

import numpy as np
import pytest

from canaryjax.config.detector import EvidenceConfig
from canaryjax.detector.hit import judge
from canaryjax.detector.records import AnswerScore, Fact, Target
from canaryjax.detector.trend import as_record, floor_test, ladder_trend
from canaryjax.errors import UserError
from canaryjax.stats import dose_permutation

FACT = Fact("Aa", "Bb", "Cc", "Dd", "Ee", 1903)
RUNGS = (300, 100, 10, 1)
FIELDS = ("given", "surname", "place", "event")


def target(key, tier="ladder", occurrences=1, population="canary"):
    return Target(key, population, tier, occurrences, None, 7, FACT)


def ladder(per_rung):
    return [target(f"ladder-{rung}-{i}", occurrences=rung) for rung in RUNGS for i in range(per_rung)]


def negatives(number):
    return [target(f"negative-{i}", None, 0, "negative") for i in range(number)]


def answers(key, bits):
    """One answer a number of bits, each of another repeat; whole fields of 12 bits."""
    return [
        AnswerScore(key, "completion", 0.8, i, *[frozenset(FIELDS[: int(b // 12)])] * 2, b, False, False, (), 0, 0)
        for i, b in enumerate(bits)
    ]


def judged(targets, bits):
    return judge(targets, [a for t in targets for a in answers(t.key, bits(t))], EvidenceConfig())


def test_statistic_by_hand():
    found = ladder_trend(judged(ladder(2), lambda t: (40, 3 * math.isqrt(t.occurrences))), 999)
    # Evidence is the smaller of two: 40 at 300 (3 * 17 = 51), 30 at 100, 9 at 10, 3 at 1.
    expected = 2 * (math.log10(300) * 40 + 2 * 30 + 1 * 9 + 0)
    assert found.statistic == pytest.approx(expected)
    # The best of 8!/(2!)^4 = 2520 allocations.
    assert (found.method, found.p_value) == ("exact", pytest.approx(1 / 2520))
    assert found.n == 8


def test_one_lucky_answer_moves_nothing():
    found = ladder_trend(judged(ladder(3), lambda t: (48, 0) if t.key == "ladder-300-0" else (0, 0)), 999)
    assert (found.statistic, found.p_value) == (0.0, 1.0)


def test_targets_without_answers_are_left_out():
    targets = ladder(3)
    found = ladder_trend(judged(targets, lambda t: () if t.key.endswith("-2") else (t.occurrences,) * 2), 999)
    assert found.n == 8
    assert found.p_value == pytest.approx(1 / 2520)
    empty = ladder_trend(judged(targets, lambda _: ()), 999)
    assert as_record(empty, 0.03, empty.p_value) == {
        "statistic": None,
        "p": None,
        "method": None,
        "permutations": 0,
        "n": 0,
        "alpha": 0.03,
        "below_alpha": None,
        "reason": "needs units of two doses, found no units",
    }


def test_a_ladder_without_occurrences_is_refused():
    with pytest.raises(UserError, match="ladder-x"):
        ladder_trend(judged([target("ladder-x", occurrences=None)], lambda _: (0,)), 999)


def test_the_floor_is_held_against_site_and_ladder_alone():
    others = [target("cohort-1", "cohort"), target("vendor-1", "vendor"), target("window-1", "window")]
    positives = [target("positive-1", None, None, "positive")]
    targets = [target("site-1", "site"), *ladder(1), *negatives(11), *others, *positives]
    found = floor_test(judged(targets, lambda t: (48, 48) if t.key in ("site-1", "ladder-300-0") else (0, 0)), 999)
    assert found.n == 16
    assert found.statistic == pytest.approx(96)
    # Two of 16 are high, both among the 5 published: C(5, 2)/C(16, 2).
    assert found.p_value == pytest.approx(10 / 120)


def test_level_and_reason_are_recorded():
    verdicts = judged(ladder(2), lambda t: (t.occurrences,) * 2)
    test = ladder_trend(verdicts, 999)
    assert as_record(test, 1 / 2520, test.p_value)["below_alpha"] is True  # at the level itself
    assert as_record(test, 1 / 2521, test.p_value)["below_alpha"] is False
    assert as_record(test, 0.05, 0.06)["below_alpha"] is False  # what is held against it is the corrected one


def chance_bits(rng):
    """What a model that never saw the site shows of a target: now and then the year, rarely a name, from a guess that
    it repeats."""
    guess = rng.choice([0.0, 6.5, 12.0], p=[0.8, 0.15, 0.05])
    return tuple(guess if rng.random() < 0.9 else 0.0 for _ in range(3))


@pytest.mark.slow
def test_without_memory_neither_test_exceeds_its_level():
    rng = np.random.default_rng(17)
    sites = 1000
    targets = [*ladder(3), *[target(f"site-{i}", "site") for i in range(2)], *negatives(7)]
    found = []
    for _ in range(sites):
        verdicts = judged(targets, lambda _: chance_bits(rng))
        found.append((ladder_trend(verdicts, 999).p_value, floor_test(verdicts, 999).p_value))
    for p_values in np.array(found).T:
        for level in (0.01, 0.05, 0.2):
            assert np.mean(p_values <= level) <= level + 3 * math.sqrt(level * (1 - level) / sites)
        assert np.mean(p_values <= 0.2) > 0.05  # not for want of power


def test_memory_that_grows_with_exposure_is_found_and_hits_alone_would_miss_it():
    rng = np.random.default_rng(19)
    targets = ladder(3)  # three sentences a rung, the smallest ladder worth asking about
    chance = {300: 0.7, 100: 0.4, 10: 0.15, 1: 0.0}  # of knowing each of the four fields
    by_evidence, by_hits = [], []
    for _ in range(30):
        known = {t.key: 12.0 * rng.binomial(4, chance[t.occurrences]) for t in targets}
        verdicts = judged(targets, lambda t, known=known: (known[t.key],) * 2)
        by_evidence.append(ladder_trend(verdicts, 999).p_value)
        doses = [math.log10(v.target.occurrences) for v in verdicts]
        by_hits.append(dose_permutation(doses, [float(v.hit) for v in verdicts], 999).p_value)
    level = 0.0304  # of the first look
    assert np.mean(np.array(by_evidence) <= level) > 0.8
    assert np.mean(np.array(by_hits) <= level) < 0.2
