"""ASGI middleware that stamps HTML pages per request and logs every request: the twin of `canary.js`.

    app = StampMiddleware(app, read_edge_settings("site"), read_secrets("secrets").edge_secret, "requests.jsonl")

It goes outside of whatever compresses or caches pages.
"""

import errno
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from canaryjax.detector.edge.settings import EdgeSettings
from canaryjax.detector.edge.stamp import (
    KEPT,
    LARGEST_PAGE,
    STALE_HEADERS,
    Visit,
    canonical_path,
    claimed_vendor,
    edition_for,
    is_page,
    log_line,
    log_row,
    stamped,
)
from canaryjax.detector.secret import Secret
from canaryjax.errors import UserError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]
# Ways of a server to send a file by itself; a page that goes out that way cannot be stamped.
BYPASSES = ("http.response.pathsend", "http.response.zerocopysend")
log = logging.getLogger(__name__)


class StampMiddleware:
    """Stamps the pages of an ASGI application.

    Args:
      app: The application.
      settings: As `read_edge_settings` gives them.
      edge_secret: Of `read_secrets`; None is refused.
      request_log: File that a line is appended to for each request, before its answer goes out; also for one that the
        application fails on before that.
      clock: Milliseconds since 1970.

    Raises:
      UserError: No edge secret, or a log that cannot be written.
    """

    def __init__(
        self,
        app: App,
        settings: EdgeSettings,
        edge_secret: Secret | None,
        request_log: str | Path,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ):
        if edge_secret is None:
            raise UserError("expected an edge secret, found none; write a file edge_secret beside the seeds")
        self._app, self._settings, self._secret = app, settings, edge_secret
        self._log, self._clock = Path(request_log), clock
        try:
            append(self._log, b"")
        except OSError as error:
            raise UserError(
                f"expected a request log that can be written, found {error.strerror} at {request_log}; check its folder"
            ) from None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        extensions = {name: value for name, value in (scope.get("extensions") or {}).items() if name not in BYPASSES}
        answer = _Answer(self, _visit(scope, self._settings, self._clock()), scope["method"], send)
        try:
            await self._app({**scope, "extensions": extensions}, receive, answer.send)
        finally:
            answer.end()

    def stamped(self, visit: Visit, page: bytes) -> bytes | None:
        """The page for a visit, logged; None where it is not stamped, and then it is not logged."""
        edition = edition_for(visit, self._settings, self._secret)
        changed = stamped(page, edition.id, self._settings)
        # A sentence goes out only if the log has its row: a hit without a row would prove nothing.
        if changed is None or not self._logged(log_row(visit, edition.vendor, edition, 200)):
            return None
        return changed

    def log_plain(self, visit: Visit, status: int) -> None:
        """Logs a visit whose answer was not stamped."""
        self._logged(log_row(visit, claimed_vendor(visit.user_agent, self._settings.agents), None, status))

    def _logged(self, row: dict[str, str | int | None]) -> bool:
        try:
            append(self._log, log_line(row))
        except OSError as error:
            log.error("the request log cannot be written (%s): pages go out unstamped", error.strerror)
            return False
        return True


class _Answer:
    """One answer on its way out: a page is held until it is whole, all else goes through."""

    def __init__(self, stamper: StampMiddleware, visit: Visit, method: str, send: Send):
        self._stamper, self._visit, self._method, self._send = stamper, visit, method, send
        self._start: Message | None = None  # of a page that is held
        self._body = bytearray()
        self._logged = False

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            await self._begin(message)
        elif kind == "http.response.body" and self._start is not None:
            await self._hold(message)
        else:
            await self._send(message)

    def end(self) -> None:
        """Logs a request that nothing was sent for: the application failed first, so the server answers with a 500."""
        if not self._logged:
            self._stamper.log_plain(self._visit, 500)

    async def _begin(self, message: Message) -> None:
        headers = message.get("headers") or ()
        kind, encoding = (header(headers, name) or "" for name in (b"content-type", b"content-encoding"))
        if is_page(self._method, message["status"], kind, encoding):
            self._start = message
            return
        self._logged = True
        self._stamper.log_plain(self._visit, message["status"])
        await self._send(message)

    async def _hold(self, message: Message) -> None:
        self._body += message.get("body", b"")
        more = message.get("more_body", False)
        if more and len(self._body) <= LARGEST_PAGE:
            return
        start, self._start = self._start, None
        assert start is not None
        page = bytes(self._body)
        changed = None if len(page) > LARGEST_PAGE else self._stamper.stamped(self._visit, page)
        self._logged = True
        if changed is None:
            self._stamper.log_plain(self._visit, start["status"])
        else:
            page, start = changed, {**start, "headers": _fresh_headers(start.get("headers") or (), len(changed))}
        await self._send(start)
        await self._send({**message, "body": page})


def _visit(scope: MutableMapping[str, Any], settings: EdgeSettings, now: int) -> Visit:
    raw = scope.get("raw_path")
    if raw is None:  # a server need not give it; then each character of the path stands for itself
        raw = quote(scope["path"], safe=bytes(KEPT), errors="surrogatepass").encode()
    headers = scope["headers"]
    if settings.ip_header is not None:
        ip = header(headers, settings.ip_header.encode())
    else:
        ip = scope["client"][0] if scope.get("client") else None
    return Visit(now, canonical_path(re.split(rb"[?#]", raw)[0]), ip, header(headers, b"user-agent"))


def header(headers: Headers, name: bytes) -> str | None:
    """A header's value, several joined by a comma as `Headers.get` does; None where it is not sent."""
    values = [value.strip(b" \t\r\n").decode("latin-1") for key, value in headers if key.lower() == name]
    return ", ".join(values) if values else None


def _fresh_headers(headers: Headers, length: int) -> list[tuple[bytes, bytes]]:
    kept = [(key, value) for key, value in headers if key.lower().decode("latin-1") not in STALE_HEADERS]
    return [*kept, (b"cache-control", b"private, no-store"), (b"content-length", str(length).encode())]


def append(path: Path, line: bytes) -> None:
    """Appends a line in one write, so that no two writers' lines mix (POSIX: O_APPEND); the file is its owner's alone.

    It is opened each time, so that a log may be moved away at any moment. Raises OSError where the line is not written
    whole.
    """
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.write(handle, line) < len(line):
            raise OSError(errno.ENOSPC, "the line was cut short")
    finally:
        os.close(handle)
