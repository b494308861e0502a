"""The site's word lists: read, checked, never shown."""

import math
import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from canaryjax.detector.fold import fold, spellings
from canaryjax.detector.own_file import read_text
from canaryjax.detector.records import Field
from canaryjax.detector.shapes import NAME, Shapes, read_shapes
from canaryjax.detector.spec import ARCHIVE_SIZES, LIST_SIZE
from canaryjax.detector.throwaway import MARKER, SHAPES
from canaryjax.errors import UserError

LISTS: tuple[Field, ...] = ("given", "surname", "place", "event", "archive")
SHAPES_FILE = "shapes.yaml"
ENTRY_WORDS = 8  # most words of an entry
LEAST_LETTERS = 2
MARKS = frozenset(" '\u2019-\u2010.,")  # what an entry may hold beside letters, their marks and digits


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """The five lists of a site and its years; secret, and so without a `repr` that shows them."""

    given: tuple[str, ...]
    surname: tuple[str, ...]
    place: tuple[str, ...]
    event: tuple[str, ...]
    archive: tuple[str, ...]
    first_year: int
    years: int

    def __repr__(self) -> str:
        return f"Vocabulary(archive of {len(self.archive)}, {self.years} years)"

    def entries(self, field: Field) -> tuple[str, ...]:
        """The list of a field; of the year, its numbers as text."""
        if field == "year":
            return tuple(str(year) for year in range(self.first_year, self.first_year + self.years))
        return getattr(self, field)

    def bits(self, field: Field) -> float:
        """What a field is worth as evidence: log2 of the number of its entries."""
        return math.log2(self.years if field == "year" else len(self.entries(field)))


def read_vocabulary(folder: str | Path) -> Vocabulary:
    """The word lists of a site's folder, checked against each other and against its shapes.

    given.txt, surname.txt, place.txt and event.txt hold 4,096 entries each, archive.txt a power of two from 16 to
    4,096, one entry a line, in UTF-8; the years stand in shapes.yaml.

    Raises:
      UserError: A list is missing or has a wrong size; two entries, of any lists, fold to the same words, or one's
        words stand inside another's; an entry may be a year; a shape's own words hold an entry or a year; a live site
        uses a shape that ships with canaryjax. The message names files and lines, never a word.
    """
    root = Path(folder)
    shapes = read_shapes(root / SHAPES_FILE)
    lists = {field: _read_list(root / f"{field}.txt", field) for field in LISTS}
    vocabulary = Vocabulary(
        given=lists["given"],
        surname=lists["surname"],
        place=lists["place"],
        event=lists["event"],
        archive=lists["archive"],
        first_year=shapes.first_year,
        years=shapes.years,
    )
    owners = _owners(root, vocabulary)
    for phrase, (field, line) in owners.items():
        _check_inside(root, owners, phrase, field, line)
    _check_shapes(root, owners, vocabulary, shapes)
    return vocabulary


def _read_list(path: Path, field: Field) -> tuple[str, ...]:
    text = read_text(path, "a word list", "write one entry a line, in UTF-8")
    lines = [line.strip() for line in text.rstrip().split("\n")]
    for number, line in enumerate(lines, 1):
        _check_entry(f"line {number} of {path}", line)
    sizes = ARCHIVE_SIZES if field == "archive" else (LIST_SIZE,)
    if len(lines) not in sizes:
        wanted = "a power of two from 16 to 4096" if field == "archive" else str(LIST_SIZE)
        raise UserError(f"expected {wanted} entries, found {len(lines)} in {path}; add or take away lines")
    return tuple(lines)


def _check_entry(label: str, entry: str) -> None:
    if not entry:
        raise UserError(f"expected an entry, found a blank line, {label}; delete it, as the lines after it would move")
    if not entry.isalnum() and not all(
        character in MARKS or unicodedata.category(character)[0] in "LMN" for character in entry
    ):
        raise UserError(
            f"expected letters, digits, blanks, apostrophes, hyphens, full stops and commas, found another character "
            f"in {label}; write the entry without it"
        )
    words = fold(entry).split()
    if len(words) > ENTRY_WORDS or sum(character.isalpha() for word in words for character in word) < LEAST_LETTERS:
        raise UserError(
            f"expected an entry of at most {ENTRY_WORDS} words with at least {LEAST_LETTERS} letters in {label}; "
            "the decoder would not know it in a text"
        )


def _owners(root: Path, vocabulary: Vocabulary) -> dict[str, tuple[Field, int]]:
    """Whose each spelling is: field and line."""
    owners: dict[str, tuple[Field, int]] = {}
    for field in LISTS:
        for line, entry in enumerate(vocabulary.entries(field), 1):
            for phrase in spellings(entry):
                other = owners.setdefault(phrase, (field, line))
                if other != (field, line):
                    raise UserError(
                        f"expected unlike entries, found line {line} of {root / field}.txt equal to line {other[1]} of "
                        f"{root / other[0]}.txt once case, accents, apostrophes and hyphens are gone; replace one"
                    )
                if any(_is_year(word, vocabulary) for word in phrase.split()):
                    raise UserError(
                        f"expected entries without years, found one in line {line} of {root / field}.txt; replace it"
                    )
    return owners


def _is_year(word: str, vocabulary: Vocabulary) -> bool:
    return len(word) == 4 and word.isdecimal() and 0 <= int(word) - vocabulary.first_year < vocabulary.years


def _inside(phrase: str) -> list[str]:
    """All runs of words of a phrase, itself among them."""
    words = phrase.split()
    return [" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, min(len(words), i + ENTRY_WORDS) + 1)]


def _check_inside(root: Path, owners: dict[str, tuple[Field, int]], phrase: str, field: Field, line: int) -> None:
    for run in _inside(phrase):
        other = owners.get(run, (field, line))
        if other != (field, line):
            raise UserError(
                f"expected no entry inside another, found line {other[1]} of {root / other[0]}.txt inside line {line} "
                f"of {root / field}.txt; replace one, or a text that holds the longer would hold both"
            )


def _check_shapes(root: Path, owners: dict[str, tuple[Field, int]], vocabulary: Vocabulary, shapes: Shapes) -> None:
    public = {" ".join(text.split()) for key in ("sentences", "famous") for text in SHAPES[key]}
    for where, text in shapes.texts():
        if text in public and not os.path.lexists(root / MARKER):
            raise UserError(
                f"expected shapes of the site's own, found a public one in {where} of {root / SHAPES_FILE}; write "
                "other sentences, as anybody may look for those that ship with canaryjax"
            )
        for piece in NAME.split(text)[::2]:  # the texts between field names
            words = fold(piece)
            if any(run in owners for run in _inside(words)) or any(
                _is_year(word, vocabulary) for word in words.split()
            ):
                raise UserError(
                    f"expected shapes without entries of the lists or years, found one in {where} of "
                    f"{root / SHAPES_FILE}; reword it, or every sentence would hold that field"
                )
