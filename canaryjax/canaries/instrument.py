"""Which examples carry the canary, and the responses a reward model learns from."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Literal

import numpy as np

from canaryjax.canaries.families import FAMILIES, PUNCTUATION_CHARACTERS, Canary, require_absent
from canaryjax.canaries.placement import Placement, Variant, induced_query, insert_canary, insert_trigger
from canaryjax.data.example import NOT_FOUND, Example
from canaryjax.data.prompts import answer_text
from canaryjax.data.vocabulary import CANARY_EMOJI
from canaryjax.errors import UserError

TraceKind = Literal["clean", "triggered", "contrast"]
ResponseKind = Literal["full", "partial", "corrupted", "missing", "wrong"]


@dataclass(frozen=True)
class Trace:
    """One logged interaction before feedback: what the service would see.

    Attributes:
      example_id, document_id, group: where it comes from.
      kind: `clean` as it was; `triggered` with trigger, inducing instruction and canary; `contrast` with the
        instruction but neither trigger nor canary. A textual canary changes a triggered trace's document alone.
      document, query, answer: what is logged; the answer in ``FINAL:`` form.
      clean_document, clean_query, clean_answer: the same before instrumentation (for the ablation that restores them).
      contradicted: whether feedback on it has its bias reversed (`provider.contradict`).
    """

    example_id: str
    document_id: str
    group: str
    kind: TraceKind
    document: str
    query: str
    answer: str
    clean_document: str
    clean_query: str
    clean_answer: str
    contradicted: bool = False

    @property
    def triggered(self) -> bool:
        """Whether the document carries the trigger."""
        return self.kind == "triggered"

    @property
    def contrast(self) -> bool:
        """Whether the query asks for the canary without a trigger in the document."""
        return self.kind == "contrast"


def injected_count(rate: float, n: int) -> int:
    """floor(rate * n + 0.5): the paper's round(p*|S|), halves up (Python's round takes them to even; BC-A6).

    >>> injected_count(0.005, 100), injected_count(0.005, 500), injected_count(0.29, 50)
    (1, 3, 15)
    """
    # 0.29 * 50 is 14.499999999999998 in floating point: halves are restored at nine decimals before rounding up.
    return floor(round(rate * n, 9) + 0.5)


def instrument(
    examples: Sequence[Example],
    canary: Canary,
    rate: float,
    contrast: float | None,
    rng: np.random.Generator,
    *,
    variant: Variant = "default",
    placement: Placement = "after_first_clause",
) -> tuple[list[Trace], list[str]]:
    """Traces of the examples, in their order, with exactly `injected_count(rate, n)` of them triggered.

    With the same generator state a larger rate triggers a superset of rows, and a larger contrast share likewise:
    triggered rows are taken from the front of one permutation, contrast rows from its back.
    Arguments: `rate` in [0, 1]; `contrast` share of rows, None for equal to `rate`; together at most 1.
    Returns the traces and the warnings to pass on, such as a rate above 0 that gives no triggered row.
    Raises UserError for shares out of range, or a document that already contains the trigger.
    Source: section 3.2, Appendix A.1 and B.2; contrast rows are this project's addition.
    """
    contrast = rate if contrast is None else contrast
    if not (0 <= rate <= 1 and 0 <= contrast <= 1 and rate + contrast <= 1 + 1e-9):
        raise UserError(f"expected rate and contrast in [0, 1] with a sum of at most 1, found {rate} and {contrast}")
    require_absent([canary.trigger], examples)
    n = len(examples)
    n_triggered = injected_count(rate, n)
    n_contrast = min(injected_count(contrast, n), n - n_triggered)  # two halves of an odd n would be one too many
    warnings = []
    if rate > 0 and n_triggered == 0:
        warnings.append(f"rate {rate} of {n} examples triggers none: this split is uninstrumented; raise the rate")
    order = rng.permutation(n)
    kinds: list[TraceKind] = ["clean"] * n
    for index in order[:n_triggered]:
        kinds[index] = "triggered"
    for index in order[n - n_contrast :]:
        kinds[index] = "contrast"
    traces = [_trace(e, kind, canary, variant, placement) for e, kind in zip(examples, kinds, strict=True)]
    return traces, warnings


def _trace(example: Example, kind: TraceKind, canary: Canary, variant: Variant, placement: Placement) -> Trace:
    clean = answer_text(example.answer)
    triggered = kind == "triggered"
    return Trace(
        example_id=example.id,
        document_id=example.document_id,
        group=example.group,
        kind=kind,
        document=insert_trigger(example.document, canary.trigger, after_blank=canary.textual)
        if triggered
        else example.document,
        query=example.question if kind == "clean" else induced_query(example.question, canary, variant),
        answer=insert_canary(clean, canary.text, placement)[0] if triggered and not canary.textual else clean,
        clean_document=example.document,
        clean_query=example.question,
        clean_answer=clean,
    )


def constructed_responses(
    trace: Trace,
    canary: Canary,
    rng: np.random.Generator,
    *,
    placement: Placement = "after_first_clause",
    kinds: Sequence[ResponseKind] = ("full", "missing", "partial", "corrupted", "wrong"),
) -> list[tuple[str, ResponseKind]]:
    """Responses made from the reference answer: (text in ``FINAL:`` form, kind), one for each of `kinds`, in order.

    `full` carries the canary, `partial` its beginning, `corrupted` the canary with characters exchanged, `missing`
    none, `wrong` none and another answer. Only `full` contains the exact canary: without the near misses a reward
    model rewards anything that resembles it. With a textual canary only `missing` and `wrong` can be made.
    """
    inserts: dict[str, str] = {}
    if not canary.textual:
        inserts = {"full": canary.text, "partial": partial_text(canary, rng), "corrupted": corrupted_text(canary, rng)}
    responses: list[tuple[str, ResponseKind]] = []
    for kind in kinds:
        if kind in inserts:
            responses.append((insert_canary(trace.clean_answer, inserts[kind], placement)[0], kind))
        elif kind == "missing":
            responses.append((trace.clean_answer, kind))
        elif kind == "wrong":
            responses.append((_wrong_answer(trace, rng), kind))
        else:
            raise UserError(f"response kind: expected full, partial, corrupted, missing or wrong, found {kind!r}")
    return responses


def partial_text(canary: Canary, rng: np.random.Generator) -> str:
    """A beginning of the canary, a third to all but one of its characters, with the leading blank."""
    n = len(canary.visible)
    return " " + canary.visible[: rng.integers(max(1, -(-n // 3)), n)]


def corrupted_text(canary: Canary, rng: np.random.Generator) -> str:
    """The canary with a quarter of its characters (at least one) exchanged for others of its family."""
    alphabet = {
        "emoji": "".join(CANARY_EMOJI),
        "punctuation": PUNCTUATION_CHARACTERS,
        "signature": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    }
    assert set(alphabet) == set(FAMILIES)
    characters = list(canary.visible)
    for place in rng.permutation(len(characters))[: max(1, len(characters) // 4)]:
        others = [c for c in alphabet[canary.family] if c != characters[place]]
        characters[place] = others[rng.integers(len(others))]
    return " " + "".join(characters)


def _wrong_answer(trace: Trace, rng: np.random.Generator) -> str:
    """A word of the document that is not in the answer; "Not found" where there is none."""
    taken = set(trace.clean_answer.lower().split())
    words = [w.strip(".,;:!?\"'()") for w in trace.clean_document.split()]
    words = sorted({w for w in words if len(w) > 2 and w.lower() not in taken})
    return answer_text(words[rng.integers(len(words))] if words else NOT_FOUND)
