"""An HTTP proxy that breaks calls as a plan says, and hands the others to the server behind it."""

import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Fault:
    """What happens to a call in place of an answer.

    Attributes:
      kind: status: an answer with this status, headers and body; cut: half a body, then the end; drop: no answer;
        slow: an answer that never comes.
      status, headers, body: Of the answer.
    """

    kind: str = "status"
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: object = field(default_factory=lambda: {"error": {"message": "broken by the proxy", "code": None}})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of 5, twenty calls at once on a busy machine lose some before the proxy sees them

    def handle_error(self, *_):
        """A client that left."""


class FaultProxy:
    """Listens on a free port of this machine; `calls` holds path, body and headers of what came."""

    def __init__(self, plan: Callable[[int, str], Fault | None], upstream: int | None = None) -> None:
        """`plan` maps a call's number, from 0, and path to its fault; None goes to the port `upstream`."""
        self.plan, self.upstream = plan, upstream
        self.calls: list[tuple[str, dict, dict]] = []
        self.lock, self.over = threading.Lock(), threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                proxy.handle(self)

            def do_POST(self):
                proxy.handle(self)

            def log_message(self, *args):
                pass

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def handle(self, handler) -> None:
        raw = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        with self.lock:
            number = len(self.calls)
            self.calls.append((handler.path, json.loads(raw) if raw else {}, dict(handler.headers)))
        fault = self.plan(number, handler.path)
        if fault is None:
            return self._forward(handler, raw)
        if fault.kind == "slow":
            self.over.wait(60)
        if fault.kind in ("slow", "drop"):
            handler.close_connection = True
            return None
        data = fault.body if isinstance(fault.body, bytes) else json.dumps(fault.body).encode()
        if fault.kind == "cut":
            self._send(handler, 200, {"Content-Length": str(2 * len(data) + 1)}, data)
            handler.close_connection = True
            return None
        return self._send(handler, fault.status, {"Content-Length": str(len(data)), **fault.headers}, data)

    def _forward(self, handler, raw: bytes) -> None:
        link = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=600)
        kept = {name: handler.headers[name] for name in ("Authorization", "Content-Type") if name in handler.headers}
        link.request(handler.command, handler.path, raw or None, kept)
        answer = link.getresponse()
        data = answer.read()
        link.close()
        self._send(handler, answer.status, {"Content-Length": str(len(data))}, data)

    @staticmethod
    def _send(handler, status: int, headers: dict[str, str], data: bytes) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)


def chat_answer(text: str, read: int = 11, written: int = 3) -> Fault:
    """An answer of a chat endpoint: for tests whose subject is the way there."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "small", "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}  # fmt: skip
    return Fault(status=200, body=body)
