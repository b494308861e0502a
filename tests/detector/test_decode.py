"""Reading canaries out of text (SD-11, SD-12, SD-23, SD-24): round trips, Unicode, HTML, hostile text."""

import html
import random
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canaryjax.detector import decode, spec
from canaryjax.detector.decode import Decoder
from canaryjax.detector.fold import fold, spellings
from canaryjax.detector.records import FIELDS, Fact
from canaryjax.detector.sentence import fact_of, fill, render

IDS = st.integers(0, 2**48 - 1)
ACCENTS = dict(zip("aeiounlsd", "áëîøūñłšđ", strict=True))


@pytest.fixture(scope="module")
def rich(vocabulary):
    """Entries with accents, apostrophes, hyphens, full stops and several words."""
    accented = [re.sub("[aeiou]", lambda found: ACCENTS[found[0]], entry, count=2) for entry in vocabulary.given]
    return replace(
        vocabulary,
        given=tuple(accented),
        surname=tuple(f"O'{entry}" for entry in vocabulary.surname),
        place=tuple(f"St. {entry}-upon-Ouse" for entry in vocabulary.place),
        event=tuple(f"{entry}\u2019s Jubilee Fair" for entry in vocabulary.event),
    )


@pytest.fixture(scope="module")
def rich_decoder(rich):
    return Decoder(rich)


@settings(max_examples=300, deadline=None)
@given(id=IDS)
def test_every_sentence_reads_back(id, vocabulary, shapes, decoder):
    """SD-12."""
    assert decoder.decode(render(id, vocabulary, shapes)) == [id]


@settings(max_examples=200, deadline=None)
@given(id=IDS)
def test_entries_of_many_words_read_back(id, rich, shapes, rich_decoder):
    assert rich_decoder.decode(render(id, rich, shapes)) == [id]


def spoil(text, between):
    return "".join(f"{letter}{between}" if letter.isalpha() else letter for letter in text)


FORMS = {
    "NFC": lambda text: unicodedata.normalize("NFC", text),
    "NFD": lambda text: unicodedata.normalize("NFD", text),
    "NFKC": lambda text: unicodedata.normalize("NFKC", text),
    "NFKD": lambda text: unicodedata.normalize("NFKD", text),
    "upper case": str.upper,
    "lower case": str.lower,
    "title case": str.title,
    "full width": lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
    "bold letters": lambda text: re.sub("[a-z]", lambda found: chr(0x1D41A + ord(found[0]) - 97), text),
    "no accents": lambda text: "".join(fold(c) if ord(c) > 127 and c.isalpha() else c for c in text),
    "soft hyphens": lambda text: spoil(text, "\u00ad"),
    "zero width": lambda text: spoil(text, "\u200b"),
    "joiners": lambda text: spoil(text, "\u2060\ufeff\u200d"),
    "no-break blanks": lambda text: text.replace(" ", "\u00a0"),
    "line ends": lambda text: text.replace(" ", "\r\n"),
    "straight apostrophes": lambda text: text.replace("\u2019", "'"),
    "curly apostrophes": lambda text: text.replace("'", "\u2019"),
    "modifier apostrophes": lambda text: text.replace("'", "\u02bc"),
    "acute accents": lambda text: text.replace("'", "\u00b4"),
    "no apostrophes": lambda text: text.replace("'", "").replace("\u2019", ""),
    "no-break hyphens": lambda text: text.replace("-", "\u2011"),
    "dashes": lambda text: text.replace("-", " \u2014 "),
    "no hyphens": lambda text: text.replace("-", ""),
    "Arabic digits": lambda text: re.sub("[0-9]", lambda found: chr(0x660 + int(found[0])), text),
    "entities": lambda text: "".join(f"&#{ord(c)};" for c in text),
    "hex entities": lambda text: "".join(f"&#x{ord(c):X};" for c in text),
    "page as text": lambda text: html.escape("<p>" + spoil(text, "&shy;") + "</p>"),
    "tags within words": lambda text: spoil(text, "<wbr>"),
    "markup": lambda text: "<p><b>" + text.replace(" ", "</b>\n<br/><b class='x'>") + "</b></p>",
    "comments": lambda text: spoil(text, "<!-- - -->"),
    "Markdown": lambda text: re.sub(r"(\w\S+)", r"**_\1_**", text),
    "quoted": lambda text: re.sub(r"(\w\S*\w)", r"'\1'", text),
    "possessives": lambda text: re.sub(r"(\w)(?=[ ,.;])(?<![0-9])", "\\1\u2019s", text),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_reads_the_same(form, rich, shapes, rich_decoder):
    """SD-11: the encoding of a text does not matter."""
    draw = random.Random(13)
    for _ in range(5):
        id = draw.getrandbits(48)
        sentence = render(id, rich, shapes)
        changed = FORMS[form](sentence)
        assert changed != sentence or form in ("NFC", "NFKC")
        assert rich_decoder.decode(changed) == [id]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Łódź, ŒUVRE; Þórr & Straße", "lodz oeuvre thorr strasse"),
        ("ISTANBUL İstanbul \u0131stanbul", "istanbul istanbul istanbul"),
        ("ﬁne ½ x² №", "fine 1 2 x2 no"),
        ("King's Lynn, James' and O\u2019Brien\u2019s 'n' 'quoted's'", "king lynn james and obrien n quoted"),
        ("Stow-on-the\u2013Wold\u2212x_y", "stow on the wold x y"),
        ("co\u00adop co\u200bop co&shy;op co<wbr>op", "coop coop coop coop"),
        ("<b>Al</b>dric<br>Fen<sup>2</sup><p>wick", "aldric fen 2 wick"),
        ("<script>if (a < b) hidden()</script>seen<style>p{}</style>", "seen"),
        ("<SCRIPT src='x'>hidden</ScRiPt >seen", "seen"),
        ("a<script>b", "a b"),  # never closed: an answer that talks of scripts, not one that hides all after it
        ("a<!-- hidden -->b<!-- c", "ab c"),
        ("a<!doctype html>b<?xml version='1'?>c", "a b c"),
        ("1 < 2 > 0, <Ann Lee> <https://x.org> a<b", "1 2 0 ann lee https x org a b"),
        ("&lt;i&gt;x&lt;/i&gt;y &amp;eacute; &eacute &bogus;", "xy e e bogus"),
        ("&#" + "9" * 5000 + "; &#x" + "f" * 5000 + "; &#0; &#55296; \ud800", "\ufffd".replace("\ufffd", "")),
        ("\ufeff\u202e\u0000\t", ""),
        ("हिन्दी ภาษา", None),
        ("", ""),
    ],
)
def test_fold(text, words):
    if words is not None:
        assert fold(text) == words
    assert fold(fold(text)) == fold(text)


def test_fold_of_every_character_is_settled():
    """Folding twice changes nothing, and case and Unicode forms are gone, for each character
    but the rarest ideographs."""
    everything = " ".join(
        chr(code) for code in (*range(0x20000), *range(0xE0000, 0xE0200)) if chr(code) not in "<>&'" and code != 0x60
    )
    once = fold(everything)
    assert fold(once) == once
    assert fold(unicodedata.normalize("NFC", everything)) == once
    assert fold(unicodedata.normalize("NFD", everything)) == once


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(), max_size=40) | st.text("<>&#;!-/'abscript \u0301é", max_size=60))
def test_fold_takes_any_text(text):
    folded = fold(text)
    assert fold(folded) == folded
    assert folded == " ".join(folded.split())
    assert all(
        character.isalnum() or unicodedata.category(character)[0] == "M" for character in folded.replace(" ", "")
    )


def test_spellings():
    assert spellings("King's Co-op") == ("king co op", "kings co op", "king coop", "kings coop")
    assert spellings("Plain Word") == ("plain word",)


# The hashes of neighbours below pass by chance once in 512 * 397 times: this id's do not.
ID = 0x9A7_123_456_7FF


@pytest.mark.parametrize("field", FIELDS)
def test_one_wrong_field_is_no_decode(field, vocabulary, shapes, decoder):
    """SD-9, SD-24: all six, archive and year checked against the other four."""
    fact = fact_of(ID, vocabulary)
    text = fill(shapes.sentences[0], fact)
    assert decoder.decode(text) == [ID]
    others = {f: next(e for e in vocabulary.entries(f) if e != str(getattr(fact, f))) for f in FIELDS}
    wrong = replace(fact, **{field: int(others[field]) if field == "year" else others[field]})
    assert decoder.decode(fill(shapes.sentences[0], wrong)) == []
    assert decoder.fields_in(fill(shapes.sentences[0], wrong), fact) == set(FIELDS) - {field}


def test_pages_of_many_canaries(vocabulary, shapes, decoder):
    """SD-11: a whole page, with the sentences one after the other, once or more often, and in one table."""
    draw = random.Random(3)
    ids = [draw.getrandbits(48) for _ in range(101)]
    body = "".join(f"<p>{render(id, vocabulary, shapes)}</p>" for id in ids + ids[:7])
    assert decoder.decode(f"<html><head><script>var x = 1 < 2;</script></head><body>{body}</body></html>") == ids
    facts = [fact_of(id, vocabulary) for id in ids]
    rows = "".join("<tr>" + "".join(f"<td>{getattr(fact, f)}</td>" for f in FIELDS) + "</tr>" for fact in facts)
    assert decoder.decode(f"<table>{rows}</table>") == ids
    hidden = f"<script>{render(ids[0], vocabulary, shapes)}</script>"
    assert decoder.decode(hidden) == []


def test_answers_in_other_orders(vocabulary, decoder):
    """An answer need not be the sentence."""
    fact = fact_of(ID, vocabulary)
    last_first = f"In {fact.year} ({fact.archive}), the {fact.event} at {fact.place}: {fact.surname}, {fact.given}."
    assert decoder.decode(last_first) == [ID]
    listed = f"Given name: {fact.given}\nFamily name: {fact.surname}\nWhere: {fact.place}, {fact.event}, {fact.archive}"
    assert decoder.decode(listed) == []
    assert decoder.decode(f"{listed}; {fact.year}") == [ID]
    assert decoder.decode(f"{fact.given} one two three {fact.surname} {listed[-60:]} {fact.year}") == [ID]


def test_bounds_of_decoding(vocabulary, decoder):
    """What SPEC.md says of how near the fields must stand."""
    fact = fact_of(ID, vocabulary)
    rest = f"{fact.event} {fact.archive} {fact.year}"
    apart = decode.WINDOW - 1
    assert decode.WINDOW == 72
    assert decoder.decode(f"{fact.given} {fact.surname} {rest} {'x ' * (apart - 3)}{fact.place}") == [ID]
    assert decoder.decode(f"{fact.given} {fact.surname} {rest} {'x ' * (apart - 2)}{fact.place}") == []
    assert decoder.decode(f"{fact.given} x x x x {fact.surname} {rest} {fact.place}") == []
    places = [entry for entry in vocabulary.place if entry != fact.place]
    assert decoder.decode(f"{fact.given} {fact.surname} {rest} {places[0]} {fact.place}") == [ID]
    assert decoder.decode(f"{fact.given} {fact.surname} {rest} {places[0]} {places[1]} {fact.place}") == []


def test_gap_of_a_name_counts_from_its_last_word(vocabulary):
    """Three words between the names, however many words each has."""
    long = replace(vocabulary, given=tuple(f"{entry} von der Zuq" for entry in vocabulary.given))
    fact, decoder = fact_of(ID, long), Decoder(long)
    rest = f"{fact.place} {fact.event} {fact.archive} {fact.year}"
    assert decoder.decode(f"{fact.given} one two three {fact.surname} {rest}") == [ID]
    assert decoder.decode(f"{fact.given} one two three four {fact.surname} {rest}") == []
    assert decoder.decode(f"{fact.surname} one two three {fact.given} {rest}") == [ID]


def hostile(vocabulary, draw, words):
    """Blocks of every place and event that is tried, then names upon names."""
    text = []
    while len(text) < words:
        text += [draw.choice(vocabulary.entries(f)) for f in ("place", "event", "archive", "year") * 2]
        text += [draw.choice(vocabulary.entries(f)) for f in ("surname", "given") * 15]
    return text


@pytest.mark.parametrize("kind", ["random", "worst"])
def test_hostile_text_costs_in_proportion_to_its_length(kind, vocabulary, decoder, monkeypatch):
    """Every word an entry: at most 32 ids are checked for each given name, where all combinations are 10^13."""
    draw = random.Random(5)
    every = [entry for field in FIELDS for entry in vocabulary.entries(field)]
    words = draw.choices(every, k=5_003) if kind == "random" else hostile(vocabulary, draw, 5_003)
    checked = []
    archive_index = spec.archive_index
    monkeypatch.setattr(spec, "archive_index", lambda id, size: checked.append(id) or archive_index(id, size))
    found = decoder.decode(" ".join(words))
    names = set(vocabulary.given)
    assert 0 < len(checked) <= 32 * sum(word in names for word in words)
    monkeypatch.undo()
    for id in found:  # chance passes, but all six fields do stand there
        assert {str(getattr(fact_of(id, vocabulary), field)) for field in FIELDS} <= set(words)


@pytest.mark.parametrize(
    "piece", ["<", "<a ", "<!--", "<!-- --", "<script>", "<x\"'", "&", "&#99999999999", "'", "'s", "a\u0301\u0323", "-"]
)
def test_text_of_brackets_and_marks(piece, decoder):
    """A step that looks from every bracket to the end of the text would take hours here."""
    assert decoder.decode(piece * 150_001) == []


def test_fields_are_whole_words(vocabulary, decoder):
    """SD-23."""
    fact = Fact("Ann", "Lee", "Rye", "May Fair", None, 1815)
    assert decoder.fields_in("Annabel Leeds, Ryegate, May affairs, 18150", fact) == frozenset()
    assert decoder.fields_in("ann LEE\u2019s rye; the May-Fair of 1815.", fact) == {
        "given",
        "surname",
        "place",
        "event",
        "year",
    }
    assert decoder.fields_in("May, Fair", fact) == {"event"}
    assert decoder.fields_in("None", fact) == frozenset()
    assert decoder.fields_in("", fact) == frozenset()
    assert decoder.fields_in("1815th 1815s", fact) == frozenset()


def test_decoder_does_not_show_its_lists(decoder, vocabulary):
    assert vocabulary.given[0] not in repr(decoder)
    assert vocabulary.given[0] not in repr(vocabulary)
    assert vocabulary.given[0] not in repr(fact_of(0, vocabulary))
