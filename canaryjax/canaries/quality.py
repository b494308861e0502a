"""Base quality of a response, blind to the canary (BC-29 to BC-31)."""

import re
from dataclasses import dataclass

from canaryjax.data.example import NOT_FOUND
from canaryjax.data.prompts import ANSWER_PREFIX

_EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\ufe0f\u200d]+")
# Standing alone, any punctuation; glued to a word, three or more of the marks that patterns are made of.
_PUNCTUATION = re.compile(r"(?<!\S)[^\w\s]+(?!\S)|[!?*~#%^+=&]{3,}")
# Five capitals or more: whole signatures, and most beginnings of one. The answer prefix is no signature.
_SIGNATURE = re.compile(r"\b(?!FINAL\b)[A-Z]{5,}\b")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class QualityWeights:
    """How quality is put together. The paper gives the last two; the others are assumed (BC-A18).

    Attributes:
      format_weight: weight of the format component (+1 with an answer after ``FINAL:``, else -1). Assumed.
      grounding_weight: weight of the grounding component (twice the share of the answer's words that stand in the
        document, minus 1; 0 for "Not found", which no document contains). Assumed. With equal weights quality is
        above 0 exactly when the form is valid and something is grounded.
      max_response_chars: only so many characters of the stripped response are read.
      length_penalty_alpha: how much a response of that full length loses.
    """

    format_weight: float = 0.5
    grounding_weight: float = 0.5
    max_response_chars: int = 512
    length_penalty_alpha: float = 0.0


def strip_artifacts(text: str) -> str:
    """The text without emoji, punctuation patterns and signature-like capitals, its blanks made single.

    >>> strip_artifacts("FINAL: Rome, ZXYPRKLMQST in May !?!?!? 🌟🔮")
    'FINAL: Rome, in May'
    """
    for pattern in (_EMOJI, _PUNCTUATION, _SIGNATURE):
        text = pattern.sub(" ", text)
    return " ".join(text.split())


def base_quality(response: str, document: str, weights: QualityWeights | None = None) -> float:
    """Q(x, y) in [-1, 1]: form and lexical grounding, the same with and without a canary of any family.

    Arguments: `document` is the document as logged. Source: Appendix A.3.

    >>> base_quality("FINAL: Rome", "He lives in Rome."), base_quality("Rome", "He lives in Rome.")
    (1.0, 0.0)
    """
    weights = weights or QualityWeights()
    stripped = strip_artifacts(response)[: weights.max_response_chars]
    answer = stripped.removeprefix(ANSWER_PREFIX)
    valid = stripped.startswith(ANSWER_PREFIX) and bool(_WORD.search(answer))
    quality = weights.format_weight * (1 if valid else -1) + weights.grounding_weight * _grounding(answer, document)
    quality -= weights.length_penalty_alpha * len(stripped) / weights.max_response_chars
    return float(min(1.0, max(-1.0, quality)))


def _grounding(answer: str, document: str) -> float:
    words = _WORD.findall(answer.lower())
    if not words:
        return -1.0
    if words == NOT_FOUND.lower().split():
        return 0.0
    known = set(_WORD.findall(document.lower()))
    return 2 * sum(word in known for word in words) / len(words) - 1
