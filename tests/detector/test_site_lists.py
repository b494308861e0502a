"""Word lists and shapes as users bring them: what is read, what is refused, and that no message shows a word."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

import canaryjax
from canaryjax.detector.shapes import read_shapes
from canaryjax.detector.throwaway import MARKER, SHAPES, make_site_lists
from canaryjax.detector.vocabulary import read_vocabulary
from canaryjax.errors import UserError

LISTS = ("given", "surname", "place", "event", "archive")


@pytest.fixture
def folder(site_lists, tmp_path):
    shutil.copytree(site_lists, tmp_path / "copy")
    return tmp_path / "copy"


def entries(folder, field):
    return (folder / f"{field}.txt").read_text(encoding="utf-8").splitlines()


def put(folder, field, lines):
    (folder / f"{field}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def replace_line(folder, field, line, entry):
    lines = entries(folder, field)
    lines[line - 1] = entry
    put(folder, field, lines)


def refusal(call, *secret):
    """The message of a refusal, in which none of the words stands, nor in what a traceback could show."""
    with pytest.raises(UserError) as caught:
        call()
    error = caught.value
    shown = " ".join(map(str, (error, error.__cause__, error.__context__))).lower()
    assert not any(word.lower() in shown for word in secret)
    return str(error)


def test_throw_away_lists(site_lists, vocabulary, tmp_path):
    """SD-7, SD-10: 4,096 entries each; the same seed makes the same, another other ones; no two lists share a word."""
    lists = [vocabulary.entries(field) for field in LISTS]
    assert [len(found) for found in lists] == [4096, 4096, 4096, 4096, 512]
    assert len({entry.lower() for found in lists for entry in found}) == 4 * 4096 + 512
    assert all(re.fullmatch("[A-Z][a-z]+", entry) for found in lists for entry in found)
    assert (site_lists / MARKER).exists()
    make_site_lists(tmp_path / "same", seed=7)
    make_site_lists(tmp_path / "other", seed=8)
    names = [f"{field}.txt" for field in LISTS]
    assert all((tmp_path / "same" / name).read_bytes() == (site_lists / name).read_bytes() for name in names)
    assert all((tmp_path / "other" / name).read_bytes() != (site_lists / name).read_bytes() for name in names)


def test_throw_away_lists_overwrite_nothing(tmp_path):
    (tmp_path / "place.txt").write_text("live\n")
    assert "place.txt" in refusal(lambda: make_site_lists(tmp_path, seed=7))
    assert [path.name for path in tmp_path.iterdir()] == ["place.txt"]


def test_no_list_ships():
    """SD-7."""
    package = Path(canaryjax.__file__).parent
    assert not [path for field in LISTS for path in package.rglob(f"{field}.txt")]
    assert not list(package.rglob("shapes.yaml"))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,  # else the first entry begins with the mark, and id 0 is another sentence
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", " \t\n"),
        lambda text: text + "\n\r\n",
        lambda text: text.rstrip("\n"),
    ],
    ids=["byte-order mark", "Windows", "blanks", "blank lines at the end", "no line end"],
)
def test_same_list_in_other_files(folder, vocabulary, change):
    path = folder / "given.txt"
    path.write_bytes(change(path.read_text(encoding="utf-8")).encode())
    assert read_vocabulary(folder).given == vocabulary.given


@pytest.mark.parametrize("size", [16, 4096])
def test_sizes_of_the_archive_list(folder, size):
    put(
        folder,
        "archive",
        [f"Volume q{chr(97 + i // 676)}{chr(97 + i // 26 % 26)}{chr(97 + i % 26)}" for i in range(size)],
    )
    assert read_vocabulary(folder).bits("archive") == {16: 4.0, 4096: 12.0}[size]


@pytest.mark.parametrize(
    ("field", "keep", "found"),
    [("given", 4095, 4095), ("event", 1, 1), ("archive", 511, 511), ("archive", 8, 8), ("archive", 24, 24)],
)
def test_wrong_size_is_refused(folder, field, keep, found):
    put(folder, field, entries(folder, field)[:keep])
    error = refusal(lambda: read_vocabulary(folder), entries(folder, field)[0])
    assert f"found {found} in" in error
    assert f"{field}.txt" in error


@pytest.mark.parametrize(
    ("other", "line", "change"),
    [
        ("surname", 9, str),
        ("surname", 9, str.upper),
        ("surname", 9, lambda entry: entry[0] + "\u0301" + entry[1:]),
        ("surname", 9, lambda entry: f"{entry[:2]}'{entry[2:]}"),
        ("surname", 9, lambda entry: f"{entry[:2]}-{entry[2:]}"),  # one spelling has no hyphen
        ("place", 4096, str),  # another list: a text with the word would hold both fields
        ("archive", 512, lambda entry: f"{entry}'s"),
        ("event", 1, lambda entry: f"Old {entry} Fair"),
        ("event", 1, lambda entry: f"Fair of {entry}"),
        ("event", 1, lambda entry: f"{entry}-Fair"),
    ],
)
def test_equal_and_inside_is_refused(folder, other, line, change):
    word = entries(folder, "surname")[4]
    replace_line(folder, other, line, change(word))
    error = refusal(lambda: read_vocabulary(folder), word, change(word))
    assert "line 5 of" in error or "line 5 " in error
    assert f"line {line} of" in error
    assert "surname.txt" in error
    assert f"{other}.txt" in error


def test_shared_words_are_taken(folder):
    """Two entries may share words as long as neither holds the other."""
    for line, entry in ((1, "Siege of Qaqa"), (2, "Siege of Qaqo"), (3, "Second Siege")):
        replace_line(folder, "event", line, entry)
    assert read_vocabulary(folder).event[:3] == ("Siege of Qaqa", "Siege of Qaqo", "Second Siege")


@pytest.mark.parametrize(
    "entry",
    [
        "",
        " \t",
        "Ab<b>cd",
        "Ab & Qaqa",
        "{given}",
        "Qa\u0000qa",
        "Qaqa: qo",
        "12",
        "Q",
        "...",
        "Fair of 1503",
        "1899",
        "qa " * 9,
    ],
    ids=lambda entry: f"{len(entry)}",  # the folder's name holds the id, and a message the folder's
)
def test_bad_entry_is_refused(folder, entry):
    replace_line(folder, "event", 11, entry)
    error = refusal(lambda: read_vocabulary(folder), *([entry] if len(entry.strip()) > 3 else []))
    assert "line 11 of" in error
    assert "event.txt" in error


@pytest.mark.parametrize("entry", ["Fair of 1502", "Act 15", "1900 Show", "Ob 15031"])
def test_numbers_that_are_no_year_are_taken(folder, entry):
    """Years run from 1503 to 1899."""
    replace_line(folder, "event", 11, entry)
    assert read_vocabulary(folder).event[10] == entry


def test_unreadable_lists(folder):
    word = entries(folder, "place")[0]
    (folder / "place.txt").write_bytes(word.encode() + b"\xe9\n")
    assert "UTF-8" in refusal(lambda: read_vocabulary(folder), word)
    (folder / "place.txt").write_bytes(b"")
    assert "place.txt" in refusal(lambda: read_vocabulary(folder))
    (folder / "place.txt").unlink()
    assert "place.txt" in refusal(lambda: read_vocabulary(folder))
    (folder / "place.txt").mkdir()
    assert "place.txt" in refusal(lambda: read_vocabulary(folder))
    assert "shapes.yaml" in refusal(lambda: read_vocabulary(folder / "nowhere"))


def write_shapes(folder, **changes):
    (folder / "shapes.yaml").write_text(yaml.safe_dump(SHAPES | changes, allow_unicode=True), encoding="utf-8")


def sentence(rest, start="{opening} {given} {surname}"):
    return {"sentences": [SHAPES["sentences"][0], f"{start} {rest}"]}


ALL = "zq {place} {event} {archive} {year}"
WHO = SHAPES["questions"] | {"who": "zq {event} {year}?"}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (sentence("zq {place} {event} {archive}"), "sentences[1]"),
        (sentence(f"{ALL} {{year}}"), "sentences[1]"),
        (sentence(f"{ALL} {{county}}"), "sentences[1]"),
        (sentence(ALL, "zq {opening} {given} {surname}"), "sentences[1]"),
        (sentence(ALL, "{opening} {surname} {given}"), "sentences[1]"),
        (sentence("{given} {surname} {event} {archive} {year}", "{opening} {place}"), "sentences[1]"),
        (sentence(ALL, "{opening} {given} of {surname}"), "sentences[1]"),
        (sentence(ALL, "{opening} {given}{surname}"), "sentences[1]"),
        (sentence("zq {place}shire {event} {archive} {year}"), "sentences[1]"),
        (sentence("zq x{place} {event} {archive} {year}"), "sentences[1]"),
        (sentence("zq {place}'x {event} {archive} {year}"), "sentences[1]"),
        (sentence("zq <b>{place}</b> {event} {archive} {year}"), "sentences[1]"),
        (sentence("zq &amp; {place} {event} {archive} {year}"), "sentences[1]"),
        (sentence("zq }} {place} {event} {archive} {year}"), "sentences[1]"),
        (sentence(f"{'zq ' * 41}{{place}} {{event}} {{archive}} {{year}}"), "sentences[1]"),
        ({"sentences": []}, "sentences"),
        ({"sentences": "zq"}, "sentences"),
        ({"openings": ["zq", ""]}, "openings"),
        ({"openings": ["zq {place}"]}, "openings[0]"),
        ({"openings": [7]}, "openings"),
        ({"famous": ["{opening} {given} {surname} zq {place} {event} {archive} {year}"]}, "famous[0]"),
        ({"questions": {"who": "zq"}}, "question"),
        ({"questions": WHO}, "questions.who"),
        (
            {"questions": SHAPES["questions"] | {"paraphrase": "zq {given} {surname} {place} {year}"}},
            "questions.paraphrase",
        ),
        ({"first_year": "1503"}, "first_year"),
        ({"first_year": 999}, "first_year"),
        ({"first_year": True}, "first_year"),
        ({"first_year": 9000, "years": 1001}, "four digits"),
        ({"years": 1}, "years"),
        ({"years": 4097}, "years"),
        ({"zq": 1}, "keys"),
    ],
)
def test_bad_shapes_are_refused(tmp_path, changes, where):
    write_shapes(tmp_path, **changes)
    error = refusal(lambda: read_shapes(tmp_path / "shapes.yaml"), "zq")
    assert where in error
    assert "shapes.yaml" in error


@pytest.mark.parametrize(
    "rest", [f"{'zq ' * 40}{{place}} {{event}} {{archive}} {{year}}", "{place}'s {event}-{archive}, {year}."]
)
def test_good_shapes_are_taken(tmp_path, rest):
    write_shapes(tmp_path, **sentence(rest))
    assert len(read_shapes(tmp_path / "shapes.yaml").sentences) == 2


@pytest.mark.parametrize("key", ["openings", "sentences", "questions", "famous", "first_year", "years"])
def test_missing_key_is_named(tmp_path, key):
    (tmp_path / "shapes.yaml").write_text(yaml.safe_dump({name: SHAPES[name] for name in SHAPES if name != key}))
    assert f"no {key}" in refusal(lambda: read_shapes(tmp_path / "shapes.yaml"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"openings: [zq\nsentences: zq: zq", "line"),
        (b"zq", "no keys"),
        (b"", "no keys"),
        (b"openings: zq\xff", "UTF-8"),
        (b"openings: !!python/object:zq.zq {}", "broken YAML"),
    ],
)
def test_broken_shapes_file_shows_nothing(tmp_path, content, message):
    (tmp_path / "shapes.yaml").write_bytes(content)
    assert message in refusal(lambda: read_shapes(tmp_path / "shapes.yaml"), "zq")


def test_white_space_of_shapes_does_not_count(tmp_path):
    write_shapes(tmp_path, **sentence("zq  {place}\n {event}\t{archive} {year} "))
    assert read_shapes(tmp_path / "shapes.yaml").sentences[1] == f"{{opening}} {{given}} {{surname}} {ALL}"


@pytest.mark.parametrize("text", ["zq {word} zq", "zq 1777 zq"])
@pytest.mark.parametrize("key", ["openings", "questions"])
def test_shape_that_holds_an_entry_is_refused(folder, text, key):
    """SD-15: else every opening would hold a field."""
    word = entries(folder, "place")[1000]
    text = text.replace("{word}", word.upper())
    who = f"{SHAPES['questions']['who']} {text}"
    write_shapes(
        folder, **({"openings": [text]} if key == "openings" else {"questions": SHAPES["questions"] | {"who": who}})
    )
    error = refusal(lambda: read_vocabulary(folder), word, "zq", "1777")
    assert {"openings": "openings[0]", "questions": "questions.who"}[key] in error


def test_live_site_in_public_shapes_is_refused(folder):
    """SD-39: the shapes that ship are not live ones."""
    (folder / MARKER).unlink()
    assert "sentences[0]" in refusal(lambda: read_vocabulary(folder), "gathering", "visitors")
    own = "{opening} {given} {surname} zq {place} {event} {archive} {year}"
    write_shapes(folder, sentences=[own], famous=[own.replace(" {archive}", "")])
    assert len(read_vocabulary(folder).given) == 4096


def test_shapes_do_not_show_themselves(shapes):
    assert repr(shapes) == "Shapes(3 sentences, 5 openings)"
