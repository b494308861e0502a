"""The site's sentence shapes, openings and questions, as its owner wrote them in shapes.yaml."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canaryjax.detector.fold import fold
from canaryjax.detector.own_file import read_yaml
from canaryjax.detector.records import FIELDS, Field, ProbeKind
from canaryjax.errors import UserError

# Fields that each question supplies; it asks for one or more of the others (SD-16, SD-17).
SUPPLIED: dict[ProbeKind, frozenset[Field]] = {
    "completion": frozenset(),
    "who": frozenset(("place", "event", "year")),
    "year": frozenset(("given", "surname", "event", "place")),
    "archive": frozenset(("given", "surname", "place")),
    "paraphrase": frozenset(("given", "surname", "place")),
}
SENTENCE_WORDS = 40  # most words of a sentence shape after the name, its fields aside: the decoder's window holds them
NAME = re.compile(r"\{([a-z]+)\}")
KEYS = ("openings", "sentences", "questions", "famous", "first_year", "years")


@dataclass(frozen=True, repr=False)
class Shapes:
    """Texts with field names in braces; secret, and so without a `repr` that shows them.

    Attributes:
      sentences: Each begins with {opening} and holds the six fields, name first.
      openings: Texts without a field, put in for {opening}.
      questions: Of each probe but the completion, with the fields that it supplies.
      famous: Sentence shapes without {archive}, for famous facts.
      first_year, years: The years that an id can fix.
    """

    sentences: tuple[str, ...]
    openings: tuple[str, ...]
    questions: Mapping[ProbeKind, str]
    famous: tuple[str, ...]
    first_year: int
    years: int

    def __repr__(self) -> str:
        return f"Shapes({len(self.sentences)} sentences, {len(self.openings)} openings)"

    def texts(self) -> list[tuple[str, str]]:
        """Where each text stands in the file, and the text."""
        lists = {"sentences": self.sentences, "openings": self.openings, "famous": self.famous}
        found = [(f"{key}[{i}]", text) for key, texts in lists.items() for i, text in enumerate(texts)]
        return [*found, *((f"questions.{kind}", text) for kind, text in self.questions.items())]


def read_shapes(path: str | Path) -> Shapes:
    """The shapes of a file.

    Raises:
      UserError: It cannot be read, lacks a key or has another one; a text lacks a field, has one twice, in a wrong
        order or glued to a word; a year has not four digits. The message says where, never what stands there.
    """
    content = read_yaml(Path(path), "sentence shapes")
    if not isinstance(content, dict):
        raise UserError(f"expected sentence shapes in {path}, found no keys; correct the file")
    unknown = set(content) - set(KEYS)
    missing = [key for key in KEYS if key not in content]
    if unknown or missing:
        raise UserError(
            f"expected the keys {', '.join(KEYS)} in {path}, found {len(unknown)} others and no "
            f"{', '.join(missing) or 'missing one'}; correct the file's keys"
        )
    questions = content["questions"]
    kinds = [kind for kind in SUPPLIED if SUPPLIED[kind]]
    if not isinstance(questions, dict) or set(questions) != set(kinds):
        raise UserError(f"expected one question for each of {', '.join(kinds)} in {path}; name each once")
    shapes = Shapes(
        sentences=_texts(path, "sentences", content["sentences"]),
        openings=_texts(path, "openings", content["openings"]),
        questions={kind: _texts(path, f"questions.{kind}", [questions[kind]])[0] for kind in kinds},
        famous=_texts(path, "famous", content["famous"]),
        first_year=_whole(path, "first_year", content["first_year"], 1000, 9999),
        years=_whole(path, "years", content["years"], 2, 4096),
    )
    if shapes.first_year + shapes.years > 10_000:
        raise UserError(f"expected years of four digits in {path}, found later ones; lower first_year or years")
    for where, text in shapes.texts():
        _check_text(f"{where} of {path}", where, text)
    return shapes


def _texts(path: str | Path, key: str, found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not found or not all(isinstance(text, str) and text.strip() for text in found):
        raise UserError(f"expected one or more texts under {key} in {path}, found another thing; quote each text")
    return tuple(" ".join(text.split()) for text in found)


def _whole(path: str | Path, key: str, found: Any, low: int, high: int) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
        raise UserError(f"expected a whole number from {low} to {high} under {key} in {path}; correct it")
    return found


def _check_text(label: str, where: str, text: str) -> None:
    names = NAME.findall(text)
    rest = NAME.sub(" ", text)
    if any(character in rest for character in "{}<>&") or not rest.isprintable():
        raise UserError(
            f"expected plain text with field names in braces, found another bracket, & or control character "
            f"in {label}; write it without"
        )
    # Seen as the decoder will see it: besides a missing blank, an elision (l'{event}) makes one word of two.
    words = fold(NAME.sub(r"qz\1qz", text)).split()
    if not all(f"qz{name}qz" in words for name in names):
        raise UserError(
            f"expected fields that stand as words of their own, found one glued to letters in {label}; "
            "part them by a blank, also where an apostrophe stands"
        )
    key = where.split("[")[0]
    if key == "openings":
        wanted: list[str] = []
    elif key in ("sentences", "famous"):
        wanted = ["opening", *(field for field in FIELDS if key == "sentences" or field != "archive")]
    else:
        wanted = sorted(SUPPLIED[key.removeprefix("questions.")])  # type: ignore[index]
    if sorted(names) != sorted(wanted):
        raise UserError(
            f"expected each of the fields {', '.join(wanted) or '(none)'} once in {label}, found {len(names)} fields; "
            "a question supplies only what it has to"
        )
    if "opening" in wanted:
        _check_order(label, text, names)


def _check_order(label: str, text: str, names: list[str]) -> None:
    if names[:3] != ["opening", "given", "surname"] or not text.startswith("{opening}"):
        raise UserError(f"expected {{opening}} first, then {{given}} and {{surname}}, in {label}; put the name first")
    between = text[text.index("{given}") + len("{given}") : text.index("{surname}")]
    if between != " ":
        raise UserError(f"expected one blank between {{given}} and {{surname}} in {label}; correct it")
    words = len(fold(NAME.sub(" ", text[text.index("{surname}") :])).split())
    if words > SENTENCE_WORDS:
        raise UserError(
            f"expected at most {SENTENCE_WORDS} words after the name, fields aside, found {words} in {label}; "
            "the decoder looks no further"
        )
