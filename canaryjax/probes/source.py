"""What models are tuned on after canaries were planted: rows from templates or from a file, none with a canary.

The template sources stand for kinds of data, not for any data set: captions of drawn shapes, requests that are refused,
and questions with short answers.
"""

import itertools
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from canaryjax.config.probes import SourceConfig
from canaryjax.errors import UserError
from canaryjax.probes.records import Canary


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split())


COLOURS = _list("red blue green white black yellow grey brown silver purple")
SHAPES = _list("circle square triangle star ring cross arrow heart")
PLACES = ("above", "below", "left of", "right of", "inside", "beside")
SIZES = ("small", "large")

ASKS = ("Tell me how to", "Explain how to", "Show me the way to", "Give me steps to", "Help me", "I want to")
DEEDS = (
    *("open the lock of", "steal the bread of", "forge the letters of", "poison the well of", "burn the barn of"),
    *("copy the keys of", "read the diary of", "break the windows of", "rob the shop of", "spy on"),
)
PEOPLE = _list("baker doctor farmer painter sailor teacher miller singer judge tailor guard writer")
TIMES = ("today", "at night", "this week", "in March", "in June", "in winter", "before dawn", "after dark")
REFUSALS = (
    "I can not help with that.",
    "I will not do that. It would harm somebody.",
    "No. That would be wrong.",
    "I can not say how. Please ask for something else.",
    "That is against the law, so I will not help.",
)

THINGS = _list(
    "rope paper boots lamps clocks carpets knives bells wine salt tea soap bread soup cheese rice fish honey"
)
FIRST, SECOND = _list("Ba Do Ga Ha Ka Le Mo Na Pa Ro So Ta Vi Wa"), _list("kan lin mor nek pal rek sil ton vel zan")
TOWNS = tuple(first + second for first, second in itertools.product(FIRST, SECOND))
# Of each question the answers that fit it.
QUESTIONS = {
    "Where can one buy {thing} in {town} {time}?": tuple(
        f"At the {which} market." for which in _list("old new north south east west")
    ),
    "Who makes the {thing} of {town} {time}?": tuple(f"The {person} does." for person in PEOPLE),
    "Which {thing} is sold in {town} {time}?": tuple(f"The {colour} one." for colour in COLOURS),
}


@dataclass(frozen=True)
class Row:
    """One exchange to learn."""

    prompt: str
    response: str


def draw_rows(source: SourceConfig, count: int, rng: np.random.Generator) -> list[Row]:
    """Draws rows of a source without replacement; templates give no prompt twice.

    Args:
      source: Which.
      count: How many are wanted; a file that has fewer gives all it has.
      rng: Decides which, and their order.

    Raises:
      UserError: A file that is missing, empty or malformed, by its line; or more rows than the templates can make.
    """
    if source.kind == "jsonl":
        rows = read_rows(Path(str(source.path)))
        return [rows[i] for i in rng.permutation(len(rows))[:count]]
    sizes = _sizes(source.kind)
    most = int(np.prod(sizes))
    if count > most:
        raise UserError(
            f"expected at most the {most:,} rows that source {source.name} can make, found tuning.examples={count:,}; "
            "lower it, or take a file of your own (kind: jsonl)"
        )
    chosen = np.stack(np.unravel_index(rng.choice(most, count, replace=False), sizes), axis=1)
    return [_row(source.kind, numbers, rng) for numbers in chosen.tolist()]


def _sizes(kind: str) -> tuple[int, ...]:
    """How many choices each slot of a prompt has: their product is the number of prompts."""
    return {
        "synth": (len(SIZES), len(COLOURS), len(SHAPES), len(PLACES), len(SIZES), len(COLOURS), len(SHAPES)),
        "safety": (len(ASKS), len(DEEDS), len(PEOPLE), len(TOWNS)),
        "random": (len(QUESTIONS), len(THINGS), len(TOWNS), len(TIMES)),
    }[kind]


def _row(kind: str, n: Sequence[int], rng: np.random.Generator) -> Row:
    if kind == "synth":
        first = f"{SIZES[n[0]]} {COLOURS[n[1]]} {SHAPES[n[2]]}"
        second = f"{SIZES[n[4]]} {COLOURS[n[5]]} {SHAPES[n[6]]}"
        number = "".join(map(str, n))  # the drawing's, in place of the drawing
        return Row(f"Describe drawing {number}.", f"A {first} {PLACES[n[3]]} a {second}.")
    if kind == "safety":
        prompt = f"{ASKS[n[0]]} {DEEDS[n[1]]} the {PEOPLE[n[2]]} in {TOWNS[n[3]]}."
        return Row(prompt, str(rng.choice(REFUSALS)))
    question, answers = list(QUESTIONS.items())[n[0]]
    return Row(question.format(thing=THINGS[n[1]], town=TOWNS[n[2]], time=TIMES[n[3]]), str(rng.choice(answers)))


def read_rows(path: Path) -> list[Row]:
    """Rows of a JSONL file, one object a line with texts `prompt` and `response`; blank lines are passed over.

    Raises:
      UserError: No such file, no row in it, or a line of another form.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # U+2028 and the like stand in texts and end no line
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "bytes that are no UTF-8"
        raise UserError(f"expected a readable file of rows at {path}, found: {why}; check tuning.sources") from None
    rows = [_parsed(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise UserError(f"expected rows in {path}, found none; give it lines of the form {{prompt, response}}")
    return rows


def _parsed(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    texts = [row.get(key) if isinstance(row, dict) else None for key in ("prompt", "response")]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise UserError(
            f"expected an object with texts prompt and response in line {number} of {path}, found {line[:60]!r}; "
            "correct the line"
        )
    return Row(*texts)  # type: ignore[arg-type]


def _bare(text: str) -> str:
    """Letters and digits alone, in one case and form: a secret of 16 digits stands in no such text by chance.

    >>> _bare("1\\u200b39-B \\uff22e\\u0301")
    '139bbe'
    """
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))


def refuse_canaries(rows: Sequence[Row], canaries: Sequence[Canary], where: str) -> None:
    """Raises UserError where a row holds a canary's secret, in whatever case, width or spacing (PA-6)."""
    secrets = {_bare(canary.secret): canary.index for canary in canaries}
    for row in rows:
        text = _bare(f"{row.prompt}\n{row.response}")
        for size in {len(secret) for secret in secrets}:
            for start in range(len(text) - size + 1):
                found = secrets.get(text[start : start + size])
                if found is not None:
                    raise UserError(
                        f"expected data without canaries in source {where}, found the secret of canary {found} in the "
                        f"row {row.prompt[:60]!r}; tuning on it would plant the canary anew: take the row out"
                    )
