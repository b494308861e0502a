"""A local model behind OpenAI's interface: `/v1/models`, `/v1/chat/completions` and `/v1/completions`.

Neither prompts nor answers reach its log, which is one line a call on standard error: what was called, the status, how
long it took.
"""

import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from canaryjax.errors import UserError
from canaryjax.inference.answer import answer
from canaryjax.inference.ask import Refusal, read_ask
from canaryjax.inference.service import Overloaded, Service

MOST_BYTES = 2**22  # of a body
PATIENCE = 120.0  # seconds that a client may stay silent
KINDS = {401: "authentication_error", 404: "not_found_error", 503: "server_error", 500: "server_error"}
ROUTES = {("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/v1/completions")}


class ModelServer(ThreadingHTTPServer):
    """Answers at an address, one thread a connection, until `shutdown`; `close` ends the model's thread too."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, service: Service, key: str | None = None, quiet: bool = False) -> None:
        """Binds the address; port 0 takes a free one.

        Args:
          host, port: Where to listen.
          service: What answers.
          key: What callers must send as a bearer token; None lets everybody in.
          quiet: No log.

        Raises:
          UserError: The address cannot be had.
        """
        self.service, self.key, self.quiet, self.started = service, key, quiet, int(time.time())
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "no such address"
            raise UserError(f"expected to listen at {host}:{port}, found: {why}; choose another --port") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says what kind of error a connection ended with, not what it said: that may hold a prompt."""
        if not self.quiet and not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            print(f"connection ended by {type(sys.exception()).__name__}", file=sys.stderr)

    def close(self) -> None:
        """Gives the address back and ends the model's thread."""
        self.server_close()
        self.service.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    server: ModelServer

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        start, path = time.monotonic(), self.path.split("?")[0]
        known = (method, path) in ROUTES
        try:
            body = self._read_body() if method == "POST" else None
            self._check_key()
            if not known:
                raise Refusal(404, "no such address; see canaryjax serve --help")
            status, found = (
                200,
                self._models() if body is None else self._complete(body, path.endswith("/chat/completions")),
            )
        except Refusal as refusal:
            status, found = refusal.status, _error(refusal)
        except Overloaded:
            status, found = 503, _error(Refusal(503, "too many requests wait; try again later"))
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # its words may hold a prompt
            status, found = 500, _error(Refusal(500, f"the server failed ({type(error).__name__})"))
        self._send(status, found)
        if not self.server.quiet:
            seconds = time.monotonic() - start
            print(f"{method} {path if known else '(unknown)'} {status} {seconds:.2f} s", file=sys.stderr, flush=True)

    def _read_body(self) -> bytes:
        given = self.headers.get("Content-Length", "")
        if not given.isdecimal() or self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # nobody knows where the body ends
            raise Refusal(400, "expected a Content-Length; send the body whole")
        if len(given) > 12 or int(given) > MOST_BYTES:
            self.close_connection = True
            raise Refusal(413, f"expected a body of at most {MOST_BYTES} bytes; shorten it")
        body = self.rfile.read(int(given))
        if len(body) < int(given):
            raise ConnectionAbortedError
        return body

    def _check_key(self) -> None:
        given = self.headers.get("Authorization", "").encode("utf-8", "replace")
        key = self.server.key
        if key is not None and not hmac.compare_digest(given, b"Bearer " + key.encode()):
            raise Refusal(401, "expected this server's API key as a bearer token; send it", "invalid_api_key")

    def _models(self) -> dict[str, Any]:
        name = self.server.service.model.name
        entry = {"id": name, "object": "model", "created": self.server.started, "owned_by": "canaryjax"}
        return {"object": "list", "data": [entry]}

    def _complete(self, body: bytes, chat: bool) -> dict[str, Any]:
        service = self.server.service
        try:
            parsed = json.loads(body)
        except (ValueError, RecursionError):
            parsed = None
        if parsed is None:
            raise Refusal(400, "expected JSON; correct the body")
        ask = read_ask(parsed, service.tokenizer, service.model.config.vocab_size, service.model.name, chat)
        return answer(service, ask, chat)

    def _send(self, status: int, found: dict[str, Any]) -> None:
        data = json.dumps(found, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 503:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The base class's errors, in the form of all others, and without the caller's words."""
        self.close_connection = True
        self._send(int(code), _error(Refusal(int(code), "expected an HTTP request that this server knows; correct it")))

    def log_message(self, format: str, *args: Any) -> None:
        """The base class logs the request line, which is the caller's; `_answer` logs instead."""

    def version_string(self) -> str:
        return "canaryjax"


def _error(refusal: Refusal) -> dict[str, Any]:
    kind = KINDS.get(refusal.status, "invalid_request_error")
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}}
