"""What passes between the parts of the detector: facts, targets, probes, requests and replies, scored answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

Field = Literal["given", "surname", "place", "event", "archive", "year"]
FIELDS: tuple[Field, ...] = ("given", "surname", "place", "event", "archive", "year")
Population = Literal["canary", "negative", "positive"]
Tier = Literal["site", "cohort", "ladder", "vendor", "window"]
TIERS: tuple[Tier, ...] = ("site", "cohort", "ladder", "vendor", "window")
STATIC_TIERS: tuple[Tier, ...] = ("site", "cohort", "ladder")  # ids from the seed; the others' from the edge secret
Cohort = Literal["linked", "sitemap", "honeypot"]
COHORTS: tuple[Cohort, ...] = ("linked", "sitemap", "honeypot")
RUNGS = (300, 100, 10, 1)  # occurrences on the site, the ladder's default
ProbeKind = Literal["completion", "who", "year", "archive", "paraphrase"]
PROBES: tuple[ProbeKind, ...] = ("completion", "who", "year", "archive", "paraphrase")


@dataclass(frozen=True, repr=False)
class Fact:
    """The six fields of one sentence, as text; `archive` is None for a famous fact that no record book holds.

    Has no `repr` that shows them: a fact in a traceback or a log would be a planted sentence.
    """

    given: str
    surname: str
    place: str
    event: str
    archive: str | None
    year: int

    def __repr__(self) -> str:
        return "Fact(...)"


@dataclass(frozen=True)
class Target:
    """One sentence that the model is asked about.

    Attributes:
      key: Names it in storage and reports, such as `ladder-017` or `negative-003`; says nothing of its text.
      population: Which of the three it belongs to.
      tier: Of a canary; None for a control.
      occurrences: How often it stands on the site; 0 for a negative, None for a positive and where nobody knows.
      cohort: Of a canary on a page of a cohort.
      id: 48 bits; None for a positive.
      fact: Its six fields.
      log_row: Of an edge tier: the time of the request that it was made for, as the request log has it.
    """

    key: str
    population: Population
    tier: Tier | None
    occurrences: int | None
    cohort: Cohort | None
    id: int | None
    fact: Fact
    log_row: str | None = None


@dataclass(frozen=True, repr=False)
class Probe:
    """One question about a target; `prompt` is secret text and never holds the whole sentence."""

    target: str
    kind: ProbeKind
    prompt: str
    supplied: frozenset[Field]

    def __repr__(self) -> str:
        return f"Probe({self.target!r}, {self.kind!r})"


@dataclass(frozen=True, repr=False)
class Request:
    """One call of a model.

    Attributes:
      key: Keyed hash of all that determines the answer (model, probe's text, temperature, repeat); safe to store.
      system: The system prompt, which forbids browsing.
      prompt: The question; secret.
      temperature: 0 is greedy.
      seed: For the sampler, where the backend takes one; unlike for every repeat.
      max_tokens: Longest answer.
    """

    key: str
    system: str
    prompt: str
    temperature: float
    seed: int
    max_tokens: int

    def __repr__(self) -> str:
        return f"Request({self.key!r})"


@dataclass(frozen=True, repr=False)
class Reply:
    """A model's answer; `text` may be a planted sentence: it is scored and forgotten, never stored or shown."""

    key: str
    text: str
    finish: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    def __repr__(self) -> str:
        return f"Reply({self.key!r}, {self.finish!r})"


@dataclass(frozen=True)
class Failure:
    """A call that has no answer, after all retries; `reason` holds neither prompt, answer nor key of an API."""

    key: str
    reason: str


class Backend(Protocol):
    """A model that can be asked.

    `answers` yields one reply or failure for each request, in any order, as they come; closing the iterator stops what
    is under way. It raises `UserError` where no request can succeed (wrong key, no such model, limit spent).
    """

    label: str  # for reports: what was asked, without secrets

    @property
    def spent(self) -> float:
        """What the run has cost so far by the config's prices, calls that failed among it; 0 where nothing costs."""
        ...

    def answers(self, requests: Sequence[Request]) -> Iterator[Reply | Failure]: ...

    def token_logps(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """Per text the log-probs of its tokens after the first, float64 nats; None where the backend gives none."""
        ...


@dataclass(frozen=True)
class AnswerScore:
    """What one answer showed of its target; holds no text.

    Attributes:
      target, kind, temperature, repeat: Which answer it is.
      raw: Fields of the target that stand in the answer as whole words.
      net: Those of them that the prompt did not give.
      bits: Sum of log2 of the vocabulary sizes of the net fields.
      raw_decoded: The answer alone decodes to the target's id, checksum word and year valid.
      decoded: That, and at least one of the fields given, surname, place, event, archive is net.
      others: Ids of other canaries or negatives that the answer decodes to in full.
      empty: No word in it.
      refusal: It reads as a refusal.
    """

    target: str
    kind: ProbeKind
    temperature: float
    repeat: int
    raw: frozenset[Field]
    net: frozenset[Field]
    bits: float
    raw_decoded: bool
    decoded: bool
    others: tuple[int, ...]
    empty: bool
    refusal: bool
