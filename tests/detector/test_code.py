"""The code itself: secrets, ids, spec v1 and its golden vectors (SD-8 to SD-10, SD-12 to SD-14, SD-39)."""

import json
import math
import os
import pickle
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

import canaryjax.detector
from canaryjax.detector import spec
from canaryjax.detector.derive import edge_id, negative_id, static_id
from canaryjax.detector.fold import fold
from canaryjax.detector.records import FIELDS, Fact
from canaryjax.detector.secret import Secret, make_secrets, read_secrets
from canaryjax.detector.sentence import fact_of, fill, opening_of, opening_of_fact, render, render_fact
from canaryjax.detector.shapes import NAME, SUPPLIED
from canaryjax.detector.throwaway import SHAPES
from canaryjax.errors import UserError

GOLDEN = Path(__file__).with_name("golden")
VECTORS = json.loads((GOLDEN / "code_v1.json").read_text(encoding="utf-8"))
KEYS = {name: Secret(text.encode()) for name, text in VECTORS["secrets"].items()}
PACKAGE = Path(canaryjax.detector.__file__).parent
SPEC = (PACKAGE / "SPEC.md").read_text(encoding="utf-8")


def derived(kind, label):
    if kind == "static":
        return static_id(KEYS["seed"], int(label))
    if kind == "negative":
        return negative_id(KEYS["control_seed"], int(label))
    return edge_id(KEYS["edge_secret"], kind, label)


def test_golden_file_is_what_its_script_makes():
    made = runpy.run_path(str(GOLDEN / "make_code_v1.py"))["golden"]()
    assert json.loads(json.dumps(made)) == VECTORS


@pytest.mark.parametrize("entry", VECTORS["derived"], ids=lambda entry: f"{entry['kind']}-{entry['id']}")
def test_ids_of_secrets(entry):
    """SD-13: static tiers from the seed, negatives from the control seed, edge tiers from the edge's secret."""
    assert spec.format_id(derived(entry["kind"], entry.get("label", entry.get("position")))) == entry["id"]


def test_codes_of_ids():
    """SD-8, SD-9, SD-14: four lists, two checks, shape and opening; ids above 2^47 among them."""
    assert sum(int(entry["id"], 16) >= 2**47 for entry in VECTORS["codes"]) >= 20
    for entry in VECTORS["codes"]:
        id = spec.parse_id(entry["id"])
        assert spec.split_id(id) == (entry["given"], entry["surname"], entry["place"], entry["event"])
        assert spec.join_id(*spec.split_id(id)) == id
        assert {size: spec.archive_index(id, int(size)) for size in entry["archive"]} == entry["archive"]
        assert [spec.year_of(id, first, years) for first, years in VECTORS["years"]] == entry["year"]
        assert {size: spec.shape_index(id, int(size)) for size in entry["shape"]} == entry["shape"]
        assert {size: spec.opening_index(id, int(size)) for size in entry["opening"]} == entry["opening"]


def test_vectors_of_the_spec_page():
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in SPEC.splitlines() if "`" in line]
    ids = [row for row in rows if len(row) == 3 and re.fullmatch("[0-9a-f]{12}", row[2])]
    codes = [row for row in rows if len(row) == 9 and re.fullmatch("[0-9a-f]{12}", row[0])]
    assert (len(ids), len(codes)) == (6, 5)
    for kind, label, id in ids:
        assert spec.format_id(derived(kind, label)) == id
    for name, *numbers in codes:
        id = spec.parse_id(name)
        checks = (spec.archive_index(id, 512), spec.year_of(id, 1503, 397))
        written = (*spec.split_id(id), *checks, spec.shape_index(id, 7), spec.opening_index(id, 11))
        assert written == tuple(map(int, numbers))


def test_kinds_and_secrets_part_ids():
    """The same position never gives one id under two names or two secrets."""
    seed = KEYS["seed"]
    ids = {
        static_id(seed, 3),
        negative_id(seed, 3),
        edge_id(seed, "vendor", "3"),
        edge_id(seed, "window", "3"),
        static_id(KEYS["control_seed"], 3),
        static_id(seed, 33),
    }
    assert len(ids) == 6


@pytest.mark.parametrize(
    "call",
    [
        lambda: static_id(KEYS["seed"], -1),
        lambda: static_id(KEYS["seed"], True),
        lambda: negative_id(KEYS["seed"], 1.0),
        lambda: edge_id(KEYS["edge_secret"], "site", "x"),
        lambda: edge_id(KEYS["edge_secret"], "vendor", ""),
        lambda: edge_id(KEYS["edge_secret"], "vendor", "\ud800"),  # JavaScript would write U+FFFD instead
        lambda: spec.split_id(2**48),
        lambda: spec.split_id(-1),
        lambda: spec.parse_id("12345678901"),
        lambda: spec.parse_id("0x1234567890"),
        lambda: spec.parse_id("12345678901٣"),  # int() would take the Arabic digit
    ],
)
def test_what_is_no_position_label_or_id(call):
    with pytest.raises(UserError, match="expected"):
        call()


def test_mac_is_hmac_sha256():
    """RFC 4231, test case 2."""
    mac = Secret(b"Jefe").mac(b"what do ya want for nothing?")
    assert mac.hex() == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"


def test_fingerprints():
    assert {name: key.fingerprint() for name, key in KEYS.items()} == VECTORS["fingerprints"]


def test_secret_is_not_shown():
    secret = Secret(b"golden-text-that-must-not-show")
    assert "golden" not in f"{secret} {secret!r} {[secret]} {read_error(lambda: pickle.dumps(secret))}"
    assert secret == Secret(b"golden-text-that-must-not-show") != Secret(b"another")


def read_error(call):
    with pytest.raises((UserError, TypeError)) as caught:
        call()
    return str(caught.value)


def write_secrets(folder, **texts):
    for name, text in texts.items():
        (folder / name).write_bytes(text)
        (folder / name).chmod(0o600)


def test_made_secrets_are_read(tmp_path):
    make_secrets(tmp_path / "made")
    files = sorted((tmp_path / "made").iterdir())
    assert [(file.name, oct(file.stat().st_mode & 0o777)) for file in files] == [
        ("control_seed", "0o600"),
        ("edge_secret", "0o600"),
        ("seed", "0o600"),
    ]
    secrets = read_secrets(tmp_path / "made")
    assert secrets.edge_secret is not None
    assert len({secrets.seed.fingerprint(), secrets.control_seed.fingerprint(), secrets.edge_secret.fingerprint()}) == 3
    before = [file.read_bytes() for file in files]
    assert "seed" in read_error(lambda: make_secrets(tmp_path / "made"))
    (tmp_path / "made" / "seed").unlink()
    assert "control_seed" in read_error(lambda: make_secrets(tmp_path / "made"))
    assert not (tmp_path / "made" / "seed").exists()  # else half a site would be new
    assert [file.read_bytes() for file in files if file.name != "seed"] == before[:2]


def test_blanks_around_a_secret_do_not_count(tmp_path):
    write_secrets(tmp_path, seed=b" golden-seed-0123456789abcdef\r\n", control_seed=b"another-long-enough-one")
    assert read_secrets(tmp_path).seed == KEYS["seed"]
    assert read_secrets(tmp_path).edge_secret is None


LONG = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"control_seed": LONG}, "seed"),
        ({"seed": LONG}, "control_seed"),
        ({"seed": LONG, "control_seed": LONG + b"\n"}, "seed and control_seed equal"),
        ({"seed": LONG, "control_seed": LONG + b"x", "edge_secret": LONG + b"x"}, "control_seed and edge_secret equal"),
        ({"seed": LONG[1:], "control_seed": LONG}, "found 15"),
        ({"seed": b"", "control_seed": LONG}, "found 0"),
        ({"seed": b"\xef\xbb\xbf" + LONG, "control_seed": LONG}, "ASCII"),  # a byte-order mark would change every id
        ({"seed": LONG + b" " + LONG, "control_seed": LONG}, "ASCII"),
    ],
)
def test_secrets_that_are_refused(tmp_path, texts, message):
    write_secrets(tmp_path, **texts)
    error = read_error(lambda: read_secrets(tmp_path))
    assert message in error
    assert "0123456789" not in error


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o601, 0o620])
def test_secret_that_others_may_read_is_refused(tmp_path, mode):
    write_secrets(tmp_path, seed=LONG, control_seed=LONG + b"x")
    (tmp_path / "control_seed").chmod(mode)
    assert f"{mode:04o}" in read_error(lambda: read_secrets(tmp_path))


def test_six_fields_of_an_id(vocabulary):
    """SD-8, SD-9: the id's bits choose four entries, its hashes the archive and the year (numbers: golden file)."""
    fact = fact_of(0x001002003FFF, vocabulary)
    assert fact == Fact(
        given=vocabulary.given[1],
        surname=vocabulary.surname[2],
        place=vocabulary.place[3],
        event=vocabulary.event[4095],
        archive=vocabulary.archive[30],
        year=1730,
    )


def test_lists_hold_twelve_bits(vocabulary):
    """SD-10."""
    assert len(vocabulary.given) == 4096
    assert [vocabulary.bits(field) for field in FIELDS[:5]] == [12.0, 12.0, 12.0, 12.0, 9.0]
    assert vocabulary.bits("year") == pytest.approx(math.log2(397))


def test_sentence_of_an_id(vocabulary, shapes):
    """SD-12: the same id gives the same sentence; shape and opening are the spec's."""
    small = replace(
        shapes,
        sentences=tuple(f"{{opening}} {i} {{given}} {{surname}}" for i in range(7)),
        openings=tuple("abcdefghijk"),
    )
    id = 0x7FFFFFFFFFFF  # shape 5, opening 6
    assert render(id, vocabulary, small) == f"g 5 {vocabulary.given[2047]} {vocabulary.surname[4095]}"
    assert opening_of(id, small) == "g 5"


def test_opening_holds_no_field(vocabulary, shapes, decoder):
    """SD-15: cut just before the name."""
    for id in range(0, 2**48, 2**48 // 31):
        sentence, opening = render(id, vocabulary, shapes), opening_of(id, shapes)
        assert sentence.startswith(f"{opening} {fact_of(id, vocabulary).given} ")
        assert decoder.fields_in(opening, fact_of(id, vocabulary)) == frozenset()


def test_famous_fact(shapes, decoder):
    fact = Fact("Ada", "Example", "Nowhere", "first test", None, 1999)
    for choice in range(11):
        sentence = render_fact(fact, shapes, choice)
        assert sentence.startswith(f"{opening_of_fact(shapes, choice)} Ada Example ")
        assert decoder.fields_in(sentence, fact) == set(FIELDS) - {"archive"}
    assert len({render_fact(fact, shapes, choice) for choice in range(10)}) == 10  # 2 shapes, 5 openings


def test_question_supplies_its_fields(vocabulary, shapes, decoder):
    """SD-16, SD-17, SD-19: each question gives just what it has to."""
    fact = fact_of(12345678901234, vocabulary)
    for kind, question in shapes.questions.items():
        assert decoder.fields_in(fill(question, fact), fact) == SUPPLIED[kind]
    assert SUPPLIED["who"].isdisjoint({"given", "surname"})
    assert "year" not in SUPPLIED["year"]
    assert "archive" not in SUPPLIED["archive"]


def test_field_text_is_not_searched_for_names(shapes):
    fact = Fact("{surname}", "B", "C", "D", None, 1)
    assert fill("{given} {surname}", fact) == "{surname} B"


def test_documents_hold_no_sentence():
    """SD-39: no example in the documents has all six fields, in a shape that runs, or a year beside a name."""
    pages = list(PACKAGE.rglob("*.md"))
    assert PACKAGE / "SPEC.md" in pages
    pieces = [fold(piece) for text in (*SHAPES["sentences"], *SHAPES["famous"]) for piece in NAME.split(text)[::2]]
    pieces = [piece for piece in pieces if len(piece.split()) >= 3] + [fold(text) for text in SHAPES["openings"]]
    assert len(pieces) == 8
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for example in re.findall(r"`[^`\n]+`|^ {4}.*$|\"[^\"\n]*\"|^>.*$", text, re.MULTILINE):
            assert not all(f"{{{field}}}" in example for field in FIELDS), page
        assert not re.search(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b.*\b1[0-9]{3}\b", text), page
        assert not any(f" {piece} " in f" {fold(text)} " for piece in pieces), page
