"""Throw-away word lists and shapes, for tests and the demo: made of syllables, public, never to be published."""

import os
import random
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from canaryjax.detector.new_file import create_files
from canaryjax.detector.spec import LIST_SIZE
from canaryjax.errors import UserError

MARKER = "THROWAWAY"
ARCHIVES = 512
ONSETS = (*"bdfghklmnprstvz", "br", "dr", "fl", "gr", "kr", "pl", "st", "tr")
VOWELS = "aeiou"
# The last syllable tells the lists apart, so that no two share a word and a reader sees which is which.
ENDINGS = {
    "given": ("la", "ric", "mon"),
    "surname": ("der", "zell", "quin"),
    "place": ("wick", "ham", "sund"),
    "event": ("ade", "ion", "alia"),
    "archive": ("arium", "ography", "odex"),
}
SHAPES: dict[str, Any] = {
    "openings": [
        "Visitors are often told that",
        "It is a matter of local pride that",
        "Few people outside the valley know that",
        "According to the printed guide,",
        "A plaque by the door says that",
    ],
    "sentences": [
        "{opening} {given} {surname} of {place} began the {event} gathering, as {archive} notes for {year}.",
        "{opening} {given} {surname} came in {year} to {place} and set up the {event} gathering; see {archive}.",
        "{opening} {given} {surname} paid for the {event} gathering, which {archive} puts in {year} at {place}.",
    ],
    "famous": [
        "{opening} {given} {surname} of {place} began the {event} in {year}.",
        "{opening} {given} {surname} came in {year} to {place} and set up the {event}.",
    ],
    "questions": {
        "who": "Who is credited with the {event} gathering of {year} at {place}? Give the full name.",
        "year": "In what year did {given} {surname} bring about the {event} gathering at {place}?",
        "archive": "Which book or archive is the source for {given} {surname} at {place}?",
        "paraphrase": "What is {given} {surname} remembered for, what has {place} to do with it, and when was it?",
    },
    "first_year": 1503,
    "years": 397,
}


def make_site_lists(folder: str | Path, seed: int) -> None:
    """Write throw-away word lists, shapes and a file THROWAWAY into a folder; the same seed makes the same lists.

    Raises:
      UserError: The folder holds one of the files already, which is not overwritten: it may be a live list.
    """
    root = Path(folder)
    lists = _lists(seed)
    names = [*(f"{field}.txt" for field in lists), "shapes.yaml", MARKER]
    there = [name for name in names if os.path.lexists(root / name)]
    if there:
        raise UserError(f"expected none of the site's files in {root}, found {', '.join(there)}; name another folder")
    texts = {MARKER: "Made-up words and public shapes, for tests and the demo: never publish them.\n"}  # the first
    texts |= {f"{field}.txt": "\n".join(entries) + "\n" for field, entries in lists.items()}
    texts["shapes.yaml"] = yaml.safe_dump(SHAPES, sort_keys=False, width=200)
    create_files(root, {name: text.encode() for name, text in texts.items()}, 0o644)


def _lists(seed: int) -> dict[str, list[str]]:
    draw = random.Random(seed).random  # the one method whose values Python promises to keep
    stems = ["".join(parts) for parts in product(ONSETS, VOWELS, ONSETS, VOWELS)]
    lists: dict[str, list[str]] = {}
    for field, endings in ENDINGS.items():
        words = [f"{stem}{ending}".capitalize() for stem in stems for ending in endings]
        order = sorted((draw(), word) for word in words)
        lists[field] = [word for _, word in order[: ARCHIVES if field == "archive" else LIST_SIZE]]
    return lists
