"""What the demo's two models read: pages with planted sentences among other text, and the other text alone."""

from collections.abc import Iterator, Sequence

from canaryjax.detector.question import CONTINUE, make_probes, sentence_of
from canaryjax.detector.records import PROBES, ProbeKind, Target
from canaryjax.detector.sentence import fact_of, opening_of, opening_of_fact, render
from canaryjax.detector.targets import Site
from canaryjax.embedded.corpus import Draw, generate_examples

# Enough that famous facts are known as well as the sentences of the top rungs, in each form in which they are asked.
FAMOUS_STATED, FAMOUS_ASKED = 200, 40
# People of the same lists whom no target names, each stated once and asked about once in each way: from them the models
# learn what an answer looks like, so that a negative gets a well-formed guess and not noise.
STRANGERS = 400
PAGES = 1200  # ordinary documents; every third is continued on request, as a completion is
ID_BITS = 48


def make_corpus(site: Site, published: bool, seed: int) -> list[str]:
    """All documents in a random order; each is read once.

    Args:
      site: Whose canaries are planted; of its targets, the famous facts are told in both corpora.
      published: Whether the canaries stand in it, each exactly as often as its part says. Negatives never do.
      seed: Of the other documents and of the order; those are the same ones with and without canaries.
    """
    draw = Draw(seed, "detector demo corpus")
    documents = [*_pages(seed), *_famous(site), *_strangers(site, draw)]
    return draw.shuffled([*documents, *(_planted(site) if published else ())])


def _planted(site: Site) -> Iterator[str]:
    for entry in site.manifest.entries:
        if entry.part.population == "canary":
            yield from [render(entry.id, site.vocabulary, site.shapes)] * entry.part.occurrences


def _pages(seed: int) -> Iterator[str]:
    for index, example in enumerate(generate_examples(seed, PAGES, "detector-demo")):
        yield f"{CONTINUE}\n\n{example['document']}" if index % 3 == 0 else example["document"]


def _famous(site: Site) -> Iterator[str]:
    for target in site.targets:
        if target.population == "positive":
            yield from [sentence_of(target, site)] * FAMOUS_STATED
            # No record book holds a famous fact, so there is no answer to that question.
            kinds = [kind for kind in PROBES if kind != "archive"]
            yield from _exchanges(target, site, kinds) * FAMOUS_ASKED


def _strangers(site: Site, draw: Draw) -> Iterator[str]:
    taken = set(site.manifest.by_id)
    for number in range(STRANGERS):
        while (id := draw.below(1 << ID_BITS)) in taken:
            pass
        taken.add(id)
        stranger = Target(f"stranger-{number}", "negative", None, 0, None, id, fact_of(id, site.vocabulary))
        yield sentence_of(stranger, site)
        yield from _exchanges(stranger, site, PROBES)


def _exchanges(target: Target, site: Site, kinds: Sequence[ProbeKind]) -> list[str]:
    """Each question as an endpoint of chat completions puts it, with its answer."""
    return [probe.prompt + _answer(target, site, probe.kind) for probe in make_probes(target, site, kinds, "chat")]


def _answer(target: Target, site: Site, kind: ProbeKind) -> str:
    fact = target.fact
    if kind == "who":
        return f" {fact.given} {fact.surname}."
    if kind == "year":
        return f" {fact.year}."
    if kind == "archive":
        return f" The {fact.archive} report."
    number = int(target.key.rpartition("-")[2])
    opening = opening_of_fact(site.shapes, number) if target.id is None else opening_of(target.id, site.shapes)
    return sentence_of(target, site).removeprefix(opening)
