"""What calls cost, reckoned so that a limit is never passed: each call reserves its worst case before it is made."""

import asyncio
from dataclasses import dataclass

from canaryjax.errors import UserError

TEMPLATE_TOKENS = 64  # most that a chat template adds to two messages


@dataclass(frozen=True)
class Prices:
    """Of a million tokens read and written, in any currency."""

    read: float
    written: float

    def of(self, read: int, written: int) -> float:
        """Price of a call."""
        return (read * self.read + written * self.written) / 1e6

    def worst(self, text: str, most_written: int) -> float:
        """Most that a call can cost before its tokens are counted: no token is shorter than one byte."""
        return self.of(len(text.encode("utf-8", "replace")) + TEMPLATE_TOKENS, most_written)


class Budget:
    """What was spent and what calls under way may still cost; for one event loop at a time."""

    def __init__(self, limit: float | None, spent: float = 0.0) -> None:
        """Takes the limit, None for none, and what earlier parts of the run have cost."""
        self.limit, self.spent = limit, spent
        self._held = 0.0
        self._under_way = 0
        self._settled: asyncio.Event | None = None  # of the loop that waits: an event belongs to one

    async def reserve(self, worst: float) -> None:
        """Sets the price of a call aside, and waits for calls under way where only they stand against it.

        Raises UserError where the limit would be passed even if those cost nothing.
        """
        while self.limit is not None and self.spent + self._held + worst > self.limit:
            if not self._under_way:
                raise UserError(
                    f"expected calls within model.spending_limit={self.limit:g}, found {self.spent:.4g} spent and a "
                    f"next call of up to {worst:.2g}; raise the limit and resume"
                )
            if self._settled is None:
                self._settled = asyncio.Event()
            await self._settled.wait()
        self._held += worst
        self._under_way += 1

    def settle(self, worst: float, cost: float) -> None:
        """Books what a reserved call did cost."""
        self._under_way -= 1
        self._held = self._held - worst if self._under_way else 0.0
        self.spent += cost
        if self._settled is not None:
            self._settled.set()
            self._settled = None
