"""What the request log says of a run: the prior of each group, and whether hits may be retrieval."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from canaryjax.config.detector import PriorConfig
from canaryjax.detector.edge.request_log import RequestLog, RequestRow
from canaryjax.detector.records import Target


@dataclass(frozen=True)
class LogFacts:
    """What the evidence needs of the request log; names no page and no address in the report.

    Attributes:
      pages: By target's key, what it was fetched on, under any names; a target of which nobody knows it is absent.
      fetched: Names of all that verified crawlers of the model's maker fetched; None where the maker is not named.
      during_run: Requests of anyone from the run's start to its end; None where the log does not say.
      complete: Whether the log is known to hold all of them.
      reason: Why it is not.
      unread: Lines of the log that hold no whole row.
    """

    pages: Mapping[str, frozenset[str]]
    fetched: frozenset[str] | None
    during_run: int | None
    complete: bool
    reason: str | None = None
    unread: int = 0


@dataclass(frozen=True)
class Prior:
    """Probability, before anything was asked, that a group was trained on, and what it rests on."""

    value: float
    source: str


def log_facts(
    log: RequestLog, targets: Iterable[Target], fetched: Sequence[RequestRow] | None, start: datetime, end: datetime
) -> LogFacts:
    """Draw from a request log what the evidence needs.

    Args:
      log: As it was read after the run.
      targets: Of the run. An edge tier's sentence was served with its id alone, so its fetches are known; where a
        static one stands, only the site's builder knows.
      fetched: Rows that `verified_fetches` gives for the model's maker; None where it is not named.
      start, end: Of the run, UTC.
    """
    count = log.count_fetches(start, end)
    return LogFacts(
        pages={
            target.key: frozenset([_edition(target.id)])
            for target in targets
            if target.log_row is not None and target.id is not None
        },
        fetched=None
        if fetched is None
        else frozenset(row.path if row.id is None else _edition(row.id) for row in fetched),
        during_run=count.during_run,
        complete=count.log_complete,
        reason=count.reason,
        unread=log.torn,
    )


def _edition(number: int) -> str:
    return f"id {number:012x}"  # no path begins so


def group_prior(targets: Iterable[Target], log: LogFacts | None, config: PriorConfig) -> Prior:
    """Prior of a group by which of its pages verified crawlers of the model's maker fetched.

    Args:
      targets: Of the group.
      log: None without a request log.
      config: The table, by the user.
    """
    if log is None:
        return Prior(config.no_log, "no request log")
    if log.fetched is None:
        return Prior(config.no_log, "the model's maker is not named, so no fetch is known to be its own")
    if not log.fetched:
        return Prior(config.no_fetch, "verified crawlers of the maker fetched nothing")
    known = [log.pages.get(target.key) for target in targets]
    pages = frozenset().union(*(some for some in known if some))
    if not all(known):
        return Prior(
            config.some_pages, "verified crawlers of the maker fetched pages; which of them hold the group is not known"
        )
    if not log.fetched & pages:
        return Prior(config.no_fetch, "verified crawlers of the maker fetched none of the group's pages")
    if pages <= log.fetched:
        return Prior(config.all_pages, "verified crawlers of the maker fetched each of the group's pages")
    return Prior(config.some_pages, "verified crawlers of the maker fetched some of the group's pages")


def fetches(log: LogFacts | None) -> dict[str, int | bool | str | None]:
    """The report's part on requests during the run."""
    if log is None:
        return {"during_run": None, "reason": "no request log", "log_complete": None}
    return {"during_run": log.during_run, "reason": log.reason, "log_complete": log.complete}
