"""An id as a fact and as the sentence that a page carries."""

from canaryjax.detector import spec
from canaryjax.detector.records import FIELDS, Fact
from canaryjax.detector.shapes import NAME, Shapes
from canaryjax.detector.vocabulary import Vocabulary


def fact_of(id: int, vocabulary: Vocabulary) -> Fact:
    """The six fields that an id of 48 bits stands for."""
    given, surname, place, event = spec.split_id(id)
    return Fact(
        given=vocabulary.given[given],
        surname=vocabulary.surname[surname],
        place=vocabulary.place[place],
        event=vocabulary.event[event],
        archive=vocabulary.archive[spec.archive_index(id, len(vocabulary.archive))],
        year=spec.year_of(id, vocabulary.first_year, vocabulary.years),
    )


def render(id: int, vocabulary: Vocabulary, shapes: Shapes) -> str:
    """The sentence of an id, whose shape and opening the id chooses too."""
    return fill(_shape(id, shapes), fact_of(id, vocabulary), _opening(id, shapes))


def opening_of(id: int, shapes: Shapes) -> str:
    """The sentence of an id up to just before the person's name; holds none of the six fields."""
    return _cut(_shape(id, shapes), _opening(id, shapes))


def render_fact(fact: Fact, shapes: Shapes, choice: int) -> str:
    """A famous fact in a shape without archive; `choice`, from 0, goes round the shapes and round the openings."""
    return fill(shapes.famous[choice % len(shapes.famous)], fact, shapes.openings[choice % len(shapes.openings)])


def opening_of_fact(shapes: Shapes, choice: int) -> str:
    """A famous fact's sentence of that choice up to just before the person's name."""
    return _cut(shapes.famous[choice % len(shapes.famous)], shapes.openings[choice % len(shapes.openings)])


def fill(text: str, fact: Fact, opening: str = "") -> str:
    """A shape's or question's text with fields put in for their names in braces."""
    values: dict[str, str] = {field: str(getattr(fact, field)) for field in FIELDS}
    values["opening"] = opening
    return NAME.sub(lambda found: values[found[1]], text)


def _shape(id: int, shapes: Shapes) -> str:
    return shapes.sentences[spec.shape_index(id, len(shapes.sentences))]


def _opening(id: int, shapes: Shapes) -> str:
    return shapes.openings[spec.opening_index(id, len(shapes.openings))]


def _cut(shape: str, opening: str) -> str:
    return shape[: shape.index("{given}")].replace("{opening}", opening).rstrip()
