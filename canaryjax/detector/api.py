"""A model behind an endpoint that speaks OpenAI's chat completions; no tool or retrieval option is ever sent."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from canaryjax.config.detector import ModelConfig
from canaryjax.detector.address import on_this_machine, read_address, read_key
from canaryjax.detector.answered import first_choice, read_text, read_usage
from canaryjax.detector.echo import KNOWN_TEXT, EchoFault, read_echo
from canaryjax.detector.loop import stream
from canaryjax.detector.records import Failure, Reply, Request
from canaryjax.detector.retry import LONGEST_WAIT, Pace
from canaryjax.detector.spending import Budget, Prices
from canaryjax.detector.trouble import Trouble, attempt
from canaryjax.errors import UserError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OWN_ADDRESS = "https://api.openai.com/v1"  # given in words: a null must not mean what the client's environment says
LOST_IN_A_ROW = 24  # calls without an answer after all their tries: the endpoint is down, and the rest would wait too


@dataclass(frozen=True)
class Dialect:
    """How an endpoint wants to be asked: names differ, and some refuse what they do not know."""

    length: str = "max_tokens"
    system: bool = True
    seed: bool = True


@dataclass
class _Session:
    """One event loop's client and pace."""

    client: "AsyncOpenAI"
    pace: Pace
    lost: int = 0


class ApiBackend:
    """Asks an endpoint, with bounded concurrency, its own retries and a spending limit.

    Attributes:
      label: The model's name and the endpoint's host.
      dialect: How it is asked; the preflight finds it out.
      why_no_logps: Why the endpoint gives no log-probs of texts; None where it does or nobody asked yet.
    """

    def __init__(
        self,
        config: ModelConfig,
        spent: float = 0.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """Takes the config, what earlier parts of the run have cost, how to wait, by which clock, and jitter's source.

        Raises UserError without a usable key or address; neither is shown.
        """
        self._config = config
        self._pace = partial(Pace, sleep, clock, rng)
        self._url, self._host = read_address(config.base_url or OWN_ADDRESS)
        self._key = read_key(config.api_key_variable, self._host)
        self.label = f"{config.name} at {self._host}"
        self.dialect = Dialect()
        self.budget = Budget(config.spending_limit, spent)
        self._prices = Prices(config.price_in, config.price_out)
        self.why_no_logps: str | None = "switched off (model.logprobs)" if config.logprobs == "off" else None
        self._echo: int | None = None  # tokens that must be asked for beside an echo

    def __repr__(self) -> str:
        return f"ApiBackend({self.label!r})"

    @property
    def model_name(self) -> str:
        """What the endpoint calls the model."""
        return self._config.name or ""

    def answers(self, requests: Sequence[Request]) -> Iterator[Reply | Failure]:
        """As `Backend.answers`."""

        async def ask_all(put: Callable[[Reply | Failure], None]) -> None:
            left = iter(requests)  # shared: the workers run in one thread

            async def work(session: _Session) -> None:
                for request in left:
                    put(await self._ask(session, request))

            async with self._session() as session:
                await _together([work(session) for _ in range(min(self._config.concurrency, len(requests)))])

        return stream(ask_all)

    @property
    def spent(self) -> float:
        """As `Backend.spent`; a call of which nobody says what it cost counts as its worst case."""
        return self.budget.spent

    def token_logps(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """As `Backend.token_logps`; the first call proves on a harmless text that the endpoint gives them."""
        found: list[np.ndarray | None] = [None] * len(texts)

        async def score_all(put: Callable[[tuple[int, np.ndarray | None]], None]) -> None:
            left = iter(enumerate(texts))

            async def work(session: _Session) -> None:
                for place, text in left:
                    put((place, await self._score(session, text)))

            async with self._session() as session:
                if self._echo is None and self.why_no_logps is None:
                    await self._prove_echo(session)
                if self._echo is not None:
                    await _together([work(session) for _ in range(min(self._config.concurrency, len(texts)))])

        for place, logps in stream(score_all):
            found[place] = logps
        return found

    def models(self) -> list[str]:
        """Names of the models that the endpoint lists; none where it has no list."""

        async def ask(put: Callable[[Any], None]) -> None:
            async with self._session() as session:
                put(await self._call(session, session.client.models.list, 0.0))

        (listed,) = stream(ask)
        entries = getattr(listed, "data", None) or []
        return [entry.id for entry in entries if isinstance(getattr(entry, "id", None), str)]

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[_Session]:
        import openai

        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):  # at DEBUG they log bodies and headers
            logging.getLogger(name).setLevel(logging.WARNING)
        timeout, near = self._config.timeout, on_this_machine(self._host)
        # Prompts go nowhere else: neither where the endpoint points to nor, on this machine, through a proxy.
        try:
            transport = openai.DefaultAsyncHttpxClient(follow_redirects=False, timeout=timeout, trust_env=not near)
        except Exception:  # its words may hold a proxy's password
            transport = None
        if transport is None:
            raise UserError(
                "expected proxies and certificates in the environment that can be used, found others; correct "
                "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY and SSL_CERT_FILE"
            )
        client = openai.AsyncOpenAI(
            api_key=self._key, base_url=self._url, max_retries=0, timeout=timeout, http_client=transport
        )
        async with client:
            yield _Session(client, self._pace())

    async def _call(self, session: _Session, call: Callable[[], Awaitable[Any]], worst: float) -> Any:
        """The answer, or the Trouble of the last try."""

        async def within_time() -> Any:
            async with asyncio.timeout(self._config.timeout):  # the client's own bounds each read, not the call
                return await call()

        outcome: Any = None
        for tries in range(self._config.retries + 1):
            await session.pace.start(tries)
            await self.budget.reserve(worst)
            cost = worst  # where nobody says what it was
            try:
                outcome = await attempt(within_time)
                cost = self._cost(outcome, worst)
            finally:
                self.budget.settle(worst, cost)
            if not isinstance(outcome, Trouble) or not outcome.again or (outcome.wait or 0.0) > LONGEST_WAIT:
                break
            if outcome.wait is not None:
                session.pace.hold(outcome.wait)
        self._count_lost(session, outcome)
        return outcome

    def _count_lost(self, session: _Session, outcome: Any) -> None:
        session.lost = session.lost + 1 if isinstance(outcome, Trouble) and outcome.again else 0
        if session.lost >= LOST_IN_A_ROW:
            raise UserError(
                f"expected answers from {self.label}, found none to {session.lost} calls in a row, each tried "
                f"{self._config.retries + 1} times (the last: {outcome.reason}); resume when it is back"
            )

    def _cost(self, outcome: Any, worst: float) -> float:
        if isinstance(outcome, Trouble):
            return worst if outcome.charged else 0.0
        read, written = read_usage(outcome)
        return worst if read is None or written is None else self._prices.of(read, written)

    async def _ask(self, session: _Session, request: Request) -> Reply | Failure:
        dialect = self.dialect
        system = [{"role": "system", "content": request.system}] if request.system else []
        messages: Any = [*system, {"role": "user", "content": request.prompt}]
        if not dialect.system and request.system:
            messages = [{"role": "user", "content": f"{request.system}\n\n{request.prompt}"}]
        options: dict[str, Any] = {"temperature": request.temperature, dialect.length: request.max_tokens}
        if dialect.seed:
            options["seed"] = request.seed

        def call() -> Awaitable[Any]:
            return session.client.chat.completions.create(model=self.model_name, messages=messages, **options)

        worst = self._prices.worst(request.system + request.prompt, request.max_tokens)
        outcome = await self._call(session, call, worst)
        if isinstance(outcome, Trouble):
            if (stop := outcome.stop()) is not None:
                raise stop
            return Failure(request.key, outcome.reason)
        choice = first_choice(outcome)
        message = getattr(choice, "message", None)
        if message is None:
            return Failure(request.key, "answer without a choice")
        text = read_text(message)
        if text is None:
            return Failure(request.key, "answer without a text")
        return Reply(request.key, text, str(getattr(choice, "finish_reason", None)), *read_usage(outcome))

    async def _complete(self, session: _Session, text: str, most: int) -> Any:
        def call() -> Awaitable[Any]:
            return session.client.completions.create(
                model=self.model_name, prompt=text, echo=True, logprobs=1, max_tokens=most, temperature=0.0
            )

        return await self._call(session, call, self._prices.worst(text, most))

    async def _score(self, session: _Session, text: str) -> np.ndarray | None:
        most = self._echo or 0
        outcome = await self._complete(session, text, most)
        if isinstance(outcome, Trouble):
            return None
        try:
            return read_echo(outcome, text, most)
        except EchoFault:
            return None

    async def _prove_echo(self, session: _Session) -> None:
        for most in (0, 1):  # some take no 0
            outcome = await self._complete(session, KNOWN_TEXT, most)
            if isinstance(outcome, Trouble):
                self.why_no_logps = f"the endpoint's completions end with {outcome.reason}"
                continue
            try:
                read_echo(outcome, KNOWN_TEXT, most)
            except EchoFault as fault:
                self.why_no_logps = str(fault)
                continue
            self._echo, self.why_no_logps = most, None
            return


async def _together(works: Sequence[Any]) -> None:
    """Runs coroutines beside each other; the first error cancels the others and is raised alone."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
