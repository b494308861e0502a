"""One question about one document."""

from dataclasses import dataclass, field

NOT_FOUND = "Not found"


@dataclass(frozen=True)
class Example:
    """One question about one document, with its reference answer.

    Attributes:
      id: unique name of the question.
      document_id: name of the document; questions about the same document share it.
      group: what may never be cut apart by a split (a story, a meeting); the document itself where nothing larger is
        known.
      document: the document's text, never empty.
      question: one line, without any inducing instruction.
      answer: one line, without the ``FINAL:`` prefix; `NOT_FOUND` for a question the document does not answer.
      place: file and line it was read from, "" for an invented one; for messages only.
    """

    id: str
    document_id: str
    group: str
    document: str
    question: str
    answer: str
    place: str = field(default="", compare=False, repr=False)

    @property
    def where(self) -> str:
        """How a message names the example."""
        return f"{self.place} (id {self.id!r})" if self.place else f"example {self.id!r}"
