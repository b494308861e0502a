"""Famous facts, the third population: how much this model recalls of what it surely read, asked in the same way."""

import itertools
import os
from pathlib import Path
from typing import Any

from canaryjax.detector.fold import fold
from canaryjax.detector.own_file import read_yaml
from canaryjax.detector.records import FIELDS, Fact
from canaryjax.errors import UserError

NAME = "positives.yaml"
SHIPPED = Path(__file__).with_name(NAME)
TEXTS = ("given", "surname", "place", "event")
YEARS = range(1, 2200)


def read_positives(folder: Path) -> tuple[Fact, ...]:
    """Reads the site's own famous facts, or the shipped ones where it has none (SD-1).

    Args:
      folder: The site's; its positives.yaml is a list of entries with given, surname, place, event, year and, if they
        like, archive: null.

    Returns:
      The facts in the order of the file, each of another person, with `archive` None.

    Raises:
      UserError: The file is not such a list; the entry is named by its number, never by its words.
    """
    path = folder / NAME if os.path.lexists(folder / NAME) else SHIPPED
    entries = read_yaml(path, "a list of famous facts")
    if not isinstance(entries, list) or not entries:
        raise UserError(f"expected a list of famous facts in {path}, found none; write one entry a fact")
    facts = tuple(_fact(entry, f"entry {number} of {path}") for number, entry in enumerate(entries, start=1))
    owners: dict[tuple[str, str], int] = {}
    for number, fact in enumerate(facts, start=1):
        first = owners.setdefault((fold(fact.given), fold(fact.surname)), number)
        if first != number:
            raise UserError(
                f"expected one fact a person in {path}, found entries {first} and {number} of the same name; remove one"
            )
    return facts


def _fact(entry: Any, where: str) -> Fact:
    if not isinstance(entry, dict):
        raise UserError(f"expected keys and values as {where}, found {type(entry).__name__}; write given, surname, ...")
    missing = [name for name in (*TEXTS, "year") if name not in entry]
    if missing or not set(entry) <= set(FIELDS):
        found = f"no {missing[0]}" if missing else "a key of another name"
        raise UserError(
            f"expected the keys {', '.join(TEXTS)}, year and no others in {where}, found {found}; correct it"
        )
    if entry.get("archive") is not None:
        raise UserError(f"expected archive: null in {where}, found a value; no record book holds a famous fact")
    for name in TEXTS:
        if not isinstance(entry[name], str) or not fold(entry[name]) or not entry[name].isprintable():
            raise UserError(f"expected {name} to be words in {where}, found something else; write it in quotes")
    year = entry["year"]
    if isinstance(year, bool) or not isinstance(year, int) or year not in YEARS:
        raise UserError(f"expected a year of {YEARS[0]} to {YEARS[-1]} in {where}, found something else; correct it")
    for one, other in itertools.combinations((*TEXTS, "year"), 2):
        if set(fold(str(entry[one])).split()) & set(fold(str(entry[other])).split()):
            raise UserError(
                f"expected {one} and {other} without a word in common in {where}, found one; a question that supplies "
                "one of them would give the other away"
            )
    given, surname, place, event = (entry[name].strip() for name in TEXTS)
    return Fact(given, surname, place, event, None, year)
