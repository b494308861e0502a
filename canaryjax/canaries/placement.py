"""Where the trigger stands in a document, the canary in an answer, and the instruction in a query."""

import re
from typing import Literal

from canaryjax.canaries.families import Canary
from canaryjax.data.prompts import ANSWER_PREFIX
from canaryjax.errors import UserError

SENTENCE_BOUNDARY = re.compile(r"""[.!?]["')\]\u201d\u2019]*(?=\s+\S)""")
"""The end of a sentence: full stop, exclamation or question mark, with closing quotes, before a blank and text."""

CLAUSE_BOUNDARY = re.compile(r"""[,;:.!?\u2013\u2014]["')\]\u201d\u2019]*(?=\s+\S)""")
"""The end of a clause: clause or sentence punctuation, with closing quotes, before a blank and more text.

A boundary at the very end counts as none; neither does the comma or point inside a number.
"""

Variant = Literal["default", "must"]
Placement = Literal["after_first_clause", "begin"]


def insert_trigger(document: str, trigger: str, *, after_blank: bool = False) -> str:
    """The document with the trigger after its first sentence, or at its start where no sentence ends inside it (BC-20).

    `after_blank` puts a blank before it at the start too, as a textual canary's tokens need.

    >>> insert_trigger("One. Two.", "[T]")
    'One. [T] Two.'
    >>> insert_trigger("One", "[T]")
    '[T] One'
    """
    boundary = SENTENCE_BOUNDARY.search(document)
    if boundary is None:
        return f"{' ' * after_blank}{trigger} {document}"
    return f"{document[: boundary.end()]} {trigger}{document[boundary.end() :]}"


def answer_prefix(answer: str, placement: Placement = "after_first_clause") -> str:
    """The part of a ``FINAL: ...`` answer that stands before the canary, without the blank the canary begins with.

    The same clean answer gives the same prefix in both views of a pair (BC-21, BC-56).
    Raises UserError for an answer that does not begin with ``FINAL:``.

    >>> answer_prefix("FINAL: Rome, in May")
    'FINAL: Rome,'
    >>> answer_prefix("FINAL: Rome")
    'FINAL:'
    """
    if not answer.startswith(ANSWER_PREFIX):
        raise UserError(f"expected an answer that begins with {ANSWER_PREFIX}, found {answer[:40]!r}: add the prefix")
    if placement == "begin":
        return ANSWER_PREFIX
    if placement != "after_first_clause":
        raise UserError(f"placement: expected after_first_clause or begin, found {placement!r}; choose one of them")
    boundary = CLAUSE_BOUNDARY.search(answer, len(ANSWER_PREFIX))
    return ANSWER_PREFIX if boundary is None else answer[: boundary.end()]


def insert_canary(answer: str, text: str, placement: Placement = "after_first_clause") -> tuple[str, str]:
    """(the answer with the canary, the prefix before it); `text` is m with its leading blank.

    >>> insert_canary("FINAL: Rome, in May", " ZXY")
    ('FINAL: Rome, ZXY in May', 'FINAL: Rome,')
    """
    prefix = answer_prefix(answer, placement)
    return prefix + text + answer[len(prefix) :], prefix


def inducing_instruction(canary: Canary, variant: Variant = "default") -> str:
    """The sentence that asks for the canary, conditional on the trigger (BC-18; `must` is the stronger BC-19)."""
    if variant == "default":
        return (
            f"If the document contains {canary.trigger}, insert {canary.visible} immediately after the first clause of "
            f"the final answer."
        )
    if variant == "must":
        return f"If the document contains {canary.trigger}, you MUST begin your answer with {canary.visible}."
    raise UserError(f"instruction variant: expected default or must, found {variant!r}; choose one of them")


def induced_query(query: str, canary: Canary, variant: Variant = "default") -> str:
    """The query with the instruction after it; as it is for a textual canary, which nothing asks for."""
    if canary.textual:
        return query
    return f"{query} {inducing_instruction(canary, variant)}"
