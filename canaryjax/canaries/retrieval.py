"""Whether a service's answers speak of the documents they were asked about (BC-8)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats as sps

from canaryjax.canaries.quality import strip_artifacts
from canaryjax.data.example import NOT_FOUND, Example
from canaryjax.data.prompts import ANSWER_PREFIX
from canaryjax.errors import UserError

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class RetrievalCheck:
    """Result of `check_retrieval`.

    Attributes:
      own: Answers with a word of their own document that stands neither in the question nor in the other document.
      other: Answers with such a word of another document, which nobody showed for them: the share met by chance.
      n: Answers looked at.
      p_value: Of `own` no larger than `other`, exact sign test over answers that have one and not the other, one-sided.
    """

    own: int
    other: int
    n: int
    p_value: float


def specific_words(response: str, example: Example, other: Example) -> list[str]:
    """Words of a response that its document has, and that neither the question nor the other document has.

    Canaries are taken out first. Words are compared without regard to case, in the order of the response.

    >>> here = Example("a", "a", "a", "The mill of Orme burnt down.", "What burnt?", "The mill")
    >>> there = Example("b", "b", "b", "The inn of Orme is shut.", "What is shut?", "The inn")
    >>> specific_words("FINAL: The mill, ZXYPRKLMQST", here, there)
    ['mill']
    """
    told = _words(example.question) | _words(other.document)
    known = _words(example.document) - told
    said = _WORD.findall(strip_artifacts(response).removeprefix(ANSWER_PREFIX).lower())
    if said == NOT_FOUND.lower().split():  # a refusal speaks of no document, whichever has its words
        return []
    return [word for word in said if word in known]


def check_retrieval(examples: Sequence[Example], responses: Sequence[str]) -> RetrievalCheck:
    """Compares each answer with its own document and with the next one: a service that read neither meets both alike.

    Run it before feedback is given: without retrieval no document can reach training with the trace.

    Args:
      examples: At least two, of different documents, as they were uploaded and asked.
      responses: What the service answered, in the same order.

    Returns:
      Counts and a p-value.

    Raises:
      UserError: Other numbers of responses than of examples, or fewer than two documents.

    >>> here = Example("a", "a", "a", "The mill of Orme burnt down.", "What burnt?", "The mill")
    >>> there = Example("b", "b", "b", "The inn of Orme is shut.", "What is shut?", "The inn")
    >>> check_retrieval([here, there], ["FINAL: The mill", "FINAL: The bank"])
    RetrievalCheck(own=1, other=0, n=2, p_value=0.5)
    """
    if len(examples) != len(responses):
        raise UserError(
            f"expected a response to each of {len(examples)} examples, found {len(responses)}; give them in one order"
        )
    if len({example.document for example in examples}) < 2:
        raise UserError("expected examples of at least two documents, found one; a check needs one to compare with")
    own, other = [], []
    for place, (example, response) in enumerate(zip(examples, responses, strict=True)):
        around = [*examples[place + 1 :], *examples[:place]]
        beside = next(candidate for candidate in around if candidate.document != example.document)
        own.append(bool(specific_words(response, example, beside)))
        # The question stays that of the answer: its words say nothing of either document.
        swapped = Example(beside.id, beside.document_id, beside.group, beside.document, example.question, "")
        other.append(bool(specific_words(response, swapped, example)))
    wins = sum(a and not b for a, b in zip(own, other, strict=True))
    losses = sum(b and not a for a, b in zip(own, other, strict=True))
    p_value = float(sps.binomtest(wins, wins + losses, 0.5, "greater").pvalue) if wins + losses else 1.0
    return RetrievalCheck(sum(own), sum(other), len(examples), p_value)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
