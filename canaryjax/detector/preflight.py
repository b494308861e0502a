"""What a model can do, proved by asking it before anything secret is sent."""

import dataclasses
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from canaryjax.detector.api import ApiBackend, Dialect
from canaryjax.detector.echo import KNOWN_TEXT
from canaryjax.detector.records import Backend, Failure, Reply, Request
from canaryjax.detector.trouble import NoSuchModel
from canaryjax.errors import UserError

SYSTEM = "Answer from memory, in one short sentence. Do not browse or search."
QUESTIONS = ("What is the capital of France?", "Name a month of the year.", "The sun rises in the")
MOST_TOKENS = 16
SHOWN = 3  # names that may have been meant
DIALECTS = tuple(
    Dialect(length, system, seed)
    for system in (True, False)
    for length in ("max_tokens", "max_completion_tokens")
    for seed in (True, False)
)  # in the order in which they are tried


@dataclass(frozen=True)
class Capabilities:
    """What a backend proved.

    Attributes:
      model_name: As the backend calls it.
      logprobs: It gives log-probs of whole texts.
      reason: Why not; None where it does.
      repeatable: Two answers at temperature 0 were the same.
      system_role: It takes a system message; else the system prompt stands above the question.
      seeded: It takes a seed.
    """

    model_name: str
    logprobs: bool
    reason: str | None
    repeatable: bool
    system_role: bool
    seeded: bool

    def plain(self) -> dict[str, Any]:
        """As a report keeps it."""
        return dataclasses.asdict(self)


def examine(backend: Backend) -> Capabilities:
    """Asks a few harmless questions; an endpoint is also asked how it wants to be asked.

    Raises:
      UserError: Endpoint not reached, key or model's name wrong (with the nearest names that it lists), every answer
        empty.
    """
    dialect = _find_dialect(backend) if isinstance(backend, ApiBackend) else Dialect()
    first, second = (list(_replies(backend, QUESTIONS)) for _ in range(2))
    if not any(text.strip() for text in first):
        raise UserError(
            f"expected answers from {backend.label}, found empty ones to {len(first)} questions; it may need another "
            "prompt format, or thinks longer than the answer may be"
        )
    scored = backend.token_logps([KNOWN_TEXT])[0] is not None
    why = getattr(backend, "why_no_logps", None) or "the backend gives none"
    return Capabilities(
        model_name=getattr(backend, "model_name", backend.label),
        logprobs=scored,
        reason=None if scored else why,
        repeatable=first == second,
        system_role=dialect.system,
        seeded=dialect.seed,
    )


def _requests(questions: tuple[str, ...]) -> list[Request]:
    return [Request(f"preflight-{i}", SYSTEM, question, 0.0, 0, MOST_TOKENS) for i, question in enumerate(questions)]


def _replies(backend: Backend, questions: tuple[str, ...]) -> Iterator[str]:
    """Answers in the questions' order."""
    found = {outcome.key: outcome for outcome in backend.answers(_requests(questions))}
    for request in _requests(questions):
        outcome = found[request.key]
        if isinstance(outcome, Failure):
            raise UserError(f"expected an answer from {backend.label}, found: {outcome.reason}; see to it first")
        yield outcome.text


def _find_dialect(backend: ApiBackend) -> Dialect:
    """Sets and returns the first dialect in which the endpoint answers."""
    reason = ""
    for dialect in DIALECTS:
        backend.dialect = dialect
        try:
            (outcome,) = backend.answers(_requests(QUESTIONS[:1]))
        except NoSuchModel as error:
            raise UserError(f"{error}{_meant(backend)}") from None
        if isinstance(outcome, Reply):
            return dialect
        reason = outcome.reason
        if not reason.startswith(("status 400", "status 422")):  # not a matter of how it was asked
            break
    raise UserError(f"expected an answer from {backend.label}, found: {reason}; check model.base_url and the endpoint")


def _meant(backend: ApiBackend) -> str:
    listed = backend.models()
    near = difflib.get_close_matches(backend.model_name, listed, SHOWN, cutoff=0.4) or listed[:SHOWN]
    return f"; it lists {', '.join(near)}" if near else ""
