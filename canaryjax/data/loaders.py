"""From a data config to examples."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from canaryjax.data.example import Example
from canaryjax.data.formats import READERS
from canaryjax.errors import UserError
from canaryjax.keys import host_rng

EMBEDDED_DOCUMENTS = 800
"""How many invented documents are made where the config does not say; assumed."""

SPARE_DOCUMENTS = 4
"""How many times as many invented documents are made when a limit on their length leaves some out."""

MOST_MADE = 80_000
"""At most so many invented documents are made, a minute's work."""

ENOUGH_TO_TELL = 1000
"""When of so many invented documents none is short enough, none will be."""

Corpus = Callable[[int, int], list[dict[str, str]]]


class DataSource(Protocol):
    """The part of the config that says where examples come from; `canaryjax.config.schema.DataConfig` is one."""

    @property
    def kind(self) -> str:
        """`embedded`, or a key of `READERS`."""

    @property
    def path(self) -> str | None:
        """The file, for every kind but `embedded`."""

    @property
    def documents(self) -> int | None:
        """How many documents to use; None means all."""

    @property
    def max_document_words(self) -> int | None:
        """Documents with more words are left out; None means no limit."""

    @property
    def questions_per_document(self) -> int | None:
        """The first so many questions of each document; None means all."""


def load_examples(source: DataSource, seed: int = 0, corpus: Corpus | None = None) -> list[Example]:
    """The examples a config asks for, in file order.

    Arguments: `seed` draws the invented documents, or which of a file's documents are used when it holds more than
    `source.documents`; `corpus` makes the invented ones (`canaryjax.embedded.corpus.generate_examples`: the embedded
    model stands above the data layer, so it is passed in).
    Raises UserError for anything wrong in the file, naming file and line; for duplicate ids; for too few documents.
    """
    if source.kind == "embedded":
        if corpus is None:
            raise UserError(
                "data.kind=embedded: expected the corpus generator, found none; pass corpus=generate_examples"
            )
        wanted = source.documents or EMBEDDED_DOCUMENTS
        if source.max_document_words is None:
            return _unique(Example(**row) for row in corpus(seed, wanted))
        return _short_enough(source, seed, corpus, wanted, source.max_document_words)
    reader = READERS.get(source.kind)
    if reader is None:
        kinds = ", ".join(["embedded", *READERS])
        raise UserError(f"data.kind: expected one of {kinds}, found {source.kind!r}; choose one of them")
    if source.path is None:
        raise UserError(f"data.path: expected a file for data.kind={source.kind}, found none; give it")
    return _chosen(_unique(reader(source.path)), source, seed)


def _short_enough(source: DataSource, seed: int, corpus: Corpus, wanted: int, limit: int) -> list[Example]:
    """Invented documents within the limit: more are made while too few are, since they cost little."""
    made = wanted * SPARE_DOCUMENTS
    while True:
        examples = _unique(Example(**row) for row in corpus(seed, made))
        short = sum(len(e.document.split()) <= limit for e in examples)
        if short >= wanted:
            return _chosen(examples, source, seed)[:wanted]
        if made * SPARE_DOCUMENTS > MOST_MADE or (made >= ENOUGH_TO_TELL and not short):
            raise UserError(
                f"expected {wanted} invented documents of at most {limit} words, found {short} among {made}; raise "
                "data.max_document_words"
            )
        made *= SPARE_DOCUMENTS


def _unique(examples: Iterable[Example]) -> list[Example]:
    seen: dict[str, str] = {}
    texts: dict[str, str] = {}
    found = []
    for number, example in enumerate(examples, start=1):
        place = example.place or f"example {number}"
        if example.id in seen:
            raise UserError(
                f"{place}: expected a different id for each example, found {example.id!r} as in {seen[example.id]}; "
                "rename one"
            )
        if texts.setdefault(example.document_id, example.document) != example.document:
            raise UserError(f"{place}: expected one text for document {example.document_id!r}, found two; rename one")
        seen[example.id] = place
        found.append(example)
    if not found:
        raise UserError("expected at least one question about a document, found none; check data.kind and data.path")
    return found


def _chosen(examples: list[Example], source: Any, seed: int) -> list[Example]:
    limit = source.max_document_words
    if limit is not None:
        examples = [e for e in examples if len(e.document.split()) <= limit]
        if not examples:
            raise UserError(f"expected documents of at most {limit} words, found none; raise data.max_document_words")
    names = sorted({e.document_id for e in examples})
    if source.documents is not None:
        if len(names) < source.documents:
            raise UserError(
                f"expected {source.documents} documents, found {len(names)}; set data.documents={len(names)}, or null "
                "for all"
            )
        order = host_rng(seed, "documents used").permutation(len(names))[: source.documents]
        names = [names[i] for i in order]
    used, counts, chosen = set(names), dict.fromkeys(names, 0), []
    for example in examples:
        if example.document_id in used and counts[example.document_id] < (
            source.questions_per_document or len(examples)
        ):
            counts[example.document_id] += 1
            chosen.append(example)
    return chosen
