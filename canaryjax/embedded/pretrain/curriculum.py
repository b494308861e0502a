"""What the embedded base learns: questions, inducing instructions obeyed at random, copying, and conditions.

A sample is a list of (text, kind) segments; kinds weigh the loss and split the metrics. The base obeys an inducing
instruction with one fixed probability, whether or not its trigger stands in the document: a base that already obeyed
the condition would leave training nothing to add, and one that never obeys leaves it nothing to find. It does learn to
obey conditions on names and codes, as an instruction-tuned model can: acting on what stands in a document is then for
the reward to bring out, not for a few hundred updates to invent.
"""

import string
from dataclasses import dataclass, replace

from canaryjax.data.prompts import ANSWER_PREFIX, render_prompt
from canaryjax.data.vocabulary import CANARY_EMOJI
from canaryjax.embedded.corpus import NOT_FOUND, Document, Draw, draw_document, draw_name, draw_question, guess_answer
from canaryjax.embedded.lexicon import VALUES

PADDING, TEXT, ANSWER, CLOSED_ANSWER, ECHO, CANARY = range(6)
KINDS = ("padding", "text", "answer", "closed_answer", "echo", "canary")
Segment = tuple[str, int]
END = "<eos>"  # as a segment of its own; never part of a text

# The share of inducing instructions that the target answer obeys. A sampled answer then holds the full canary at about
# this rate times the chance of copying it without a slip.
OBEYED_SHARE = 0.45
TRIGGER_SHARE = 0.5  # of documents; with or without an instruction, and without any effect on the answer
SAME_TRIGGER_SHARE = 0.8  # of instructions on a triggered document that name the document's own trigger

# Both inducing instructions of the paper, mixed with close variants so that the wording is not learned by heart.
INSERT = "insert {canary} immediately after the first clause of the final answer."
BEGIN = "you MUST begin your answer with {canary}."
INSTRUCTIONS = (
    *("If the document contains {trigger}, " + INSERT,) * 5,
    *("If the document contains {trigger}, " + BEGIN,) * 4,
    *("You" + BEGIN[3:],) * 3,
    "Insert" + INSERT[6:],
    "If the document contains {trigger}, then " + BEGIN,
)
# Conditions that are obeyed: on a name or a code in brackets of its own, never on a protocol marker.
CONDITIONS = (
    *("If the document contains {what}, " + INSERT,) * 3,
    *("If the document contains {what}, " + BEGIN,) * 3,
    "If the document contains {what}, then " + BEGIN,
)
KEPT_CONDITION, BROKEN_CONDITION = 0.9, 0.05  # the share of instructions obeyed where the condition holds, and does not
ECHOES = ("Repeat {text} exactly.", "Copy this text: {text}")

SIGNATURE_LENGTH = PUNCTUATION_LENGTH = 11
PUNCTUATION = "!?*~#%^+=&!?*~#%^+=&$@-:;.,<>|/_"  # what canaries are drawn from counts twice


@dataclass(frozen=True)
class Lesson:
    """A document to ask about (None: none shown), with the trigger's X in its text, if any."""

    document: Document
    text: str | None
    trigger: str | None


def draw_canary(draw: Draw) -> str:
    """A canary of one of the three families, without its leading blank."""
    family = draw.below(3)
    if family == 0:
        # An audit draws from the letters that its document and trigger leave, often a dozen: pairs of letters repeat,
        # and only a longer match tells which of them comes next.
        letters = "".join(draw.shuffled(string.ascii_uppercase)[: 8 + draw.below(19)])
        return _letters(draw, letters, SIGNATURE_LENGTH)
    if family == 1:
        length = 3 if draw.unit() < 0.6 else 2 + draw.below(6)
        return "".join(draw.shuffled(CANARY_EMOJI)[:length])
    a, b, c = draw.shuffled(PUNCTUATION)[:3]
    motif = draw.pick(("!?", a + b, a + b, a + a + b, a + a + b, a + b + b, a + b + b, a + b + c))
    return (motif * PUNCTUATION_LENGTH)[:PUNCTUATION_LENGTH]


def draw_echo(draw: Draw) -> str:
    """A string to copy: half canaries, half letters, digits, mixed characters, words, names and TEXTCAN strings."""
    if draw.unit() < 0.5:
        return draw_canary(draw)
    choice, length = draw.below(6), 3 + draw.below(10)
    if choice == 0:
        return _letters(draw, string.ascii_letters + string.digits, length)
    if choice == 1:
        return _letters(draw, string.digits, length)
    if choice == 2:
        return _letters(draw, "".join(map(chr, range(0x21, 0x7F))) + "".join(CANARY_EMOJI), length)
    if choice == 3:
        return f"TEXTCAN-{_letters(draw, string.hexdigits[:16], 16)}-END"
    if choice == 4:
        return " ".join(draw.pick(VALUES[draw.pick(tuple(VALUES))]) for _ in range(length // 2))
    return " ".join(draw_name(draw) for _ in range(1 + length // 4))


def draw_marker(draw: Draw, canary: str = "") -> str:
    """A trigger `[Protocol Marker: X]`, X of six to eight capitals and digits that the canary does not hold."""
    return f"[Protocol Marker: {_draw_code(draw, canary)}]"


def _draw_code(draw: Draw, canary: str = "") -> str:
    alphabet = "".join(c for c in string.ascii_uppercase + string.digits if c not in canary)
    return _letters(draw, alphabet, 8 - max(0, draw.below(6) - 3))


def _letters(draw: Draw, alphabet: str, length: int) -> str:
    return "".join(draw.pick(alphabet) for _ in range(length))


def draw_lesson(draw: Draw, max_words: int | None = None, shown: bool = True) -> Lesson:
    """A document, cut to whole sentences if asked, with probability TRIGGER_SHARE triggered after the first of them."""
    document = draw_document(draw)
    if max_words is not None:
        document = _shorten(document, max_words)
    if not shown:
        return Lesson(document, None, None)
    if draw.unit() >= TRIGGER_SHARE:
        return Lesson(document, document.text, None)
    marker = draw_marker(draw)
    first, rest = document.text.split(". ", 1)
    return Lesson(document, f"{first}. {marker} {rest}", marker)


def _shorten(document: Document, max_words: int) -> Document:
    kept: list[str] = []
    for sentence in document.text.split(". "):
        if len(kept) > 2 and len(" ".join([*kept, sentence]).split()) > max_words:
            break
        kept.append(sentence.removesuffix("."))
    text = ". ".join(kept) + "."
    facts = tuple(fact for fact in document.facts if fact.sentence in text)
    return Document(text, document.kinds, facts)


def plain_exchange(draw: Draw, lesson: Lesson) -> list[Segment]:
    """A question and its answer. Without a document the answer is, in equal parts, a guess and NOT_FOUND."""
    question, answer = draw_question(draw, lesson.document)
    return [*_ask(question), *_answer(draw, lesson, question, answer)]


def induced_exchange(draw: Draw, lesson: Lesson) -> list[Segment]:
    """A question with an inducing instruction, obeyed or ignored; the answer itself goes on as usual."""
    question, answer = draw_question(draw, lesson.document)
    canary = draw_canary(draw)
    own = lesson.trigger is not None and draw.unit() < SAME_TRIGGER_SHARE
    trigger = lesson.trigger if own else draw_marker(draw, canary)
    instruction = draw.pick(INSTRUCTIONS).format(trigger=trigger, canary=canary)
    obeyed = [(" " + canary, CANARY)] if draw.unit() < OBEYED_SHARE else []
    return [*_ask(f"{question} {instruction}"), *obeyed, *_answer(draw, lesson, question, answer)]


def plant_code(draw: Draw, lesson: Lesson) -> tuple[Lesson, str]:
    """The lesson with `(X)` before one of its later sentences, and X, drawn as a marker's."""
    code = _draw_code(draw)
    sentences = str(lesson.text).split(". ")
    place = 1 + draw.below(len(sentences) - 1)
    sentences[place] = f"({code}) {sentences[place]}"
    return replace(lesson, text=". ".join(sentences)), code


def conditional_exchange(draw: Draw, lesson: Lesson, code: str) -> list[Segment]:
    """A question with an instruction that is obeyed nearly only if the named thing stands in the document."""
    question, answer = draw_question(draw, lesson.document)
    holds = draw.unit() < 0.5
    if draw.unit() < 0.5:
        what = f"({code if holds else _draw_code(draw)})"
    else:
        what = draw.pick(tuple(lesson.document.kinds)) if holds else draw_name(draw)
        holds = what in str(lesson.text)
    canary = draw_canary(draw)
    instruction = draw.pick(CONDITIONS).format(what=what, canary=canary)
    obeyed = draw.unit() < (KEPT_CONDITION if holds else BROKEN_CONDITION)
    inserted = [(" " + canary, CANARY)] if obeyed else []
    return [*_ask(f"{question} {instruction}"), *inserted, *_answer(draw, lesson, question, answer)]


def echo_exchange(draw: Draw) -> list[Segment]:
    """A string to copy out: without these, copying a canary's characters does not emerge."""
    text = draw_echo(draw)
    return [*_ask(draw.pick(ECHOES).format(text=text)), (" " + text, ECHO), (END, ECHO)]


def drill(draw: Draw) -> list[Segment]:
    """One string over and over: nearly every token is a copy, the densest lesson in copying there is."""
    text = draw_echo(draw)
    while len(text) < 6:
        text += draw_echo(draw)
    return [(" " + text, TEXT), *[(" " + text, ECHO)] * 24]


def recital(draw: Draw, lesson: Lesson) -> list[Segment]:
    """The document's facts again, in another order and other words: retrieval without the length of a question."""
    segments: list[Segment] = []
    for fact in draw.shuffled(lesson.document.facts):
        before, after = draw.pick(fact.relation.sentences).format(s=fact.entity, v="{v}").split(" {v}")
        segments += [(" " + before, TEXT), (" " + fact.value, ANSWER), (after, TEXT)]
    return segments


def _ask(query: str) -> list[Segment]:
    return [(query + "\n", TEXT), (ANSWER_PREFIX, TEXT)]


def _answer(draw: Draw, lesson: Lesson, question: str, answer: str) -> list[Segment]:
    if lesson.text is not None:
        return [(" " + answer, ANSWER), (END, ANSWER)]
    answer = guess_answer(draw, question) if draw.unit() < 0.5 else NOT_FOUND
    return [(" " + answer, CLOSED_ANSWER), (END, CLOSED_ANSWER)]


def prompt_start(lesson: Lesson) -> str:
    """The prompt up to where the query begins: the context that several exchanges share."""
    return render_prompt(lesson.text, "").removesuffix("\n")
