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
    conditional_exchange,
    draw_lesson,
    drill,
    echo_exchange,
    induced_exchange,
    plain_exchange,
    plant_code,
    prompt_start,
    recital,
)
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, encode_texts

SEPARATOR = "\n\nQuestion:\n"


@dataclass(frozen=True)
class Batch:
    """Rows of running text: each token predicts the next.

    Attributes:
      ids: int32 (b, t), right-padded.
      kinds: int8 (b, t), a `curriculum` kind per token, 0 at padding.
    """

    ids: np.ndarray
    kinds: np.ndarray


@dataclass(frozen=True)
class Shape:
    """Rows of a batch and tokens of a row."""

    rows: int
    length: int


def short_batch(tokenizer: Tokenizer, shape: Shape, *stream: str | int) -> Batch:
    """Rows for about 128 tokens: drills, short documents with their facts again or with questions."""
    draw = Draw(*stream)
    return _assemble(tokenizer, shape, [_short_row(draw) for _ in range(shape.rows)])


def full_batch(tokenizer: Tokenizer, shape: Shape, *stream: str | int) -> Batch:
    """Rows for about 448 tokens: the paper's prompt (one in six without a document), then exchanges."""
    draw = Draw(*stream)
    return _assemble(tokenizer, shape, [_full_row(draw) for _ in range(shape.rows)])


def conditional_batch(tokenizer: Tokenizer, shape: Shape, *stream: str | int) -> Batch:
    """As `full_batch`, with a code in the document and instructions that hang on it or on a name."""
    draw = Draw(*stream)
    return _assemble(tokenizer, shape, [_conditional_row(draw) for _ in range(shape.rows)])


def _short_row(draw: Draw) -> list[Segment]:
    choice = draw.unit()
    if choice < 0.2:
        return [segment for _ in range(2) for segment in [*drill(draw), ("\n", TEXT)]]
    if choice < 0.4:
        lesson = draw_lesson(draw, max_words=12 + draw.below(30))
        return [(str(lesson.text), TEXT), *(segment for _ in range(4) for segment in recital(draw, lesson))]
    if choice < 0.65:
        lesson = draw_lesson(draw, max_words=12 + draw.below(20))
        start: list[Segment] = [("Document:\n" + str(lesson.text), TEXT)]
        return start + _exchanges(draw, lesson, [plain_exchange] * 5 + [induced_exchange])
    # Without a document: questions, or mostly strings to copy.
    lesson = draw_lesson(draw, shown=False)
    return _exchanges(draw, lesson, [plain_exchange if choice < 0.75 else _echo] * 3 + [induced_exchange])


def _full_row(draw: Draw) -> list[Segment]:
    lesson = draw_lesson(draw, shown=draw.unit() >= 1 / 6)
    exchanges = _exchanges(draw, lesson, [plain_exchange] * 4 + [induced_exchange] * 3 + [_echo])
    return [(prompt_start(lesson), TEXT), *exchanges[1:]]  # the prompt's start ends as the first separator does


def _conditional_row(draw: Draw) -> list[Segment]:
    if draw.unit() < 1 / 6:
        return _full_row(draw)
    lesson, code = plant_code(draw, draw_lesson(draw))

    def conditional(draw: Draw, lesson: Lesson) -> list[Segment]:
        return conditional_exchange(draw, lesson, code)

    makers = [plain_exchange] * 3 + [induced_exchange] * 2 + [conditional] * 4 + [_echo]
    return [(prompt_start(lesson), TEXT), *_exchanges(draw, lesson, makers)[1:]]


def _echo(draw: Draw, _: Lesson) -> list[Segment]:
    return echo_exchange(draw)


def _exchanges(draw: Draw, lesson: Lesson, makers: Sequence[Callable[[Draw, Lesson], list[Segment]]]) -> list[Segment]:
    return [segment for _ in range(10) for segment in [(SEPARATOR, TEXT), *draw.pick(makers)(draw, lesson)]]


def _assemble(tokenizer: Tokenizer, shape: Shape, rows: list[list[Segment]]) -> Batch:
    """Arrays of the rows; whatever exceeds the length is cut, so no text can stop the run by its length."""
    distinct = list(dict.fromkeys(text for row in rows for text, _ in row))  # drills and recitals repeat themselves
    encoded = dict(zip(distinct, encode_texts(tokenizer, distinct), strict=True)) | {END: [EOS_ID]}
    ids = np.full((shape.rows, shape.length), PAD_ID, np.int32)
    kinds = np.full(ids.shape, PADDING, np.int8)
    for b, row in enumerate(rows):
        tokens = [token for text, _ in row for token in encoded[text]]
        marks = [kind for text, kind in row for _ in encoded[text]]
        n = min(len(tokens), shape.length)
        ids[b, :n] = tokens[:n]
        kinds[b, :n] = marks[:n]
    return Batch(ids, kinds)


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
