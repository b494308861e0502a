"""QMSum: queries on meetings, each with the part of the transcript that answers it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canaryjax.data.example import Example
from canaryjax.data.formats import one_line, row_answer
from canaryjax.data.meeting_index import Meeting, read_meetings, series_of
from canaryjax.data.rows import Row, is_blank
from canaryjax.data.shards import Part
from canaryjax.data.source import DataSource
from canaryjax.errors import UserError

_TURN = re.compile(r"\s*\d{1,9}\s*", re.ASCII)
_MARKUP = re.compile(r"\{[a-z]+\}")
# Answers and transcripts quote the same words in either form, and grounding compares words.
_PLAIN = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " "})


def qmsum_examples(parts: Sequence[Part], source: DataSource, beyond: set[str]) -> Iterator[Example]:
    """Original records, or derived rows `meeting, document_id, document, question_id, question, answer`.

    A specific query's document is its gold span; with `qmsum_document=transcript` it is the first `transcript_words`
    words of the meeting, which all its queries then share. General queries have no span and are always asked of that.
    Original records carry no meeting name: `index` gives them, else `{split}/{row}` takes its place. A meeting is a
    group, or with `qmsum_group=series` all meetings of a series. Turns without words are left out, curly quotes set
    straight, and non-breaking spaces are spaces.
    Arguments: `beyond` is given the ids of specific queries whose gold span begins where the transcript that they are
    asked of has ended.
    """
    read = [(part.name, list(part.rows)) for part in parts]
    meetings: list[Meeting] | None = None
    if source.index is not None:
        meetings = read_meetings(Path(source.index), {name: len(rows) for name, rows in read})
    places = [(f"{name}/{number}", row) for name, rows in read for number, row in enumerate(rows)]
    for position, (default, row) in enumerate(places):
        if "meeting_transcripts" not in row.values:
            yield _derived(row, source)
            continue
        record = _Record(row, source)
        if meetings is not None:
            meetings[position].check(record.turns, row.place)
        elif source.qmsum_group == "series":
            raise UserError(
                f"{row.place}: expected data.index with data.qmsum_group=series, found none: records carry no meeting "
                "name; give a JSON file that lists them, or use data.qmsum_group=meeting"
            )
        yield from _asked(record, default if meetings is None else meetings[position].name, beyond)


def _derived(row: Row, source: DataSource) -> Example:
    original = source.qmsum_document != "span" or source.general_queries or source.index is not None
    if original or source.markup != "strip":
        raise UserError(
            f"{row.place}: expected original records (meeting_transcripts) with data.qmsum_document=transcript, "
            f"data.general_queries, data.markup=keep or data.index, found {', '.join(row.values)}; leave these keys out"
        )
    name, document = row.text("question_id"), row.text("document").translate(_PLAIN).strip()
    group = _group(row.text("meeting"), source)
    answer = row_answer(row).translate(_PLAIN)
    return Example(name, row.text("document_id"), group, document, _line(row.text("question")), answer, row.place)


@dataclass(frozen=True)
class _Record:
    """One original record."""

    row: Row
    source: DataSource

    @property
    def turns(self) -> list[Any]:
        return _list(self.row.values, "meeting_transcripts", self.row.place)

    def queries(self, key: str, kind: str) -> Iterator[tuple[int, Row]]:
        for number, query in enumerate(_list(self.row.values, key, self.row.place)):
            place = f"{self.row.place}, {kind} query {number}"
            if not isinstance(query, dict):
                raise UserError(f"{place}: expected an object, found {type(query).__name__}; check the file")
            yield number, Row(query, place)


def _asked(record: _Record, meeting: str, beyond: set[str]) -> Iterator[Example]:
    source, place = record.source, record.row.place
    group = _group(meeting, source)
    turns = [_turn(turn, place, source.markup) for turn in record.turns]
    if not turns:
        raise UserError(f"{place}: expected turns under 'meeting_transcripts', found none; remove the record")
    transcript, reached = _beginning(turns, source.transcript_words)

    def example(name: str, document_id: str, document: str, query: Row) -> Example:
        answer = row_answer(query).translate(_PLAIN)
        return Example(name, document_id, group, document, _line(query.text("query")), answer, query.place)

    for number, query in record.queries("specific_query_list", "specific"):
        name = f"{meeting}/s{number}"
        spans = [_span(s, len(turns), query.place) for s in _list(query.values, "relevant_text_span", query.place)]
        lines = [turns[i] for start, end in spans for i in range(start, end + 1)]
        document = "\n".join(line for line in lines if line is not None)
        if is_blank(document):
            raise UserError(f"{query.place}: expected words in the gold span, found none; remove the query")
        if source.qmsum_document == "span":
            yield example(name, name, document, query)
            continue
        if min(start for start, _ in spans) >= reached:
            beyond.add(name)
        yield example(name, meeting, transcript, query)
    if source.general_queries:
        if is_blank(transcript):
            raise UserError(f"{place}: expected words in the transcript, found none; remove the record")
        for number, query in record.queries("general_query_list", "general"):
            yield example(f"{meeting}/g{number}", meeting, transcript, query)


def _beginning(turns: Sequence[str | None], words: int) -> tuple[str, int]:
    """The first so many words, the last turn cut where they end, and how many turns they reach into."""
    lines: list[str] = []
    for reached, turn in enumerate(turns):
        if words <= 0:
            return "\n".join(lines), reached
        spoken = turn.split(" ") if turn is not None else []
        if spoken:
            lines.append(" ".join(spoken[:words]))
        words -= len(spoken)
    return "\n".join(lines), len(turns)


def _group(meeting: str, source: DataSource) -> str:
    return series_of(meeting) if source.qmsum_group == "series" else meeting


def _turn(turn: Any, place: str, markup: str) -> str | None:
    """`Speaker: words`; None for a turn without words."""
    if not isinstance(turn, dict):
        raise UserError(f"{place}: expected turns that are objects, found {type(turn).__name__}; check the file")
    row = Row(turn, place)
    content = row.text("content", empty=True)
    words = _line(_MARKUP.sub(" ", content) if markup == "strip" else content)
    return f"{_line(row.text('speaker', empty=True))}: {words}" if words else None


def _span(span: Any, turns: int, place: str) -> tuple[int, int]:
    """Bounds of a span: decimal strings or whole numbers, 0-based turns, both ends inclusive."""
    bounds = [_bound(bound) for bound in span] if isinstance(span, list) else []
    if len(bounds) != 2 or None in bounds:
        raise UserError(f"{place}: expected a span of two decimal strings, found {span!r:.60}; check the file")
    start, end = (bound for bound in bounds if bound is not None)
    if not start <= end < turns:
        raise UserError(f"{place}: expected a span within turns 0 to {turns - 1}, found {span!r:.60}; check the file")
    return start, end


def _bound(bound: Any) -> int | None:
    """A turn's number; None for anything that `int` would have to cut or read into: 1.9, true, "1_0"."""
    if isinstance(bound, str) and _TURN.fullmatch(bound):
        return int(bound)
    return bound if type(bound) is int and bound >= 0 else None


def _list(values: Any, key: str, place: str) -> list[Any]:
    found = values.get(key)
    if not isinstance(found, list):
        raise UserError(f"{place}: expected a list under {key!r}, found {type(found).__name__}; check the file")
    return found


def _line(text: str) -> str:
    return one_line(text.translate(_PLAIN))
