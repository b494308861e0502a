"""Held-out documents in two views, with and without the trigger, and the canary scored at the same spot in both."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from canaryjax.canaries.families import Canary, Placebo, require_absent
from canaryjax.canaries.placement import Placement, Variant, induced_query, insert_canary, insert_trigger
from canaryjax.canaries.textual import find_tokens
from canaryjax.data.chat import PromptFormat, format_parts
from canaryjax.data.example import Example
from canaryjax.data.prompts import answer_text, prompt_parts
from canaryjax.data.tokens import JointIds, JointText, TextTokenizer, encode_joint_batch
from canaryjax.errors import UserError

View = Literal["clean", "triggered"]
QueryMode = Literal["clean", "induced"]
TriggerKind = Literal["real", "decoy", "placebo_same_form", "placebo_other_form"]
VIEWS: tuple[View, ...] = ("clean", "triggered")
QUERY_MODES: tuple[QueryMode, ...] = ("clean", "induced")


@dataclass(frozen=True, eq=False)
class PairVariant:
    """One trigger and one string on one document: four contexts and the continuation to score after each.

    Attributes:
      trigger_kind, string_kind, string_id: which trigger and string; ids count from 0 within a kind.
      trigger, text: the strings themselves (`text` is m, with its leading blank).
      contexts: int32 ids by (view, query mode).
      continuation_ids: int32 (k,), the same after each of the four contexts.
      straddles: the continuation's first token also covers the end of the prefix.
    """

    trigger_kind: TriggerKind
    string_kind: Literal["real", "decoy"]
    string_id: int
    trigger: str
    text: str
    contexts: dict[tuple[View, QueryMode], np.ndarray]
    continuation_ids: np.ndarray
    straddles: bool


@dataclass(frozen=True, eq=False)
class EvalPair:
    """A held-out example in both views, for the real canary and for its decoys and placebos.

    Attributes:
      id, document_id, group: where it comes from; scores are clustered by `document_id` or `group`.
      query: the question, the same in both views (BC-55).
      document, answer, triggered_document, canary_answer: the two views' texts before any truncation.
      prefix: the answer up to the canary, the same in both views.
      real: ids for the planted trigger and string; `variants` those of decoys and placebos.
      dropped_document_tokens: how much of the document's tail no view has.
    """

    id: str
    document_id: str
    group: str
    query: str
    document: str
    answer: str
    triggered_document: str
    canary_answer: str
    prefix: str
    real: PairVariant
    variants: tuple[PairVariant, ...]
    dropped_document_tokens: int

    @property
    def contexts(self) -> dict[tuple[View, QueryMode], np.ndarray]:
        """Contexts of the real canary by (view, query mode)."""
        return self.real.contexts

    @property
    def continuation_ids(self) -> np.ndarray:
        """Ids of m."""
        return self.real.continuation_ids

    @property
    def straddles(self) -> bool:
        """Whether m's first token also covers the end of the prefix."""
        return self.real.straddles


@dataclass(frozen=True)
class PairCounts:
    """How many pairs were built, and why others were not: reason -> count, with one message for each reason."""

    built: int
    refused: dict[str, int]
    examples: dict[str, str]
    straddling: int


@dataclass(frozen=True)
class PairSettings:
    """How pairs are made: instruction, placement, prompt form, and tokens of context and continuation together."""

    variant: Variant = "default"
    placement: Placement = "after_first_clause"
    prompt_format: PromptFormat = "plain"
    max_tokens: int | None = None


def build_eval_pairs(
    examples: Sequence[Example],
    canary: Canary,
    tokenizer: TextTokenizer,
    settings: PairSettings | None = None,
    *,
    decoys: Sequence[Canary] = (),
    placebos: Sequence[Placebo] = (),
    control_pairs: int | None = None,
    training_documents: Collection[str] = (),
) -> tuple[list[EvalPair], PairCounts]:
    """The evaluation pairs of one policy.

    A decoy replaces trigger and string wherever they stand (document, query, continuation); a placebo replaces the
    trigger in the document alone. All variants of a pair, in both views and query modes, drop the same tail of the
    document.
    A textual canary is scored where a behavioural one would stand in the answer, and has the same tokens in the
    document; its two query modes are one.
    Arguments: `control_pairs` limits decoys and placebos to the first so many pairs; `training_documents` are ids
    that no pair may have.
    Returns the pairs and the counts. A pair whose canary ids differ between contexts, or that does not fit, is
    refused and counted. Raises UserError when an id occurs twice, a document was trained on, a document already holds
    a trigger, or no pair is left. Source: Appendix A.2 and C.3.
    """
    settings = settings or PairSettings()
    check_eval_pool(examples, training_documents)
    require_absent([canary.trigger, *(d.trigger for d in decoys), *(p.trigger for p in placebos)], examples)
    pairs: list[EvalPair] = []
    refused: Counter[str] = Counter()
    messages: dict[str, str] = {}
    for example in examples:
        controls = control_pairs is None or len(pairs) < control_pairs
        planned = [("real", 0, canary.trigger, canary)]
        if controls:
            planned += [("decoy", i, decoy.trigger, decoy) for i, decoy in enumerate(decoys)]
            planned += [(f"placebo_{p.kind}", i, p.trigger, canary) for i, p in _numbered(placebos)]
        try:
            pairs.append(_build_pair(example, planned, tokenizer, settings))
        except _Refused as refusal:
            refused[refusal.reason] += 1
            messages.setdefault(refusal.reason, str(refusal))
    if not pairs:
        raise UserError(f"expected at least one evaluation pair, found none; {_remedy(refused, messages)}")
    straddling = sum(pair.straddles for pair in pairs)
    return pairs, PairCounts(len(pairs), dict(refused), messages, straddling)


def _remedy(refused: Mapping[str, int], messages: Mapping[str, str]) -> str:
    """What was refused, and what to do about the most frequent reason."""
    if not refused:
        return "give more documents, or raise data.eval_share"
    reason = max(refused, key=lambda name: refused[name])
    remedies = {
        "does_not_fit": "raise policy.max_prompt_length or policy.max_completion_length, which make the limit together",
        "tails_differ": "raise policy.max_prompt_length, so that documents are not cut, or lower "
        "data.max_document_words",
        "string_ids_differ": "take another study.seed, or a base model with another tokenizer",
    }
    remedy = remedies.get(reason, "take another canary.family")
    return f"{remedy}: {refused[reason]} of {sum(refused.values())} were refused, such as {messages[reason]}"


def check_eval_pool(examples: Sequence[Example], training_documents: Collection[str]) -> None:
    """Raises UserError when an id occurs twice or a document was trained on (BC-54)."""
    twice = [name for name, count in Counter(e.id for e in examples).items() if count > 1]
    if twice:
        raise UserError(f"expected each evaluation id once, found {twice[0]!r} twice; remove one")
    trained = sorted({e.document_id for e in examples} & set(training_documents))
    if trained:
        raise UserError(f"expected evaluation documents apart from training documents, found {trained[0]!r} in both")


class _Refused(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _numbered(placebos: Sequence[Placebo]) -> Iterator[tuple[int, Placebo]]:
    counts: Counter[str] = Counter()
    for placebo in placebos:
        yield counts[placebo.kind], placebo
        counts[placebo.kind] += 1


def _build_pair(example: Example, planned: list, tokenizer: TextTokenizer, settings: PairSettings) -> EvalPair:
    answer = answer_text(example.answer)
    real = planned[0][3]
    canary_answer, prefix = insert_canary(answer, real.text, settings.placement)
    joints: list[JointText] = []
    places: dict[JointText, int] = {}
    cells: list[dict[tuple[View, QueryMode], int]] = []
    for _, _, trigger, drawn in planned:
        cell = {}
        for key, joint in _joints(example, trigger, drawn, prefix, tokenizer, settings):
            if joint not in places:  # a placebo's clean view is the real one's: encoded once
                places[joint] = len(joints)
                joints.append(joint)
            cell[key] = places[joint]
        cells.append(cell)
    try:
        encoded = encode_joint_batch(tokenizer, joints, settings.max_tokens)
    except UserError as error:
        raise _Refused("does_not_fit", f"{example.id}: {error}") from error
    if len({joint.dropped_characters for joint in encoded}) > 1:
        raise _Refused("tails_differ", f"{example.id}: the document's tail is tokenised differently in its views")
    variants = [
        _variant(example, plan, {key: encoded[i] for key, i in cell.items()})
        for plan, cell in zip(planned, cells, strict=True)
    ]
    return EvalPair(
        id=example.id,
        document_id=example.document_id,
        group=example.group,
        query=example.question,
        document=example.document,
        answer=answer,
        triggered_document=insert_trigger(example.document, real.trigger, after_blank=real.textual),
        canary_answer=canary_answer,
        prefix=prefix,
        real=variants[0],
        variants=tuple(variants[1:]),
        dropped_document_tokens=encoded[0].dropped_document_tokens,
    )


def _joints(
    example: Example, trigger: str, drawn: Canary, prefix: str, tokenizer: TextTokenizer, settings: PairSettings
) -> Iterator[tuple[tuple[View, QueryMode], JointText]]:
    """The four texts of a variant; the prefix is the clean answer's in all of them."""
    triggered = insert_trigger(example.document, trigger, after_blank=drawn.textual)
    documents = {"clean": example.document, "triggered": triggered}
    queries = {"clean": example.question, "induced": induced_query(example.question, drawn, settings.variant)}
    for view in VIEWS:
        for mode in QUERY_MODES:
            parts = format_parts(prompt_parts(documents[view], queries[mode]), tokenizer, settings.prompt_format)
            yield (view, mode), JointText(parts, prefix, drawn.text, trigger if view == "triggered" else "")


def _variant(example: Example, plan: tuple, encoded: dict[tuple[View, QueryMode], JointIds]) -> PairVariant:
    kind, number, trigger, drawn = plan
    first = encoded["clean", "clean"]
    for joint in encoded.values():
        if not np.array_equal(joint.continuation_ids, first.continuation_ids):
            raise _Refused("canary_ids_differ", f"{example.id}: {drawn.text!r} has other tokens in another context")
    if drawn.textual and find_tokens(encoded["triggered", "clean"].context_ids, first.continuation_ids) is None:
        raise _Refused("string_ids_differ", f"{example.id}: {drawn.text!r} has other tokens in the document")
    return PairVariant(
        trigger_kind=kind,
        string_kind="decoy" if kind == "decoy" else "real",
        string_id=number,
        trigger=trigger,
        text=drawn.text,
        contexts={key: joint.context_ids for key, joint in encoded.items()},
        continuation_ids=first.continuation_ids,
        straddles=first.straddles,
    )
