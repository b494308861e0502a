"""The file formats but QMSum's: what a row of each means as an example."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from canaryjax.data.example import NOT_FOUND, Example
from canaryjax.data.prompts import ANSWER_PREFIX
from canaryjax.data.rows import Row, is_blank
from canaryjax.errors import UserError

_UNANSWERABLE = re.compile(r"unanswerable|not found|the answer is not found in the document", re.IGNORECASE)
# Soft hyphens, joiners and marks of direction: with or without them, a document is the same one.
_NO_WIDTH = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")


def clean_answer(answer: str) -> str:
    """An answer on one line, without ``FINAL:``, every marking of "unanswerable" as `NOT_FOUND`.

    >>> clean_answer("The answer is not found in the document.")
    'Not found'
    """
    line = one_line(answer).removeprefix(ANSWER_PREFIX).strip()
    return NOT_FOUND if _UNANSWERABLE.fullmatch(line.rstrip(".")) else line


def one_line(text: str) -> str:
    """A text with single blanks between its words: no line breaks, no non-breaking spaces."""
    return " ".join(text.split())


def as_seen(text: str) -> str:
    """What a reader can tell a text from another by: one line, letters composed, no characters of no width.

    >>> as_seen("cafe\\u0301\\u200b") == as_seen(" caf\\u00e9")
    True
    """
    return one_line(unicodedata.normalize("NFC", _NO_WIDTH.sub("", text)))


def jsonl_examples(rows: Iterable[Row]) -> Iterator[Example]:
    """Rows `document, question, answer`, with `id`, `group` and `document_id` optional.

    Without `document_id`, equal documents are the same document; without `group`, a document is its own group; without
    `id`, a question is named `{document_id}/{number}` by its place among its document's questions.
    """
    asked: Counter[str] = Counter()
    for row in rows:
        document = row.text("document")
        # Named by its text, so that a document that occurs twice cannot stand on two sides of a split.
        document_id = row.optional("document_id") or hashlib.blake2b(document.encode(), digest_size=8).hexdigest()
        # By document, so that rows added for other documents leave a question's name as it was.
        name = row.optional("id") or f"{document_id}/{asked[document_id]}"
        asked[document_id] += 1
        yield row_example(row, name, document_id, row.optional("group") or document_id, document)


def repliqa_examples(rows: Iterable[Row]) -> Iterator[Example]:
    """RepliQA: of its eight columns, `document_id, document_extracted, question_id, question, answer`.

    Both markings of unanswerable questions become `NOT_FOUND`: `UNANSWERABLE`, and the sentence that says so.
    """
    for row in rows:
        document_id = row.text("document_id")
        yield row_example(row, row.text("question_id"), document_id, document_id, row.text("document_extracted"))


def fairytale_examples(rows: Iterable[Row]) -> Iterator[Example]:
    """Story sections: `document_id, story, document, question_id, question, answer`; a story is a group."""
    for row in rows:
        yield row_example(
            row, row.text("question_id"), row.text("document_id"), row.text("story"), row.text("document")
        )


def row_example(row: Row, name: str, document_id: str, group: str, document: str) -> Example:
    """The example of a row that holds `question` and `answer`."""
    return Example(
        name, document_id, group, document.strip(), one_line(row.text("question")), row_answer(row), row.place
    )


def row_answer(row: Row) -> str:
    """The row's answer; UserError where nothing is left of it without ``FINAL:``."""
    answer = clean_answer(row.text("answer"))
    if is_blank(answer):
        raise UserError(f"{row.place}: expected words after {ANSWER_PREFIX} under 'answer', found none; fill it in")
    return answer


@dataclass(frozen=True)
class Reader:
    """A format: how its rows are read, and the columns that it cannot do without."""

    examples: Callable[[Iterable[Row]], Iterator[Example]]
    columns: tuple[str, ...]


READERS = {
    "jsonl": Reader(jsonl_examples, ("document", "question", "answer")),
    "repliqa": Reader(repliqa_examples, ("document_id", "document_extracted", "question_id", "question", "answer")),
    "fairytale": Reader(fairytale_examples, ("document_id", "story", "document", "question_id", "question", "answer")),
}
"""Reader by `data.kind`; QMSum's, which takes more of the config, is `canaryjax.data.qmsum`."""
