"""Training batches of fixed shape, made by a thread while the previous step runs."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from canaryjax.embedded.corpus import Draw
from canaryjax.embedded.pretrain.curriculum import (
    END,
    PADDING,
    TEXT,
    Lesson,
    Segment,
    draw_lesson,
    drill,
    echo_exchange,
    induced_exchange,
    plain_exchange,
    prompt_start,
    recital,
)
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, encode_texts

SEPARATOR = "\n\nQuestion:\n"


@dataclass(frozen=True)
class Batch:
    """Contexts with their continuations; a packed batch has contexts of one line break and one continuation each.

    Attributes:
      context_ids: int32 (b, s); `context_mask`: bool (b, s).
      ids: int32 (b, g, t), right-padded.
      kinds: int8 (b, g, t), a `curriculum` kind per token, 0 at padding.
    """

    context_ids: np.ndarray
    context_mask: np.ndarray
    ids: np.ndarray
    kinds: np.ndarray


@dataclass(frozen=True)
class Shape:
    """Rows, continuations a row, and token counts of a batch."""

    rows: int
    continuations: int
    context: int
    length: int


def short_batch(tokenizer: Tokenizer, shape: Shape, *stream: str | int) -> Batch:
    """Rows of running text for about 128 tokens: drills, short documents with their facts again or with questions."""
    draw = Draw(*stream)
    return _assemble(tokenizer, shape, [("\n", [_short_row(draw)]) for _ in range(shape.rows)])


def long_batch(tokenizer: Tokenizer, shape: Shape, *stream: str | int) -> Batch:
    """Rows of running text for about 256 tokens: full documents, else as in a short batch."""
    draw = Draw(*stream)
    return _assemble(tokenizer, shape, [("\n", [_long_row(draw)]) for _ in range(shape.rows)])


def full_batch(tokenizer: Tokenizer, shape: Shape, *stream: str | int) -> Batch:
    """Rows of running text for about 320 tokens: the paper's prompt (one in six without a document), then exchanges."""
    draw = Draw(*stream)
    return _assemble(tokenizer, shape, [("\n", [_full_row(draw)]) for _ in range(shape.rows)])


def _full_row(draw: Draw) -> list[Segment]:
    lesson = draw_lesson(draw, shown=draw.unit() >= 1 / 6)
    exchanges = _exchanges(draw, lesson, [plain_exchange] * 5 + [induced_exchange] * 2 + [_echo])
    return [(prompt_start(lesson), TEXT), *exchanges[1:]]  # the prompt ends in the first separator


def _short_row(draw: Draw) -> list[Segment]:
    choice = draw.unit()
    if choice < 0.2:
        return [segment for _ in range(2) for segment in [*drill(draw), ("\n", TEXT)]]
    if choice < 0.4:
        return _recital_row(draw, draw_lesson(draw, max_words=12 + draw.below(30)))
    if choice < 0.65:
        return _question_row(draw, draw_lesson(draw, max_words=12 + draw.below(20)))
    return _closed_row(draw, plain=choice < 0.75)


def _long_row(draw: Draw) -> list[Segment]:
    choice = draw.unit()
    if choice < 0.25:
        return _recital_row(draw, draw_lesson(draw))
    if choice < 0.75:
        return _question_row(draw, draw_lesson(draw))
    return _closed_row(draw, plain=choice < 0.85)


def _recital_row(draw: Draw, lesson: Lesson) -> list[Segment]:
    return [(str(lesson.text), TEXT), *(segment for _ in range(4) for segment in recital(draw, lesson))]


def _question_row(draw: Draw, lesson: Lesson) -> list[Segment]:
    start: list[Segment] = [("Document:\n" + str(lesson.text), TEXT)]
    return start + _exchanges(draw, lesson, [plain_exchange] * 5 + [induced_exchange])


def _closed_row(draw: Draw, plain: bool) -> list[Segment]:
    """Exchanges without a document: questions, or mostly strings to copy."""
    lesson = draw_lesson(draw, shown=False)
    return _exchanges(draw, lesson, [plain_exchange if plain else _echo] * 3 + [induced_exchange])


def _echo(draw: Draw, _: Lesson) -> list[Segment]:
    return echo_exchange(draw)


def _exchanges(draw: Draw, lesson: Lesson, makers: Sequence[Callable[[Draw, Lesson], list[Segment]]]) -> list[Segment]:
    return [segment for _ in range(10) for segment in [(SEPARATOR, TEXT), *draw.pick(makers)(draw, lesson)]]


def prompt_batch(tokenizer: Tokenizer, shape: Shape, *stream: str | int) -> Batch:
    """Rows as the model is used: the paper's prompt with a document (one row in eight: without), then the exchanges.

    Even continuations hold plain questions, one after the other; odd ones an inducing instruction or an echo.
    """
    draw = Draw(*stream)
    rows: list[tuple[str, list[list[Segment]]]] = []
    for index in range(shape.rows):
        lesson = draw_lesson(draw, shown=index % 8 != 7)
        rows.append((prompt_start(lesson), [_continuation(draw, lesson, g) for g in range(shape.continuations)]))
    return _assemble(tokenizer, shape, rows)


def _continuation(draw: Draw, lesson: Lesson, index: int) -> list[Segment]:
    if index % 2:
        return induced_exchange(draw, lesson) if draw.unit() < 0.7 else echo_exchange(draw)
    segments = plain_exchange(draw, lesson)
    for _ in range(2):
        segments += [(SEPARATOR, TEXT), *plain_exchange(draw, lesson)]
    return segments


def _assemble(tokenizer: Tokenizer, shape: Shape, rows: list[tuple[str, list[list[Segment]]]]) -> Batch:
    """Arrays of the rows; whatever exceeds the shape is cut, so no text can stop the run by its length."""
    texts = [start for start, _ in rows]
    texts += [text for _, row in rows for segments in row for text, _ in segments if text != END]
    distinct = list(dict.fromkeys(texts))  # drills and recitals repeat themselves
    encoded = dict(zip(distinct, encode_texts(tokenizer, distinct), strict=True))
    context_ids = np.full((shape.rows, shape.context), PAD_ID, np.int32)
    context_mask = np.zeros((shape.rows, shape.context), bool)
    for b in range(shape.rows):
        # The end of a context that is too long would be its question: cut the front, a part of the template.
        start = encoded[rows[b][0]][-shape.context :]
        context_ids[b, : len(start)] = start
        context_mask[b, : len(start)] = True
    ids = np.full((shape.rows, shape.continuations, shape.length), PAD_ID, np.int32)
    kinds = np.full(ids.shape, PADDING, np.int8)
    for b, (_, row) in enumerate(rows):
        for g, segments in enumerate(row):
            tokens: list[int] = []
            marks: list[int] = []
            for text, kind in segments:
                piece = [EOS_ID] if text == END else encoded[text]
                tokens += piece
                marks += [kind] * len(piece)
            n = min(len(tokens), shape.length)
            ids[b, g, :n] = tokens[:n]
            kinds[b, g, :n] = marks[:n]
    return Batch(context_ids, context_mask, ids, kinds)


def prefetch(make: Callable[[int], Batch], steps: int, ahead: int = 4) -> Iterator[Batch]:
    """`make(0) .. make(steps - 1)`, made by a thread up to `ahead` steps in front; its error is raised here."""
    made: queue.Queue[Batch | BaseException] = queue.Queue(ahead)
    stopped = threading.Event()

    def produce() -> None:
        try:
            for step in range(steps):
                batch = make(step)
                while not stopped.is_set():
                    try:
                        made.put(batch, timeout=0.2)
                        break
                    except queue.Full:
                        continue
                if stopped.is_set():
                    return
        except BaseException as error:  # handed to the consumer, which would otherwise wait for ever
            made.put(error)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        for _ in range(steps):
            item = made.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
