"""From a data config to examples."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from canaryjax.data.example import Example
from canaryjax.data.formats import READERS, as_seen, one_line
from canaryjax.data.qmsum import qmsum_examples
from canaryjax.data.shards import read_parts
from canaryjax.data.source import DataSource
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


DUPLICATES = "duplicates_left_out"
"""Counts examples of the files left out because document, question and answer are those of one before."""

BEYOND_CUT = "spans_beyond_cut"
"""Counts specific queries on QMSum transcripts, of those asked, whose gold span begins behind the transcript's cut."""


@dataclass(frozen=True)
class Dataset:
    """Examples in file order, and counts of what a reader of them should know (`DUPLICATES`, `BEYOND_CUT`)."""

    examples: list[Example]
    counts: dict[str, int]


def load_examples(source: DataSource, seed: int = 0, corpus: Corpus | None = None) -> list[Example]:
    """The examples of `load_dataset`, without its counts."""
    return load_dataset(source, seed, corpus).examples


def load_dataset(source: DataSource, seed: int = 0, corpus: Corpus | None = None) -> Dataset:
    """The examples a config asks for, in file order.

    An example whose document, question and answer all repeat one before is left out and counted: its pair would count
    twice. A question asked again with another answer stays.

    Arguments: `seed` draws the invented documents, or which of a file's documents are used when it holds more than
    `source.documents`; `corpus` makes the invented ones (`canaryjax.embedded.corpus.generate_examples`: the embedded
    model stands above the data layer, so it is passed in).
    Raises UserError for anything wrong in the file, naming file and line; for duplicate ids; for one text in two
    groups, between which a split could leak; for too few documents.
    """
    counts: Counter[str] = Counter()
    if source.kind != "embedded":
        beyond: set[str] = set()
        examples = _chosen(_unique(_read(source, beyond), counts), source, seed)
        if source.kind == "qmsum" and source.qmsum_document == "transcript":
            counts[BEYOND_CUT] = sum(example.id in beyond for example in examples)
        return Dataset(examples, dict(counts))
    if corpus is None:
        raise UserError("data.kind=embedded: expected the corpus generator, found none; pass corpus=generate_examples")
    wanted = source.documents or EMBEDDED_DOCUMENTS
    if source.max_document_words is None:
        examples = _unique((Example(**row) for row in corpus(seed, wanted)), counts)
    else:
        examples = _short_enough(source, seed, corpus, wanted, source.max_document_words)
    return Dataset(examples, dict(counts))


def _read(source: DataSource, beyond: set[str]) -> Iterator[Example]:
    if source.kind == "qmsum":
        return qmsum_examples(read_parts(source, ()), source, beyond)
    if source.kind not in READERS:
        kinds = ", ".join(["embedded", "qmsum", *READERS])
        raise UserError(f"data.kind: expected one of {kinds}, found {source.kind!r}; choose one of them")
    reader = READERS[source.kind]
    return reader.examples(chain.from_iterable(part.rows for part in read_parts(source, reader.columns)))


def _short_enough(source: DataSource, seed: int, corpus: Corpus, wanted: int, limit: int) -> list[Example]:
    """Invented documents within the limit: more are made while too few are, since they cost little."""
    made = wanted * SPARE_DOCUMENTS
    while True:
        examples = _unique((Example(**row) for row in corpus(seed, made)), Counter())
        short = sum(len(e.document.split()) <= limit for e in examples)
        if short >= wanted:
            return _chosen(examples, source, seed)[:wanted]
        if made * SPARE_DOCUMENTS > MOST_MADE or (made >= ENOUGH_TO_TELL and not short):
            raise UserError(
                f"expected {wanted} invented documents of at most {limit} words, found {short} among {made}; raise "
                "data.max_document_words"
            )
        made *= SPARE_DOCUMENTS


def _unique(examples: Iterable[Example], counts: Counter[str]) -> list[Example]:
    """The examples without repeated ones; what one name or one text stands for must be one thing."""
    seen: dict[str, str] = {}
    texts: dict[str, str] = {}
    first: dict[str, Example] = {}  # by text, where it was met
    contents: set[tuple[str, str, str]] = set()
    found = []
    for number, example in enumerate(examples, start=1):
        place = example.place or f"example {number}"
        if texts.setdefault(example.document_id, example.document) != example.document:
            raise UserError(f"{place}: expected one text for document {example.document_id!r}, found two; rename one")
        before = first.setdefault(as_seen(example.document), example)
        if before.group != example.group:
            raise UserError(
                f"{place}: expected a document's text in one group, found that of {before.where} in group "
                f"{before.group!r} again in group {example.group!r}: a split could train on it and score on it; give "
                "both the same group, or remove one"
            )
        content = (one_line(example.document), example.question, example.answer)
        if content in contents:
            counts[DUPLICATES] += 1
            continue
        contents.add(content)
        if example.id in seen:
            raise UserError(
                f"{place}: expected a different id for each example, found {example.id!r} as in {seen[example.id]}; "
                "rename one"
            )
        seen[example.id] = place
        found.append(example)
    if not found:
        raise UserError("expected at least one question about a document, found none; check data.kind and data.path")
    return found


def _chosen(examples: list[Example], source: DataSource, seed: int) -> list[Example]:
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
