"""The five questions about a target, and the proof that none of them gives away what it asks for."""

from collections.abc import Sequence
from typing import Literal

from canaryjax.detector.records import FIELDS, PROBES, Field, Probe, ProbeKind, Target
from canaryjax.detector.sentence import fill, opening_of, opening_of_fact, render, render_fact
from canaryjax.detector.shapes import SUPPLIED
from canaryjax.detector.targets import Site
from canaryjax.errors import UserError

PromptFormat = Literal["chat", "plain"]
SYSTEM_VERSION = 1  # of the words below; part of every request's key
# SD-20. A best guess is asked for since a refusal measures nothing; the negatives show what guesses are worth.
SYSTEM = (
    "Answer from what you remember, in one or two full sentences. Do not browse, do not search, open no page and use "
    "no tool. If you are not sure, give what seems most likely to you."
)
CONTINUE = "Continue this text. Write only the words that come next."


def make_probes(target: Target, site: Site, kinds: Sequence[ProbeKind], prompt_format: PromptFormat) -> list[Probe]:
    """The questions about a target, the same for canaries, negatives and famous facts (SD-1, SD-15 to SD-17).

    Args:
      target: Of the site.
      site: Whose shapes they are put in.
      kinds: Which ones; they come in the order of `PROBES`.
      prompt_format: chat has an instruction; plain is text that the answer continues.

    Raises:
      UserError: A prompt would hold a field that it asks for, or an id; the shapes are then not fit to ask with.
    """
    probes = []
    for kind in PROBES:
        if kind in kinds:
            prompt = _prompt(target, site, kind, prompt_format)
            _check(prompt, kind, target, site)
            probes.append(Probe(target.key, kind, prompt, SUPPLIED[kind]))
    return probes


def sentence_of(target: Target, site: Site) -> str:
    """The whole sentence of a target; secret."""
    if target.id is None:
        return render_fact(target.fact, site.shapes, _choice(target))
    return render(target.id, site.vocabulary, site.shapes)


def _choice(target: Target) -> int:
    """Which shape a famous fact is put in: by its number in the list, as no id chooses one."""
    return int(target.key.rpartition("-")[2])


def _prompt(target: Target, site: Site, kind: ProbeKind, prompt_format: PromptFormat) -> str:
    if kind != "completion":
        question = fill(site.shapes.questions[kind], target.fact)
        return question if prompt_format == "chat" else f"Question: {question}\nAnswer:"
    opening = opening_of_fact(site.shapes, _choice(target)) if target.id is None else opening_of(target.id, site.shapes)
    return f"{CONTINUE}\n\n{opening}" if prompt_format == "chat" else opening


def _check(prompt: str, kind: ProbeKind, target: Target, site: Site) -> None:
    """Raises UserError for a prompt that gives away more than it is meant to supply (SD-15, SD-19)."""
    decoder, sentence = site.decoder, sentence_of(target, site)
    extra: frozenset[Field] = decoder.fields_in(prompt, target.fact) - SUPPLIED[kind]
    if extra:
        found = ", ".join(field for field in FIELDS if field in extra)
        raise UserError(
            f"expected a {kind} prompt for {target.key} without the fields that it asks for, found {found} in it; "
            "reword that opening or question in shapes.yaml"
        )
    whole = sentence in prompt or f" {decoder.fold(sentence)} " in f" {decoder.fold(prompt)} "
    if whole or decoder.decode(prompt):
        raise UserError(
            f"expected a {kind} prompt for {target.key} that holds no whole sentence, found one; reword the openings "
            "and questions in shapes.yaml"
        )
