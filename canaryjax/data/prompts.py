"""The two prompt templates, equal but for the document (seed, Appendix C.1)."""

from dataclasses import dataclass

ANSWER_PREFIX = "FINAL:"
"""What every answer begins with. No blank: the blank belongs to the next token in every vocabulary tried."""

_ROLE = "You are a question answering assistant.\n\n"
_FORM = (
    "Keep the answer concise. Do not provide explanation.\n\n"
    "Format your response exactly as:\n\n"
    "FINAL: <short answer>\n\n"
)  # fmt: skip
_WITH_DOCUMENT = (
    "Answer the question ONLY using the provided document.\n\n"
    "If the answer cannot be found in the document, say:\nFINAL: Not found\n\n"
)
_WITHOUT_DOCUMENT = (
    "Answer the question as accurately as possible.\n\n"
    "If the answer is unknown, say:\nFINAL: Not found\n\n"
)  # fmt: skip


@dataclass(frozen=True)
class PromptParts:
    """A prompt cut at its document, the only part that may be shortened; the prompt is the three joined."""

    before: str
    document: str
    after: str

    @property
    def text(self) -> str:
        """The whole prompt."""
        return self.before + self.document + self.after


def prompt_parts(document: str | None, query: str) -> PromptParts:
    """The paper's prompt for a query, with its document or (None) without one.

    The prompt ends in a newline after the query; the answer ``FINAL: ...`` follows directly.
    Source: Appendix C.1; the two templates differ only in what concerns the document.

    >>> prompt_parts("D", "Q?").after
    '\\n\\nQuestion:\\nQ?\\n'
    >>> prompt_parts(None, "Q?").document
    ''
    """
    if document is None:
        return PromptParts(_ROLE + _WITHOUT_DOCUMENT + _FORM, "", f"Question:\n{query}\n")
    return PromptParts(_ROLE + _WITH_DOCUMENT + _FORM + "Document:\n", document, f"\n\nQuestion:\n{query}\n")


def render_prompt(document: str | None, query: str) -> str:
    """The prompt as one string."""
    return prompt_parts(document, query).text


def answer_text(answer: str) -> str:
    """The response form of a reference answer.

    >>> answer_text("blue")
    'FINAL: blue'
    """
    return f"{ANSWER_PREFIX} {answer}"
