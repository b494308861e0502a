"""When a call is tried again: what the endpoint asks for, or exponential back-off, both with jitter and a bound."""

import random
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime

FIRST, MOST = 0.5, 30.0  # seconds: back-off of the first further try, and of any
LONGEST_WAIT = 600.0  # seconds: an endpoint that asks for more is given up, for a run lasts minutes


def retried(status: int) -> bool:
    """Whether a call with this HTTP status may succeed when it is made again."""
    return status in (408, 409, 429) or status >= 500


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that an answer asks to wait, by its Retry-After; None where it does not say.

    A date is held against the answer's own Date, where it has one: the two clocks need not agree.

    Args:
      headers: Of the answer; names in lower case.
      now: Seconds since the epoch.

    >>> retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0)
    30.0
    """
    given = headers.get("retry-after", "").strip()
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        until, sent = _timestamp(given), _timestamp(headers.get("date", ""))
        if until is None:
            return None
        seconds = until - (now if sent is None else sent)
    return max(0.0, seconds) if seconds < float("inf") else None


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


class Pace:
    """When calls may start: shared by all calls under way, so that one that is told to wait holds back the others."""

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[object]],
        clock: Callable[[], float],
        rng: random.Random | None = None,
    ) -> None:
        """Takes how to wait, the clock that waits are measured by, and where jitter comes from."""
        self._sleep, self._clock, self._rng = sleep, clock, rng or random.Random()
        self._not_before = clock()

    def hold(self, seconds: float) -> None:
        """No call starts within so many seconds."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    async def start(self, tries: int) -> None:
        """Waits until a call may start.

        Never shorter than was asked for; longer by chance, so that those who wait do not all come back at once: after
        the k-th failed try by up to min(30, 2^(k-1) / 2) seconds and by at least half of that.

        Args:
          tries: How often this call was tried already.
        """
        bound = min(MOST, FIRST * 2.0 ** (tries - 1)) if tries else 0.0
        own = self._rng.uniform(bound / 2, bound)
        left = self._not_before - self._clock()
        if left > 0 and not tries:
            own = self._rng.uniform(0.0, FIRST)
        if max(0.0, left) + own > 0:
            await self._sleep(max(0.0, left) + own)
        while (left := self._not_before - self._clock()) > 0:  # held again meanwhile
            await self._sleep(left + self._rng.uniform(0.0, FIRST))
