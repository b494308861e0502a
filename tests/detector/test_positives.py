"""Famous facts: the shipped ones are fit for use, a site's own replace them, and what is wrong is named by number."""

import pytest

from canaryjax.detector.positives import SHIPPED, read_positives
from canaryjax.detector.records import FIELDS
from canaryjax.detector.sentence import render_fact
from canaryjax.errors import UserError

GOOD = "- {given: Ada, surname: Lovelace, place: London, event: notes, archive: null, year: 1843}\n"


def test_the_shipped_facts_are_spread_and_one_a_person(tmp_path):
    facts = read_positives(tmp_path)
    assert len(facts) >= 12
    assert len({(fact.given, fact.surname) for fact in facts}) == len(facts)
    assert {fact.archive for fact in facts} == {None}
    assert len({fact.year // 100 for fact in facts}) >= 5
    assert ("Alexander", "Fleming", "London", 1928) in {(f.given, f.surname, f.place, f.year) for f in facts}


def test_each_shipped_fact_is_found_in_its_own_sentence(tmp_path, decoder, shapes):
    # Scored as a model's answer would be: a field that the decoder could not see there would lower the ceiling.
    for choice, fact in enumerate(read_positives(tmp_path)):
        found = decoder.fields_in(render_fact(fact, shapes, choice), fact)
        assert found == set(FIELDS) - {"archive"}, choice


def test_a_sites_own_facts_are_taken_instead(tmp_path):
    (tmp_path / "positives.yaml").write_text(GOOD)
    (fact,) = read_positives(tmp_path)
    assert (fact.given, fact.surname, fact.place, fact.event, fact.archive, fact.year) == (
        "Ada", "Lovelace", "London", "notes", None, 1843
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a list of famous facts"),
        ("given: Zelda", "expected a list of famous facts"),
        ("- [Zelda", "found broken YAML near line 1"),
        ("- !!python/object/apply:os.getcwd []", "found broken YAML near line 1"),
        (GOOD + "- Zelda", "expected keys and values as entry 2"),
        (GOOD.replace(", year: 1843", ""), "in entry 1 of .*, found no year"),
        (GOOD.replace("year", "Zelda: 1, year"), "found a key of another name"),
        (GOOD.replace("null", "Zelda"), "expected archive: null in entry 1"),
        (GOOD.replace("London", "''"), "expected place to be words in entry 1"),
        (GOOD.replace("London", "7"), "expected place to be words in entry 1"),
        (GOOD.replace("London", '"Zel\\nda"'), "expected place to be words in entry 1"),
        (GOOD.replace("1843", "'1843'"), "expected a year of 1 to 2199 in entry 1"),
        (GOOD.replace("1843", "true"), "expected a year of 1 to 2199 in entry 1"),
        (GOOD.replace("1843", "0"), "expected a year of 1 to 2199 in entry 1"),
        (GOOD + GOOD.replace("Ada", "ÁDA").replace("1843", "1844"), "found entries 1 and 2 of the same name"),
        (GOOD.replace("notes", "the Lovelace notes"), "expected surname and event without a word in common in entry 1"),
        (GOOD.replace("notes", "notes of 1843"), "expected event and year without a word in common in entry 1"),
    ],
)
def test_what_is_wrong_is_named_by_number_and_not_by_word(tmp_path, text, message):
    (tmp_path / "positives.yaml").write_text(text, "utf-8")
    with pytest.raises(UserError, match=message) as caught:
        read_positives(tmp_path)
    assert not any(word in str(caught.value) for word in ("Zel", "Ada", "Lovelace", "London", "184"))


def test_the_shipped_file_says_how_to_bring_ones_own():
    assert SHIPPED.read_text("utf-8").startswith("#")
