"""The ASGI middleware: pages in pieces, what must go through untouched, and the log that it appends to."""

import asyncio
import json
import multiprocessing
import stat

import pytest

from canaryjax.detector.derive import edge_id
from canaryjax.detector.edge.asgi import StampMiddleware, append
from canaryjax.detector.edge.request_log import read_request_log
from canaryjax.detector.edge.settings import EdgeSettings, edge_json, read_edge_settings
from canaryjax.detector.edge.stamp import LARGEST_PAGE, escaped
from canaryjax.detector.secret import Secret, make_secrets, read_secrets
from canaryjax.detector.sentence import render
from canaryjax.detector.throwaway import make_site_lists
from canaryjax.errors import UserError

NOW = 1_930_893_071_017
HTML = (b"content-type", b"text/html")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site's folder, as its owner has it: word lists, shapes, crawlers."""
    folder = tmp_path_factory.mktemp("site")
    make_site_lists(folder, 23)
    (folder / "crawlers.yaml").write_text("example:\n  agents: [ExampleBot]\n  hosts: [crawl.example.org]\n")
    make_secrets(folder / "secrets")
    return folder


@pytest.fixture(scope="module")
def settings(site):
    return read_edge_settings(site)


@pytest.fixture(scope="module")
def secret(site):
    return read_secrets(site / "secrets").edge_secret


def application(*messages, failure=None):
    async def app(scope, receive, send):
        for message in messages:
            await send(dict(message))
        if failure is not None:
            raise failure

    return app


def start(*headers, status=200):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(*pieces):
    last = len(pieces) - 1
    return [{"type": "http.response.body", "body": piece, "more_body": i < last} for i, piece in enumerate(pieces)]


def scope_of(**changes):
    plain = {"type": "http", "method": "GET", "path": "/a", "headers": [(b"user-agent", b"examplebot")], "client": None}
    return plain | changes


def ask(stamper, scope):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    asyncio.run(stamper(scope, receive, send))
    return sent


@pytest.fixture
def stamp(settings, secret, tmp_path):
    """Answers a request through the middleware: the messages sent, and the rows logged."""

    def run(messages, **changes):
        log = tmp_path / "requests.jsonl"
        stamper = StampMiddleware(application(*messages), settings, secret, log, lambda: NOW)
        sent = ask(stamper, scope_of(**changes))
        return sent, [json.loads(line) for line in log.read_bytes().splitlines()]

    return run


@pytest.fixture
def sentence(settings, secret):
    def of(label, tier="vendor"):
        return escaped(render(edge_id(secret, tier, label), settings.vocabulary, settings.shapes))

    return of


@pytest.mark.parametrize("size", [1, 2, 5, 13, 1000])
def test_a_page_in_pieces_is_stamped_as_a_whole(stamp, sentence, size):
    page = b"<html><body>Text. <p><!--edition--></p> More.</body></html>"
    pieces = [page[i : i + size] for i in range(0, len(page), size)]
    length = (b"Content-Length", str(len(page)).encode())
    sent, rows = stamp([start(HTML, length, (b"ETag", b'"a"')), *body(*pieces)])
    whole = page.replace(b"<!--edition-->", sentence("example|/a"))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[1]["body"] == whole
    assert not sent[1].get("more_body")
    assert sent[0]["headers"] == [
        HTML,
        (b"cache-control", b"private, no-store"),
        (b"content-length", str(len(whole)).encode()),
    ]
    assert [row["label"] for row in rows] == ["example|/a"]


def test_a_page_that_ends_in_an_empty_piece_is_stamped(stamp, sentence):
    sent, _ = stamp([start(HTML), *body(b"<body>Text</bo", b"dy>", b"")])
    assert sent[1]["body"] == b"<body>Text<p>" + sentence("example|/a") + b"</p>\n</body>"


UNTOUCHED = {
    "json": [start((b"content-type", b"application/json")), *body(b'"</body>"', b"")],
    "events": [start((b"content-type", b"text/event-stream")), *body(b"data: </body>\n", b"data: 2\n", b"")],
    "compressed": [start(HTML, (b"content-encoding", b"gzip")), *body(b"\x1f\x8b</body>")],
    "part": [start(HTML, (b"content-range", b"bytes 0-6/9"), status=206), *body(b"</body>")],
    "not modified": [start(status=304), *body(b"")],
    "fragment": [start(HTML, (b"content-length", b"3"), (b"etag", b'"a"')), *body(b"<p>")],
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_is_no_whole_page_goes_through(stamp, name):
    sent, rows = stamp(UNTOUCHED[name])
    assert [message | {"more_body": False} for message in sent] == [
        message | {"more_body": False} for message in UNTOUCHED[name]
    ]
    assert [(row["page_status"], row["id"], row["vendor"]) for row in rows] == [
        (UNTOUCHED[name][0]["status"], None, "example")
    ]


def test_a_stream_beyond_the_limit_goes_through_as_it_comes(stamp):
    piece = b"x" * (LARGEST_PAGE // 3)
    messages = [start(HTML), *body(piece, piece, piece, b"</body>", b"the end")]
    sent, rows = stamp(messages)
    assert [len(message["body"]) for message in sent[1:]] == [3 * len(piece) + 7, 7]
    assert b"".join(message["body"] for message in sent[1:]) == piece * 3 + b"</body>the end"
    assert [message["more_body"] for message in sent[1:]] == [True, False]
    assert [row["id"] for row in rows] == [None]


def test_a_head_request_is_logged_alone(stamp):
    sent, rows = stamp([start(HTML, (b"content-length", b"7")), *body(b"")], method="HEAD")
    assert (b"content-length", b"7") in sent[0]["headers"]
    assert [(row["page_status"], row["id"]) for row in rows] == [(200, None)]


def test_other_scopes_go_through(settings, secret, tmp_path):
    seen = []

    async def app(scope, receive, send):
        seen.append(scope)

    stamper = StampMiddleware(app, settings, secret, tmp_path / "log")
    for kind in ("lifespan", "websocket"):
        ask(stamper, {"type": kind})
    assert seen == [{"type": "lifespan"}, {"type": "websocket"}]
    assert (tmp_path / "log").read_bytes() == b""


def test_a_server_cannot_send_a_page_past_the_stamp(settings, secret, tmp_path):
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["extensions"])

    extensions = {"http.response.pathsend": {}, "http.response.zerocopysend": {}, "http.response.trailers": {}}
    scope = scope_of(extensions=extensions)
    ask(StampMiddleware(app, settings, secret, tmp_path / "log"), scope)
    assert seen == [{"http.response.trailers": {}}]
    assert len(scope["extensions"]) == 3  # the server's own scope is left alone


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"path": "/caf\u00e9 50%", "raw_path": b"/caf%c3%a9%2050%25?x"}, "/caf%C3%A9%2050%25"),
        ({"path": "/caf\u00e9 50%"}, "/caf%C3%A9%2050%25"),  # a server need not give the raw path
        ({"path": "/a?b#c\\d:e|%41 ", "raw_path": b"/a%3Fb%23c%5cd:e%7c%2541%20?f"}, "/a%3Fb%23c%5Cd:e%7C%2541%20"),
        ({"path": "/a?b#c\\d:e|%41 "}, "/a%3Fb%23c%5Cd:e%7C%2541%20"),
        ({"path": "/a/../b", "raw_path": b"/a/../b#c"}, "/b"),
    ],
)
def test_the_path_is_spelt_alike_with_and_without_raw_path(stamp, changes, path):
    _, rows = stamp([start(HTML), *body(b"</body>")], **changes)
    assert [(row["path"], row["label"]) for row in rows] == [(path, f"example|{path}")]


@pytest.mark.parametrize(("header", "ip"), [(None, "203.0.113.9"), ("X-Visitor", "192.0.2.7"), ("x-other", None)])
def test_where_the_visitors_address_comes_from(site, secret, tmp_path, header, ip):
    settings = read_edge_settings(site, ip_header=header)
    stamper = StampMiddleware(application(start(HTML), *body(b"")), settings, secret, tmp_path / "log")
    ask(stamper, scope_of(client=("203.0.113.9", 40_009), headers=[(b"X-visitor", b" 192.0.2.7")]))
    assert json.loads((tmp_path / "log").read_bytes())["ip"] == ip


def test_a_page_goes_out_unstamped_where_its_row_cannot_be_written(settings, secret, tmp_path, caplog):
    log = tmp_path / "secret-place" / "log"
    log.parent.mkdir()
    stamper = StampMiddleware(application(start(HTML), *body(b"<body></body>")), settings, secret, log)
    log.unlink()
    log.parent.rmdir()
    sent = ask(stamper, scope_of())
    assert sent[1]["body"] == b"<body></body>"
    assert "cannot be written" in caplog.text
    assert "secret-place" not in caplog.text


PAGE_BEGUN = (start(HTML), {"type": "http.response.body", "body": b"<body>", "more_body": True})
TEXT = start((b"content-type", b"text/plain"))


@pytest.mark.parametrize(
    ("messages", "sent", "status"),
    [
        (PAGE_BEGUN, 0, 500),  # nothing has gone out, so the server sends its own answer
        (PAGE_BEGUN[:1], 0, 500),
        ((), 0, 500),
        ((TEXT, PAGE_BEGUN[1]), 2, 200),
        ((start(HTML), *body(b"<body></body>")), 2, 200),
    ],
    ids=["page held", "page begun", "nothing", "text begun", "page sent"],
)
@pytest.mark.parametrize("failure", [RuntimeError("broken page"), asyncio.CancelledError(), None])
def test_a_request_is_logged_once_where_the_application_fails(
    settings, secret, tmp_path, messages, sent, status, failure
):
    went = []

    async def send(message):
        went.append(message)

    async def main():
        stamper = StampMiddleware(
            application(*messages, failure=failure), settings, secret, tmp_path / "log", lambda: NOW
        )
        await asyncio.gather(stamper(scope_of(), None, send), return_exceptions=True)

    asyncio.run(main())
    assert len(went) == sent
    rows = [json.loads(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert [(row["page_status"], row["vendor"], row["path"]) for row in rows] == [(status, "example", "/a")]
    assert (rows[0]["id"] is not None) == (messages[-1:] == tuple(body(b"<body></body>")))


def test_an_application_that_fails_before_its_page_is_whole_sends_nothing(settings, secret, tmp_path):
    stamper = StampMiddleware(
        application(*PAGE_BEGUN, failure=RuntimeError("broken page")), settings, secret, tmp_path / "log"
    )
    with pytest.raises(RuntimeError, match="broken page"):
        ask(stamper, scope_of())


def test_what_is_logged_is_read_back_and_joins_its_id(settings, secret, tmp_path):
    log = tmp_path / "log"
    times = iter((NOW, NOW + 1, NOW + 86_400_000))
    stamper = StampMiddleware(application(start(HTML), *body(b"</body>")), settings, secret, log, lambda: next(times))
    for agent in (b"ExampleBot/1", b"a reader", b"a reader"):
        ask(stamper, scope_of(headers=[(b"user-agent", agent)]))
    found = read_request_log(log)
    assert [row.tier for row in found.rows] == ["vendor", "window", "window"]
    assert [row.label for row in found.rows[1:]] == ["2031-03-10T00:00:00Z|/a", "2031-03-11T00:00:00Z|/a"]
    for row in found.rows:
        assert found.rows_of(edge_id(secret, row.tier, row.label)) == (row,)
    assert found.wrong_ids(secret) == ()
    assert found.wrong_ids(Secret(b"another secret of the edge")) == found.rows
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_log_may_be_moved_away(settings, secret, tmp_path):
    log = tmp_path / "log"
    stamper = StampMiddleware(application(start(HTML), *body(b"</body>")), settings, secret, log)
    ask(stamper, scope_of())
    log.rename(tmp_path / "log.1")
    ask(stamper, scope_of())
    assert [len((tmp_path / name).read_bytes().splitlines()) for name in ("log", "log.1")] == [1, 1]


def _append_many(path, letter):
    for length in range(1, 300):
        append(path, letter * (length * 31) + b"\n")


def test_lines_of_several_writers_do_not_mix(tmp_path):
    # Lines of up to 9 kB: two writes a line, or a buffer, would mix them.
    path = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(path, letter)) for letter in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = path.read_bytes().splitlines()
    assert sorted(len(line) for line in lines) == sorted([length * 31 for length in range(1, 300)] * 3)
    assert {len(set(line)) for line in lines} == {1}


def test_bad_settings_are_refused(settings, secret, site, tmp_path):
    app = application()
    with pytest.raises(UserError, match="expected an edge secret, found none"):
        StampMiddleware(app, settings, None, tmp_path / "log")
    with pytest.raises(UserError, match="request log that can be written, found No such file"):
        StampMiddleware(app, settings, secret, tmp_path / "none" / "log")
    with pytest.raises(UserError, match="marker in ASCII"):
        read_edge_settings(site, marker="<!--caf\u00e9-->")
    with pytest.raises(UserError, match="window of 1 to 3162240000 seconds, found 0"):
        read_edge_settings(site, window_seconds=0)
    # JavaScript's Headers.get throws for such a name, at every request.
    with pytest.raises(UserError, match="expected the name of a header"):
        read_edge_settings(site, ip_header="x visitor")


def test_settings_show_no_word(settings):
    assert repr(settings) == "EdgeSettings(...)"
    assert json.loads(edge_json(settings))["given"] == list(settings.vocabulary.given)
    assert EdgeSettings(settings.vocabulary, settings.shapes).agents == ()
