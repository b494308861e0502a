"""Reading canaries out of any text: a page, a model's answer, a file."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from canaryjax.detector import spec
from canaryjax.detector.fold import fold, spellings
from canaryjax.detector.records import FIELDS, Fact, Field
from canaryjax.detector.shapes import SENTENCE_WORDS
from canaryjax.detector.vocabulary import ENTRY_WORDS, LISTS, Vocabulary

# Bounds that keep the work in proportion to the text, even where every word is an entry: without them a text of n
# words could hold n^4 ids. A rendered sentence never comes near them.
NAME_GAP = 3  # most words between given name and surname, in either order
WINDOW = SENTENCE_WORDS + 4 * ENTRY_WORDS  # words on either side of the name in which the other fields are looked for
NEAREST = 2  # of each other field, the entries tried on either side of a name: those of a sentence come first after it
AROUND: tuple[Field, ...] = ("place", "event", "archive", "year")


class Sighting(NamedTuple):
    """An entry that stands in a text, from word `start` up to but not with word `end`."""

    start: int
    end: int
    entry: int  # place of the entry in its list; of a year, the year


class _Run:
    """The sightings of one field, in order."""

    def __init__(self) -> None:
        self.all: list[Sighting] = []
        self.starts: list[int] = []

    def add(self, sighting: Sighting) -> None:
        self.all.append(sighting)
        self.starts.append(sighting.start)

    def between(self, low: int, high: int) -> list[Sighting]:
        """Those that start in [low, high)."""
        return self.all[bisect_left(self.starts, low) : bisect_left(self.starts, high)]

    def before(self, end: int, low: int, most: int) -> list[Sighting]:
        """The last ones, at most so many, that end by `end` and start from `low` on."""
        found = [sighting for sighting in self.between(low, end) if sighting.end <= end]
        return found[-most:]

    def after(self, start: int, high: int, most: int) -> list[Sighting]:
        """The first ones, at most so many, that start in [start, high)."""
        at = bisect_left(self.starts, start)
        return self.all[at : min(at + most, bisect_left(self.starts, high))]


class Decoder:
    """Knows a site's entries in every spelling; made once, used on any number of texts."""

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary = vocabulary
        self._tree: dict[str, Any] = {}  # word -> subtree; "" -> (field, index) of the entry that ends here
        for field in LISTS:
            for index, entry in enumerate(vocabulary.entries(field)):
                for phrase in spellings(entry):
                    node = self._tree
                    for word in phrase.split():
                        node = node.setdefault(word, {})
                    node[""] = (field, index)

    @staticmethod
    def fold(text: str) -> str:
        """The text's words as they are compared; see `canaryjax.detector.fold`."""
        return fold(text)

    def fields_in(self, text: str, fact: Fact) -> frozenset[Field]:
        """Which fields of a fact stand in a text as whole words, anywhere (SD-23)."""
        words = f" {fold(text)} "
        found: set[Field] = set()
        for field in FIELDS:
            value = getattr(fact, field)
            if value is not None and any(f" {phrase} " in words for phrase in spellings(str(value))):
                found.add(field)
        return frozenset(found)

    def decode(self, text: str) -> list[int]:
        """Every id, once, whose six fields stand together in a text, its archive and year as the id fixes them.

        Given name and surname, in either order, have at most 3 words between them; the other fields start within 72
        words of the name, and of each the 2 nearest on either side are tried. So a text of n words costs a number of
        steps in proportion to n, and a page crowded with entries gives few ids by chance: 16 combinations a name, each
        of which passes once in 512 * 397 / 16 times for 512 archives and 397 years. Ids come in the order of their
        names.
        """
        runs = self._sightings(fold(text).split())
        found: dict[int, None] = {}
        for start, end, given, surname in _names(runs):
            for id in self._ids_near(runs, start, end, given, surname):
                found[id] = None
        return list(found)

    def _sightings(self, words: list[str]) -> dict[Field, _Run]:
        runs: dict[Field, _Run] = {field: _Run() for field in FIELDS}
        first, last = self._vocabulary.first_year, self._vocabulary.first_year + self._vocabulary.years - 1
        for start, word in enumerate(words):
            if len(word) == 4 and word.isdecimal() and first <= int(word) <= last:
                runs["year"].add(Sighting(start, start + 1, int(word)))
            node, at = self._tree.get(word), start + 1
            while node is not None:
                if "" in node:
                    field, index = node[""]
                    runs[field].add(Sighting(start, at, index))
                node, at = node.get(words[at]) if at < len(words) else None, at + 1
        return runs

    def _ids_near(self, runs: dict[Field, _Run], start: int, end: int, given: int, surname: int) -> Iterator[int]:
        near = {
            field: dict.fromkeys(
                sighting.entry
                for sighting in (
                    *runs[field].after(end, end + WINDOW, NEAREST),
                    *runs[field].before(start, start - WINDOW, NEAREST),
                )
            )
            for field in AROUND
        }
        years, archives = near["year"], near["archive"]
        if not years or not archives:
            return
        vocabulary, size, name = self._vocabulary, len(self._vocabulary.archive), spec.join_id(given, surname, 0, 0)
        for place, event in product(near["place"], near["event"]):
            id = name | place << 12 | event  # `join_id` without the call: a hostile text's time goes here
            if spec.archive_index(id, size) in archives and (
                spec.year_of(id, vocabulary.first_year, vocabulary.years) in years
            ):
                yield id


def _names(runs: dict[Field, _Run]) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, given name and surname of each name: a given name with the next surname, or with the last one."""
    surnames = runs["surname"]
    for given in runs["given"].all:
        for surname in surnames.after(given.end, given.end + NAME_GAP + 1, 1):
            yield given.start, surname.end, given.entry, surname.entry
        for surname in surnames.before(given.start, given.start - NAME_GAP - ENTRY_WORDS, 1):
            if given.start - surname.end <= NAME_GAP:
                yield surname.start, given.end, given.entry, surname.entry
