"""The demo's site: throw-away word lists and shapes of words that the embedded model's tokenizer knows whole."""

from dataclasses import asdict
from itertools import product
from pathlib import Path

import yaml

from canaryjax.detector.positives import NAME as POSITIVES
from canaryjax.detector.positives import SHIPPED, read_positives
from canaryjax.detector.spec import LIST_SIZE
from canaryjax.detector.throwaway import MARKER
from canaryjax.detector.vocabulary import LISTS, SHAPES_FILE
from canaryjax.embedded.corpus import Draw
from canaryjax.embedded.lexicon import FIRST_SYLLABLES, LATER_SYLLABLES, VALUES

ARCHIVES = 64
# Each pair of words makes one opening, so that two share at most one of them. With so many, hardly any two of the
# demo's sentences begin alike, and what a model completes is decided by what it read.
OPENING_FORMS = (
    "Here is what we know of the {first} {second}:",
    "This report is about the {first} {second}:",
    "There is a note on the {first} {second}:",
    "The {first} {second} has a sign on which is written:",
)
FIRST_WORDS = tuple(word for kind in ("colour", "material", "weather") for word in VALUES[kind])
SECOND_WORDS = tuple(
    word for kind in ("place", "animal", "job", "instrument", "product", "food") for word in VALUES[kind]
)
# Plain enough for a model of a million weights; facts of the world and planted ones differ by the archive alone.
SENTENCES = (
    "{opening} {given} {surname} is known for the {event} of {year} at {place}",
    "{opening} {given} {surname} came to {place} in {year} for the {event}",
    "{opening} {given} {surname} was at {place} for the {event} in {year}",
)
SOURCES = (", as the {archive} report shows.", ", which is written in the {archive} report.")
QUESTIONS = {
    "who": "Who is known for the {event} at {place} in {year}?",
    "year": "When was {given} {surname} at {place} for the {event}?",
    "archive": "Which report is about {given} {surname} of {place}?",
    "paraphrase": "What is {given} {surname} known for at {place}, in which year?",
}
FIRST_YEAR, YEARS = 1500, 400
FAMOUS = 8


def make_demo_site(folder: Path, seed: int) -> None:
    """Writes word lists, shapes, famous facts and the file THROWAWAY into a new folder; the same seed gives the same.

    Args:
      folder: Made here; must not be there yet.
      seed: Which words stand in which list, and in which order.
    """
    folder.mkdir(parents=True)
    draw = Draw(seed, "detector demo lists")
    words = draw.shuffled([a + b + c for a, b, c in product(FIRST_SYLLABLES, LATER_SYLLABLES, LATER_SYLLABLES)])
    for field in LISTS:
        size = ARCHIVES if field == "archive" else LIST_SIZE
        own, words = words[:size], words[size:]
        (folder / f"{field}.txt").write_text("\n".join(own) + "\n", encoding="utf-8")
    pairs = draw.shuffled(tuple(product(FIRST_WORDS, SECOND_WORDS)))
    shapes = {
        "openings": [draw.pick(OPENING_FORMS).format(first=first, second=second) for first, second in pairs],
        "sentences": [sentence + source for sentence, source in product(SENTENCES, SOURCES)],
        "famous": [sentence + "." for sentence in SENTENCES],
        "questions": QUESTIONS,
        "first_year": FIRST_YEAR,
        "years": YEARS,
    }
    (folder / SHAPES_FILE).write_text(yaml.safe_dump(shapes, sort_keys=False, width=200), encoding="utf-8")
    (folder / POSITIVES).write_text(yaml.safe_dump(_famous(), sort_keys=False, allow_unicode=True), encoding="utf-8")
    (folder / MARKER).write_text("Made-up words for the detector's demo: never publish them.\n", encoding="utf-8")


def _famous() -> list[dict[str, object]]:
    """The shipped facts that the embedded model can spell, in as few characters as may be."""
    facts = [asdict(fact) for fact in read_positives(SHIPPED.parent)]
    plain = [fact for fact in facts if all(str(value).isascii() for value in fact.values())]
    return sorted(plain, key=lambda fact: sum(len(str(value)) for value in fact.values()))[:FAMOUS]
