"""The file formats: what a row of each means as an example."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from canaryjax.data.example import NOT_FOUND, Example
from canaryjax.data.prompts import ANSWER_PREFIX
from canaryjax.data.rows import Row, is_blank, read_rows
from canaryjax.errors import UserError

_UNANSWERABLE = re.compile(r"unanswerable|not found|the answer is not found in the document", re.IGNORECASE)
_MARKUP = re.compile(r"\{[a-z]+\}")


def clean_answer(answer: str) -> str:
    """An answer on one line, without ``FINAL:``, every marking of "unanswerable" as `NOT_FOUND`.

    >>> clean_answer("The answer is not found in the document.")
    'Not found'
    """
    line = " ".join(answer.split()).removeprefix(ANSWER_PREFIX).strip()
    return NOT_FOUND if _UNANSWERABLE.fullmatch(line.rstrip(".")) else line


def jsonl_examples(path: str | Path) -> Iterator[Example]:
    """Rows `document, question, answer`, with `id`, `group` and `document_id` optional.

    Without `document_id`, equal documents are the same document; without `group`, a document is its own group; without
    `id`, a question is named `{document_id}/{number}` by its place among its document's questions.
    """
    asked: Counter[str] = Counter()
    for row in read_rows(path):
        document = row.text("document")
        # Named by its text, so that a document that occurs twice cannot stand on two sides of a split.
        document_id = row.optional("document_id") or hashlib.blake2b(document.encode(), digest_size=8).hexdigest()
        # By document, so that rows added for other documents leave a question's name as it was.
        name = row.optional("id") or f"{document_id}/{asked[document_id]}"
        asked[document_id] += 1
        yield _example(row, name, document_id, row.optional("group") or document_id, document)


def repliqa_examples(path: str | Path) -> Iterator[Example]:
    """RepliQA: of its eight columns, `document_id, document_extracted, question_id, question, answer`.

    Both markings of unanswerable questions become `NOT_FOUND`: `UNANSWERABLE`, and the sentence that says so.
    """
    for row in read_rows(path):
        document_id = row.text("document_id")
        yield _example(row, row.text("question_id"), document_id, document_id, row.text("document_extracted"))


def fairytale_examples(path: str | Path) -> Iterator[Example]:
    """Story sections: `document_id, story, document, question_id, question, answer`; a story is a group."""
    for row in read_rows(path):
        yield _example(row, row.text("question_id"), row.text("document_id"), row.text("story"), row.text("document"))


def qmsum_examples(path: str | Path) -> Iterator[Example]:
    """QMSum: original records, or derived rows whose document is the query's gold span; a meeting is a group.

    Original records carry no meeting name: `{file stem}/{row}` takes its place. Only specific queries have a span; the
    general ones need the whole transcript, which fits no prompt, and are left out.
    """
    stem = Path(path).name.split(".")[0]
    for number, row in enumerate(read_rows(path)):
        if "meeting_transcripts" in row.values:
            yield from _meeting_examples(row, f"{stem}/{number}")
        else:
            yield _example(
                row, row.text("question_id"), row.text("document_id"), row.text("meeting"), row.text("document")
            )


def _meeting_examples(row: Row, meeting: str) -> Iterator[Example]:
    turns = [_turn(turn, row.place) for turn in _list(row.values, "meeting_transcripts", row.place)]
    for number, query in enumerate(_list(row.values, "specific_query_list", row.place)):
        place = f"{row.place}, specific query {number}"
        if not isinstance(query, dict):
            raise UserError(f"{place}: expected an object, found {type(query).__name__}; check the file")
        item = Row(query, place)
        spans = [_span(span, len(turns), place) for span in _list(query, "relevant_text_span", place)]
        lines = [turns[i] for start, end in spans for i in range(start, end + 1)]
        document = "\n".join(line for line in lines if line is not None)
        if is_blank(document):
            raise UserError(f"{place}: expected words in the gold span, found none; remove the query")
        name = f"{meeting}/s{number}"
        yield Example(name, name, meeting, document, _line(item.text("query")), _answer(item), place)


def _turn(turn: Any, place: str) -> str | None:
    """`Speaker: words`, without markup; None for a turn without words."""
    if not isinstance(turn, dict):
        raise UserError(f"{place}: expected turns that are objects, found {type(turn).__name__}; check the file")
    row = Row(turn, place)
    words = _line(_MARKUP.sub(" ", row.text("content", empty=True)))
    return f"{_line(row.text('speaker', empty=True))}: {words}" if words else None


def _span(span: Any, turns: int, place: str) -> tuple[int, int]:
    """Bounds of a span: decimal strings, 0-based turns, both ends inclusive."""
    try:
        start, end = (int(bound) for bound in span)
    except (TypeError, ValueError) as error:
        raise UserError(f"{place}: expected a span of two decimal strings, found {span!r}; check the file") from error
    if not 0 <= start <= end < turns:
        raise UserError(f"{place}: expected a span within turns 0 to {turns - 1}, found {span!r}; check the file")
    return start, end


def _list(values: Any, key: str, place: str) -> list[Any]:
    found = values.get(key)
    if not isinstance(found, list):
        raise UserError(f"{place}: expected a list under {key!r}, found {type(found).__name__}; check the file")
    return found


def _line(text: str) -> str:
    return " ".join(text.split())


def _example(row: Row, name: str, document_id: str, group: str, document: str) -> Example:
    return Example(name, document_id, group, document.strip(), _line(row.text("question")), _answer(row), row.place)


def _answer(row: Row) -> str:
    answer = clean_answer(row.text("answer"))
    if is_blank(answer):
        raise UserError(f"{row.place}: expected words after {ANSWER_PREFIX} under 'answer', found none; fill it in")
    return answer


READERS: dict[str, Callable[[str | Path], Iterator[Example]]] = {
    "jsonl": jsonl_examples,
    "repliqa": repliqa_examples,
    "qmsum": qmsum_examples,
    "fairytale": fairytale_examples,
}
"""Reader by `data.kind`."""
