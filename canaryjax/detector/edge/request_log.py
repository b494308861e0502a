"""The edge's request log, read back: which request an id was made for, and what was fetched while a run was under way.

A log comes from a machine that we do not run: lines may be cut, late, twice, or from a clock that is wrong. None of
that stops the reading; all of it is counted, and decides how far the log can be trusted.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from canaryjax.detector.derive import edge_id
from canaryjax.detector.records import Tier
from canaryjax.detector.secret import Secret
from canaryjax.errors import UserError

# How far an honest clock may be ahead of ours; a row beyond it shows that the clocks differ.
CLOCK_TOLERANCE = timedelta(minutes=2)
LONGEST_LINE = 2**20  # bytes; an edge's row has some hundreds, and a file without newlines would fill the memory
PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")  # how compressed files begin
ROW_START = b'{"time":'  # cannot stand inside a row: there, quotes are escaped


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request of the site.

    Attributes:
      time: When it was answered, UTC, by the edge's clock.
      path: What was asked for, percent-encoded.
      ip: Whoever asked, as the edge saw it; None where it could not tell.
      user_agent: As sent.
      vendor: Whose crawler the user agent says it is; a claim, see `crawler.py`.
      tier: `vendor` or `window`; None, as label and id, where the answer was not stamped.
      label: What the id was derived from.
      id: 48 bits.
      page_status: HTTP status of the answer.
    """

    time: datetime
    path: str
    ip: str | None
    user_agent: str | None
    vendor: str | None
    tier: Tier | None
    label: str | None
    id: int | None
    page_status: int


@dataclass(frozen=True)
class FetchCount:
    """What the log says of the time of a run.

    Attributes:
      during_run: Requests that were answered with content; None where the log holds nothing.
      log_complete: Whether the log is known to hold all of them.
      reason: Why it is not.
    """

    during_run: int | None
    log_complete: bool
    reason: str | None


@dataclass(frozen=True)
class RequestLog:
    """The rows of a log, in its order, and what was wrong with it.

    Attributes:
      rows: All whole rows, of the future too.
      torn: Lines that hold no whole row.
      unordered: Rows earlier than one above them.
      most_behind: By how much, at most.
      future: Rows later than the reader's clock allows.
      duplicates: Rows whose id an earlier row has: the same edition, fetched again.
      gaps: For each torn line, the latest time above it and the next one below it; None where there is none.
    """

    rows: tuple[RequestRow, ...]
    torn: int
    unordered: int
    most_behind: timedelta
    future: int
    duplicates: int
    gaps: tuple[tuple[datetime | None, datetime | None], ...]
    read_at: datetime

    @cached_property
    def _by_id(self) -> Mapping[int, tuple[RequestRow, ...]]:
        found: dict[int, list[RequestRow]] = defaultdict(list)
        for row in self.rows:
            if row.id is not None:
                found[row.id].append(row)
        return {key: tuple(rows) for key, rows in found.items()}

    def rows_of(self, canary_id: int) -> tuple[RequestRow, ...]:
        """The requests that were answered with an id, the earliest line first; empty where there is none."""
        return self._by_id.get(canary_id, ())

    def wrong_ids(self, edge_secret: Secret) -> tuple[RequestRow, ...]:
        """Rows whose id is not the one that the edge secret gives for their label: another secret, or forged."""
        return tuple(
            row for row in self.rows if row.tier and row.label and row.id != edge_id(edge_secret, row.tier, row.label)
        )

    @cached_property
    def _past(self) -> tuple[datetime, ...]:
        return tuple(row.time for row in self.rows if row.time <= self.read_at + CLOCK_TOLERANCE)

    @property
    def covers_from(self) -> datetime | None:
        """Earliest time in the log."""
        return min(self._past, default=None)

    @property
    def covers_until(self) -> datetime | None:
        """Latest time up to which the log is complete: its latest, less what rows were seen to come late by."""
        latest = max(self._past, default=None)
        return None if latest is None else latest - self.most_behind

    def count_fetches(self, start: datetime, end: datetime) -> FetchCount:
        """How many requests were answered with content from `start` to `end`, both included.

        Where the log is not known to hold all of them, the count is a lower bound and `reason` says why.
        Arguments: two times with a zone, such as a run's first and last moment.
        """
        if not self.rows:
            return FetchCount(None, False, "log incomplete: it holds no row")
        during = sum(start <= row.time <= end and row.page_status < 400 for row in self.rows)
        reason = self._doubt(start, end)
        return FetchCount(during, reason is None, reason)

    def _doubt(self, start: datetime, end: datetime) -> str | None:
        first, until = self.covers_from, self.covers_until
        if self.future:
            return (
                f"log incomplete: {self.future} rows are later than this machine's clock; set both clocks, since no "
                "time of the log can be held against the run's"
            )
        assert first is not None
        assert until is not None
        if first > start:
            return f"log incomplete: it begins at {stamp_of(first)}, after the run began; add what was logged before"
        if until < end:
            late = f" (rows come up to {self.most_behind} late)" if self.most_behind else ""
            return (
                f"log incomplete: it is complete up to {stamp_of(until)}{late}, the run ended at {stamp_of(end)}; "
                "fetch a page of the site yourself, wait until the log shows it, and read it again"
            )
        near = sum(
            (above is None or above - self.most_behind <= end) and (below is None or below + self.most_behind >= start)
            for above, below in self.gaps
        )
        return f"log incomplete: {near} lines around the run's time are torn" if near else None


def read_request_log(path: str | Path, now: datetime | None = None) -> RequestLog:
    """Reads a request log, one JSON object a line, and counts what is wrong with it.

    Args:
      path: The file; keys of a line as `RequestRow`, others are left alone. Lines are parted by newline alone.
      now: The reader's clock; None is the present.

    Raises:
      UserError: The file cannot be read, or is compressed.
    """
    rows: list[RequestRow] = []
    gaps: list[tuple[datetime | None, int]] = []  # latest time above a torn line, rows above it
    read_at = now or datetime.now(UTC)
    latest: datetime | None = None
    unordered, most_behind = 0, timedelta(0)
    try:
        with open(path, "rb") as file:
            if file.peek(8).startswith(PACKED):
                raise UserError(f"expected a request log in plain text, found {path} compressed; unpack it first")
            while line := file.readline(LONGEST_LINE):
                row, whole = _parse(line)
                if not whole:
                    gaps.append((latest, len(rows)))
                if row is None:
                    continue
                rows.append(row)
                if row.time > read_at + CLOCK_TOLERANCE:
                    continue  # would make all below it late
                if latest is not None and row.time < latest:
                    unordered, most_behind = unordered + 1, max(most_behind, latest - row.time)
                latest = row.time if latest is None else max(latest, row.time)
    except OSError as error:
        raise UserError(
            f"expected a readable request log at {path}, found {error.strerror}; check site.request_log"
        ) from None
    ids = [row.id for row in rows if row.id is not None]
    return RequestLog(
        rows=tuple(rows),
        torn=len(gaps),
        unordered=unordered,
        most_behind=most_behind,
        future=sum(row.time > read_at + CLOCK_TOLERANCE for row in rows),
        duplicates=len(ids) - len(set(ids)),
        gaps=tuple((above, rows[place].time if place < len(rows) else None) for above, place in gaps),
        read_at=read_at,
    )


def _parse(line: bytes) -> tuple[RequestRow | None, bool]:
    """The row of a line, and whether the line is that row and nothing else."""
    if not line.strip():
        return None, True
    row = _row(line)
    if row is not None:
        return row, True
    # A write that was cut short has no newline: the next row stands in the same line.
    start = line.rfind(ROW_START)
    return (_row(line[start:]) if start > 0 else None), False


def _row(text: bytes) -> RequestRow | None:
    try:
        found = json.loads(text)
        return _checked(found)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _checked(found: Mapping[str, Any]) -> RequestRow:
    """The row of a parsed line; raises one of the errors that `_row` catches for anything else."""
    time = datetime.fromisoformat(found["time"])
    if time.tzinfo is None:
        raise ValueError
    path, status = found["path"], found["page_status"]
    texts = [found[key] for key in ("ip", "user_agent", "vendor", "tier", "label", "id")]
    if not isinstance(path, str) or type(status) is not int or not all(isinstance(x, str | None) for x in texts):
        raise TypeError
    ip, agent, vendor, tier, label, canary_id = texts
    stamped = (
        tier in ("vendor", "window")
        and bool(label)
        and label.isascii()
        and bool(re.fullmatch("[0-9a-f]{12}", canary_id or ""))
    )
    if not stamped and not (tier is label is canary_id is None):
        raise ValueError
    number = None if canary_id is None else int(canary_id, 16)
    return RequestRow(time.astimezone(UTC), path, ip, agent, vendor, tier, label, number, status)


def stamp_of(time: datetime) -> str:
    """A time as the edge writes it: UTC, ISO 8601, milliseconds.

    >>> stamp_of(datetime(2031, 3, 5, 7, 11, 13, 17999, tzinfo=UTC))
    '2031-03-05T07:11:13.017Z'
    """
    time = time.astimezone(UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03d}Z"
