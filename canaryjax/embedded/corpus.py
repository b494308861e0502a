"""Invented documents with facts, questions and answers: the data the embedded model learns from and is audited on.

A document is 40 to 90 words about two or three invented entities; a question asks for one fact of one entity and its
answer stands in the document word for word; one question in five has no answer there. Names are drawn from about forty
thousand, so documents of different seeds do not meet.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from canaryjax.embedded.lexicon import FILLERS, FIRST_SYLLABLES, LATER_SYLLABLES, OPENERS, RELATIONS, VALUES, Relation
from canaryjax.errors import UserError
from canaryjax.keys import stream_id

T = TypeVar("T")

NOT_FOUND = "Not found"
UNANSWERABLE_SHARE = 0.2
MIN_WORDS = 40
MAX_WORDS = 90
FILLER_SHARE = 0.15  # sentences without a fact, so that a fact's position does not follow from its count


@dataclass(frozen=True)
class Fact:
    """One sentence of a document: an entity, what is said of it, and the value."""

    entity: str
    relation: Relation
    value: str
    sentence: str


@dataclass(frozen=True)
class Document:
    """A document's text, the kinds of its entities by name, and the facts in it."""

    text: str
    kinds: dict[str, str]
    facts: tuple[Fact, ...]


class Draw:
    """Draws that depend only on `random.Random.random()`, the one method whose values Python promises to keep."""

    def __init__(self, *stream: str | int) -> None:
        self._random = random.Random(stream_id(*stream)).random

    def unit(self) -> float:
        """Uniform in [0, 1)."""
        return self._random()

    def below(self, n: int) -> int:
        """Uniform over 0 .. n-1."""
        return int(self._random() * n)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[int(self._random() * len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in a random order, each order equally likely."""
        return [item for _, _, item in sorted((self._random(), i, item) for i, item in enumerate(items))]


def draw_name(draw: Draw) -> str:
    """An invented name of two or three syllables."""
    later = 1 + (draw.unit() < 0.6)
    return draw.pick(FIRST_SYLLABLES) + "".join(draw.pick(LATER_SYLLABLES) for _ in range(later))


def draw_value(draw: Draw, relation: Relation) -> str:
    """A value of the relation's kind."""
    if relation.value == "name":
        return draw_name(draw)
    if relation.value == "year":
        return str(1200 + draw.below(800))
    if relation.value == "count":
        return str(12 + draw.below(980))
    return draw.pick(VALUES[relation.value])


def draw_document(draw: Draw) -> Document:
    """A document of MIN_WORDS to MAX_WORDS words; no name occurs in two roles, so every question has one answer."""
    target = MIN_WORDS + draw.below(MAX_WORDS - MIN_WORDS + 1)
    seen: set[str] = set()
    kinds: dict[str, str] = {}
    # Entities of different kinds: which of two towns is meant takes a reader of this size far longer to learn.
    for kind in draw.shuffled(tuple(RELATIONS))[: 2 + (target > 65)]:
        kinds[_fresh_name(draw, seen)] = kind
    first = next(iter(kinds))
    sentences = [draw.pick(OPENERS[kinds[first]]).format(s=first)]
    fillers = draw.shuffled(FILLERS)
    facts: list[Fact] = []
    for entity, relation in _fact_order(draw, kinds):
        if fillers and draw.unit() < FILLER_SHARE and _words(sentences, fillers[-1]) <= target:
            sentences.append(fillers.pop())
        value = _fresh_name(draw, seen) if relation.value == "name" else draw_value(draw, relation)
        sentence = draw.pick(relation.sentences).format(s=entity, v=value)
        if _words(sentences, sentence) > target:
            break
        sentences.append(sentence)
        facts.append(Fact(entity, relation, value, sentence))
    while len(" ".join(sentences).split()) < MIN_WORDS:
        sentences.append(fillers.pop())
    return Document(" ".join(sentences), kinds, tuple(facts))


def _words(sentences: list[str], more: str) -> int:
    return len(" ".join([*sentences, more]).split())


def _fresh_name(draw: Draw, seen: set[str]) -> str:
    while (name := draw_name(draw)) in seen:
        pass
    seen.add(name)
    return name


def _fact_order(draw: Draw, kinds: dict[str, str]) -> list[tuple[str, Relation]]:
    """Facts of the entities in turn, so that each has some and the reader must look at the name as well."""
    queues = {entity: draw.shuffled(RELATIONS[kind]) for entity, kind in kinds.items()}
    order: list[tuple[str, Relation]] = []
    while any(queues.values()):
        entity = draw.pick([name for name, queue in queues.items() if queue])
        order.append((entity, queues[entity].pop()))
    return order


def draw_question(draw: Draw, document: Document, unanswerable: bool | None = None) -> tuple[str, str]:
    """(question, answer) on a document; `unanswerable` None means with probability UNANSWERABLE_SHARE.

    An unanswerable question asks, in equal parts, about a name that is not in the document and about a relation that
    the document states of none of its entities. The answer is then NOT_FOUND.
    """
    if unanswerable is None:
        unanswerable = draw.unit() < UNANSWERABLE_SHARE
    if not unanswerable:
        fact = draw.pick(document.facts)
        return draw.pick(fact.relation.questions).format(s=fact.entity), fact.value
    entity = draw.pick(tuple(document.kinds))
    kind = document.kinds[entity]
    stated = {fact.relation for fact in document.facts}
    missing = [relation for relation in RELATIONS[kind] if relation not in stated]
    if not missing or draw.unit() < 0.5:
        missing = list(RELATIONS[kind])
        entity = _fresh_name(draw, set(document.kinds) | {fact.value for fact in document.facts})
    return draw.pick(draw.pick(missing).questions).format(s=entity), NOT_FOUND


def guess_answer(draw: Draw, question: str) -> str:
    """A plausible answer to a question without its document: a fresh value of the right kind."""
    for relations in RELATIONS.values():
        for relation in relations:
            for form in relation.questions:
                before, after = form.split("{s}")
                if question.startswith(before) and question.endswith(after):
                    return draw_value(draw, relation)
    raise UserError(f"expected a question of the embedded corpus; found {question!r}; draw it with draw_question")


def generate_examples(seed: int, n: int, group_prefix: str = "embedded") -> list[dict[str, str]]:
    """`n` examples of the embedded corpus, one document each: example i is a fixed function of (seed, prefix, i).

    Each has `id, document_id, group, document, question, answer`; the answer carries no `FINAL:` and is "Not found" for
    one example in five. Documents of different seeds or prefixes are different draws.

    >>> generate_examples(seed=1, n=1)[0]["id"]
    'embedded-000000'
    """
    if n < 0:
        raise UserError(f"number of embedded examples: expected 0 or more; found {n}; raise it")
    examples = []
    for index in range(n):
        draw = Draw(seed, "embedded corpus", group_prefix, index)
        document = draw_document(draw)
        question, answer = draw_question(draw, document)
        name = f"{group_prefix}-{index:06d}"
        examples.append(
            {
                "id": name,
                "document_id": name,
                "group": name,
                "document": document.text,
                "question": question,
                "answer": answer,
            }
        )
    return examples
