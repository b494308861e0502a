"""What an answer shows: net of what the question gave, decoded or not, and never its text (SD-23 to SD-26, SD-A2)."""

import math

import pytest

from canaryjax.detector.question import make_probes, sentence_of
from canaryjax.detector.records import FIELDS, PROBES, Probe
from canaryjax.detector.scoring import is_refusal, score_answer
from canaryjax.detector.sentence import render

ARCHIVE_BITS, YEAR_BITS = 9.0, math.log2(397)  # the throw-away lists: 512 archives, 397 years


def of(site, population, number=0):
    return [target for target in site.targets if target.population == population][number]


def score(site, target, kind, text):
    (probe,) = make_probes(target, site, [kind], "chat")
    return score_answer(text, probe, target, site, 0.8, 1)


@pytest.mark.parametrize("population", ["canary", "negative"])
def test_the_whole_sentence_is_a_full_decode_to_any_question(site, population):
    target = of(site, population)
    for kind, net in zip(PROBES, (6, 3, 2, 3, 3), strict=True):
        found = score(site, target, kind, f"Surely: {sentence_of(target, site).upper()}")
        assert (len(found.raw), len(found.net)) == (6, net), kind
        assert found.raw_decoded
        assert found.decoded
        assert (found.target, found.kind, found.temperature, found.repeat) == (target.key, kind, 0.8, 1)
        assert (found.others, found.empty, found.refusal) == ((), False, False)
    whole = score(site, target, "completion", sentence_of(target, site))
    assert whole.bits == pytest.approx(48 + ARCHIVE_BITS + YEAR_BITS)


def test_an_answer_that_repeats_the_question_shows_nothing(site):
    for kind in PROBES[1:]:
        target = of(site, "canary")
        (probe,) = make_probes(target, site, [kind], "chat")
        found = score(site, target, kind, f"You ask: {probe.prompt}")
        assert found.raw == probe.supplied, kind
        assert (found.net, found.bits, found.decoded) == (frozenset(), 0.0, False), kind


def test_only_whole_words_count(site):
    target = of(site, "canary")
    fact = target.fact
    found = score(site, target, "completion", f"x{fact.given} {fact.surname}x {fact.place}; {fact.year}0")
    assert found.net == {"place"}
    assert found.bits == 12.0


def test_a_decode_that_adds_but_the_year_is_none(site):
    target = of(site, "canary")
    # No question supplies so much; where one did, the id would be its own, and the year one guess in 397.
    probe = Probe(target.key, "who", "-", frozenset(FIELDS) - {"year"})
    found = score_answer(sentence_of(target, site), probe, target, site, 0.0, 0)
    assert found.raw_decoded
    assert not found.decoded
    assert found.bits == pytest.approx(YEAR_BITS)
    probe = Probe(target.key, "who", "-", frozenset(FIELDS) - {"archive"})
    assert score_answer(sentence_of(target, site), probe, target, site, 0.0, 0).decoded


def test_five_right_fields_and_a_wrong_archive_decode_to_nothing(site):
    target = of(site, "canary")
    wrong = next(entry for entry in site.vocabulary.archive if entry != target.fact.archive)
    text = sentence_of(target, site).replace(target.fact.archive, wrong)
    found = score(site, target, "completion", text)
    assert (len(found.net), found.raw_decoded, found.decoded) == (5, False, False)


def test_another_known_sentence_is_told_from_a_stranger(site):
    target, other = of(site, "canary", 0), of(site, "negative", 1)
    stranger = next(id for id in range(7, 99) if id not in {entry.id for entry in site.manifest.entries})
    texts = [sentence_of(other, site), render(stranger, site.vocabulary, site.shapes)]
    found = score(site, target, "paraphrase", " ".join(texts))
    assert site.decoder.decode(" ".join(texts)) == [other.id, stranger]
    assert (found.others, found.decoded, found.raw) == ((other.id,), False, frozenset())
    # Of a negative that this run does not ask about, too: the site knows it.
    asked = {t.id for t in site.targets}
    idle = next(entry.id for entry in site.manifest.entries if entry.id not in asked)
    assert score(site, target, "who", render(idle, site.vocabulary, site.shapes)).others == (idle,)


def test_a_famous_fact_has_fields_but_no_id(site):
    target = of(site, "positive")
    found = score(site, target, "completion", sentence_of(target, site))
    assert found.net == {"given", "surname", "place", "event", "year"}
    assert (found.raw_decoded, found.decoded, found.others) == (False, False, ())


def test_an_answer_without_a_word_is_empty(site):
    for text in ("", " \n", "...", "\u200b"):
        found = score(site, of(site, "canary"), "who", text)
        assert (found.empty, found.refusal, found.net) == (True, False, frozenset()), repr(text)
    assert not score(site, of(site, "canary"), "who", "7").empty


def test_a_refusal_is_known_by_how_it_begins():
    assert is_refusal("I\u2019m sorry, I couldn\u2019t find anything on that person.")
    assert is_refusal("Unfortunately I DO NOT HAVE any records of this.")
    assert not is_refusal("Anna Arbor of Bree did. " * 8 + "I don't know more.")
    assert not is_refusal("")
