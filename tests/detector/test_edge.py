"""The edge's two implementations, Python and JavaScript, on the same vectors: equal in every byte (SD-13, SD-14)."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from canaryjax.detector.derive import edge_id
from canaryjax.detector.edge.asgi import StampMiddleware
from canaryjax.detector.edge.settings import EdgeSettings, edge_json
from canaryjax.detector.edge.stamp import (
    Visit,
    canonical_path,
    edition_for,
    escaped,
    log_line,
    log_row,
    stamped,
)
from canaryjax.detector.secret import Secret
from canaryjax.detector.sentence import fact_of, render
from canaryjax.detector.shapes import Shapes
from canaryjax.detector.vocabulary import Vocabulary

DRIVER = Path(__file__).with_name("edge_driver.mjs")
GOLDEN = Path(__file__).with_name("golden") / "code_v1.json"
KEY = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
SECRET = Secret(KEY.encode())
NOW = 1_930_893_071_017  # 2031-03-10T07:11:11.017Z
AGENTS = (("ExampleBot", "example"), ("other bot", "second"), ("bot", "third"))


def words(stem, n):
    # Characters that HTML, a template or JSON could trip over; each entry is its own.
    odd = ("{0}{1}", "{0}\u00e9{1}", "{0} & {1}", "<{0}{1}>", '{0}\'s "{1}"', "{0}\U0001f600{1}", "{{year}}{0}$&{1}")
    return tuple(odd[i % len(odd)].format(stem, i) for i in range(n))


VOCABULARY = Vocabulary(
    given=words("Given", 4096),
    surname=words("Surname", 4096),
    place=words("Place", 4096),
    event=words("Event", 4096),
    archive=words("Archive", 64),
    first_year=1701,
    years=157,
)
SHAPES = Shapes(
    sentences=(
        "{opening} {given} {surname}, of {place}, is in {archive} for the {event} of {year}.",
        "{opening} {given} {surname} made {event} at {place} in {year} ({archive}).",
        "{opening} {given} {surname}: {year}, {event}, {place}; {archive}.",
    ),
    openings=("It is said that", "$1 one hears of", "L\u00e0,", "Nobody \u2014 but", "Once"),
    questions={},
    famous=(),
    first_year=1701,
    years=157,
)
SETTINGS = EdgeSettings(VOCABULARY, SHAPES, AGENTS, "<!--edition-->", 7_919, "x-visitor")

RNG = random.Random(11)
# All ids but the last few are random; those that a double or a 32-bit shift would spoil are sure to be there.
EDGE_IDS = [0, 1, 2**31, 2**32 - 1, 2**32, 2**47 - 1, 2**47, 2**47 + 1, 2**48 - 1, 0xFFF << 36, 0x800000000001]
IDS = [*EDGE_IDS, *(RNG.getrandbits(48) for _ in range(10_000))]
LABELS = [
    (RNG.choice(("vendor", "window")), f"{RNG.choice(('example', '2031-03-10T05:00:00Z'))}|/page/{i}")
    for i in range(997)
]
LABELS += [("vendor", "example|/"), ("window", "example|/"), ("vendor", "caf\u00e9|/\U0001f600")]
PATHS = [
    "/",
    "/a/b.html",
    "/a//b///",
    "/a/./b/../c",
    "/../../x",
    "/a/..",
    "/a/.",
    "/a/%2e%2E/b",
    "/a/.%2e",
    "/x%2Fy/../z",
    "/%7euser/%41%2f%2F%zz%",
    '/a b"c<d>e`f{g}h|i^j\\k/..\\l',
    "/~a!$&'()*+,;=:@-._",
    "/caf\u00e9/\u65e5\u672c/\U0001f600",
    "/%E9%ff",
    "/...//....",
    "/" + "long/" * 1_000,
]
TEXTS = [
    "",
    "plain",
    '<a href="x">&amp;\'</a>',
    "caf\u00e9 \u2019 \U0001f600 \u00a0\u00ad\u200b",
    "\x7f\u0080",
    "$& $1 {x}",
]
MARKED = b"<html><body><p><!--edition--></p><p>More.</p></body></html>"
PAGES = {
    "marked": MARKED,
    "marker twice": b"<p><!--edition--></p><!--edition--></body>",
    "upper case": b"<HTML><BODY>Text</BODY ></HTML>",
    "two body ends": b"<body><script>'</body>'</script></BoDy\n></html>",
    "no body": b"<p>A fragment</p>",
    "not quite a body end": b"<p></bodyguard> </ body></p>",
    "empty": b"",
    "utf-8": "<body>caf\u00e9 \u65e5\u672c \U0001f600</body>".encode(),
    "utf-8 with mark": b"\xef\xbb\xbf" + MARKED,
    "latin-1": "<body>caf\u00e9</body>".encode("latin-1"),
    "every byte": bytes(range(256)) + b"</body\x0c>" + bytes(range(255, -1, -1)),
    "broken utf-8": b"<body>\xc3</body>\xe2\x82",
    "utf-16": MARKED.decode().encode("utf-16"),
    "shift-jis": "<body>\u65e5\u672c\u8a9e\u8868</body>".encode("shift-jis"),
    "large": b"<body>" + b"word \xff" * 100_003 + b"</body>",
}
USER_AGENTS = [
    None,
    "",
    "Mozilla/5.0 (X; EXAMPLEBOT/1)",
    "an Other Bot",
    "robots",
    'plain \u00e9 \u0085 \u00ff"',
    "x" * 600,
]


def visit(page, path="/a/b", agent=USER_AGENTS[2], ip="192.0.2.7", now=NOW, method="GET", **more):
    headers = {name: value for name, value in (("user-agent", agent), ("x-visitor", ip)) if value is not None}
    return {"page": page, "path": path, "method": method, "headers": headers, "now": now, **more}


VISITS = [visit(page) for page in PAGES.values()]
VISITS += [visit(MARKED, agent=agent, ip=None) for agent in USER_AGENTS]
VISITS += [visit(MARKED, path=path, agent=None) for path in PATHS]
VISITS += [visit(MARKED, agent=None, now=now) for now in (0, 1, 999, 7_918_999, 7_919_000, NOW, 4_102_444_799_999)]


def wire(one):
    """A visit for the driver: pages in base64, a whole address."""
    return one | {"page": base64.b64encode(one["page"]).decode(), "url": f"https://site.example{one['path']}"}


def run_node(**vectors):
    nothing = {name: [] for name in ("ids", "labels", "paths", "texts", "visits", "responses", "refused")}
    env = {"CANARY_EDGE_SECRET": f"{KEY}\n", "CANARY_SITE": edge_json(SETTINGS)}
    node = shutil.which("node")
    if node is None:
        assert os.environ.get("CI") != "true", "Node.js is missing: the worker's module would go untested"
        pytest.skip("needs Node.js")
    done = subprocess.run(
        [node, "--no-warnings", str(DRIVER)],
        input=json.dumps({"env": env} | nothing | vectors).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return SimpleNamespace(**json.loads(done.stdout))


@pytest.fixture(scope="module")
def worker():
    """What the JavaScript module makes of all vectors."""
    refused = [
        {"CANARY_SITE": edge_json(SETTINGS)},
        {"CANARY_EDGE_SECRET": KEY},
        {"CANARY_EDGE_SECRET": KEY, "CANARY_SITE": edge_json(SETTINGS)[:-1000]},
        {"CANARY_EDGE_SECRET": KEY, "CANARY_SITE": {"version": 2}},
        {"CANARY_EDGE_SECRET": KEY, "CANARY_SITE": {"version": 1, "given": ["Gorba"]}},
    ]
    visits = [wire(one) for one in VISITS]
    return run_node(
        ids=[str(one) for one in IDS], labels=LABELS, paths=PATHS, texts=TEXTS, visits=visits, refused=refused
    )


def test_ten_thousand_random_ids_give_the_same_sentence(worker):
    assert len(worker.sentences) == len(IDS) > 10_000
    assert worker.sentences == [render(one, VOCABULARY, SHAPES) for one in IDS]


def test_ids_of_labels_agree(worker):
    # An oracle beside the two: the spec's words, with the standard library alone.
    def mac(tier, label):
        return hmac.new(KEY.encode(), f"canaryjax-canary/1/{tier}/{label}".encode(), hashlib.sha256).hexdigest()[:12]

    assert [int(one) for one in worker.ids] == [edge_id(SECRET, tier, label) for tier, label in LABELS]
    assert [f"{int(one):012x}" for one in worker.ids] == [mac(tier, label) for tier, label in LABELS]
    assert max(int(one) for one in worker.ids) > 2**47


def test_sentences_are_escaped_alike(worker):
    assert worker.texts == [escaped(text).decode() for text in TEXTS]
    assert worker.texts[2] == "&lt;a href=&quot;x&quot;&gt;&amp;amp;&#x27;&lt;/a&gt;"
    assert worker.texts[3].startswith("caf&#233; &#8217; &#128512; &#160;")


def test_a_path_has_one_spelling(worker):
    assert worker.paths == [canonical_path(path.encode()) for path in PATHS]
    assert worker.paths[3:8] == ["/a/c", "/x", "/", "/a/", "/b"]
    assert worker.paths[10] == "/~user/A%2F%2F%25zz%25"
    assert len(worker.paths[-1]) == 2048


@pytest.mark.parametrize("number", range(len(VISITS)))
def test_whole_pages_and_log_rows_agree(worker, number):
    page, line = worker.stamped[number]
    one = VISITS[number]
    seen = Visit(
        one["now"],
        canonical_path(one["path"].encode()),
        one["headers"].get("x-visitor"),
        one["headers"].get("user-agent"),
    )
    edition = edition_for(seen, SETTINGS, SECRET)
    changed = stamped(one["page"], edition.id, SETTINGS)
    row = log_row(seen, edition.vendor, edition if changed is not None else None, 200)
    assert base64.b64decode(page) == (one["page"] if changed is None else changed)
    assert line.encode() == log_line(row)


def test_where_the_sentence_goes(worker):
    pages = dict(zip(PAGES, (base64.b64decode(page) for page, _ in worker.stamped), strict=False))
    sentence = escaped(render(edge_id(SECRET, "vendor", "example|/a/b"), VOCABULARY, SHAPES))
    assert pages["marked"] == MARKED.replace(b"<!--edition-->", sentence)
    assert pages["marker twice"] == b"<p>" + sentence + b"</p><!--edition--></body>"
    assert pages["upper case"] == b"<HTML><BODY>Text<p>" + sentence + b"</p>\n</BODY ></HTML>"
    assert pages["two body ends"] == b"<body><script>'</body>'</script><p>" + sentence + b"</p>\n</BoDy\n></html>"
    for name in ("no body", "not quite a body end", "empty", "utf-16"):
        assert pages[name] == PAGES[name]
    assert pages["latin-1"] == b"<body>caf\xe9<p>" + sentence + b"</p>\n</body>"


def test_rows_name_the_edition_and_hold_no_sentence(worker):
    row = json.loads(worker.stamped[0][1])
    number = edge_id(SECRET, "vendor", "example|/a/b")
    assert row == {
        "time": "2031-03-10T07:11:11.017Z",
        "path": "/a/b",
        "ip": "192.0.2.7",
        "user_agent": "Mozilla/5.0 (X; EXAMPLEBOT/1)",
        "vendor": "example",
        "tier": "vendor",
        "label": "example|/a/b",
        "id": f"{number:012x}",
        "page_status": 200,
    }
    unclaimed = json.loads(worker.stamped[len(PAGES)][1])
    assert (unclaimed["vendor"], unclaimed["tier"], unclaimed["ip"]) == (None, "window", None)
    start = NOW // 7_919_000 * 7_919_000
    assert unclaimed["label"].endswith("Z|/a/b")
    assert start <= NOW < start + 7_919_000
    vendors = [json.loads(line)["vendor"] for _, line in worker.stamped[len(PAGES) : len(PAGES) + len(USER_AGENTS)]]
    assert vendors == [None, None, "example", "second", "third", None, None]
    for _, line in worker.stamped:
        found = json.loads(line)
        if found["id"] is not None:
            fact = fact_of(int(found["id"], 16), VOCABULARY)
            assert not any(word in line for word in (fact.given, fact.surname, fact.place, fact.event, fact.archive))


def test_windows_begin_where_they_begin(worker):
    # 7,919 s: the window is no divisor of a day, so rounding to the hour or the day would show.
    labels = [json.loads(line)["label"] for _, line in worker.stamped[-7:]]
    assert labels[:3] == ["1970-01-01T00:00:00Z|/a/b"] * 3
    assert labels[3] == "1970-01-01T00:00:00Z|/a/b"
    assert labels[4] == "1970-01-01T02:11:59Z|/a/b"


def test_bad_settings_are_refused_without_a_word_of_them(worker):
    assert all(worker.refused), worker.refused
    assert "CANARY_EDGE_SECRET" in worker.refused[0]
    assert "4096 entries of given" in worker.refused[4]
    assert "Gorba" not in "".join(worker.refused)
    assert "Given" not in worker.refused[2]


ANSWERS = {
    "page": visit(MARKED, status=200, answer={"content-type": "Text/HTML; charset=utf-8", "etag": '"a"', "x-own": "b"}),
    "xhtml": visit(MARKED, status=200, answer={"content-type": "application/xhtml+xml", "cache-control": "public"}),
    "no place": visit(b"<p>", status=200, answer={"content-type": "text/html", "etag": '"c"'}),
    "not found": visit(MARKED, status=404, answer={"content-type": "text/html"}),
    "text": visit(MARKED, status=200, answer={"content-type": "text/plain"}),
    "no type": visit(MARKED, status=200, answer={}),
    "posted": visit(MARKED, method="POST", status=200, answer={"content-type": "text/html"}),
    "too large": visit(MARKED + b" " * 2**23, status=200, answer={"content-type": "text/html", "etag": '"d"'}),
    "log broken": visit(MARKED, status=200, broken=True, answer={"content-type": "text/html", "etag": '"e"'}),
}
STAMPED = ("page", "xhtml")


@pytest.fixture(scope="module")
def answers():
    """What the JavaScript module sends and logs for each answer of the site."""
    found = run_node(responses=[wire(one) for one in ANSWERS.values()]).responses
    return {
        name: (base64.b64decode(page), lines, dict(headers))
        for name, (page, lines, headers) in zip(ANSWERS, found, strict=True)
    }


def asgi_answer(one, tmp_path):
    """The same from the middleware, for the scope that a server makes of the request."""
    log = tmp_path / "requests.jsonl"

    async def app(scope, receive, send):
        headers = [(name.encode(), value.encode("latin-1")) for name, value in one["answer"].items()]
        await send({"type": "http.response.start", "status": one["status"], "headers": headers})
        await send({"type": "http.response.body", "body": one["page"]})

    async def main():
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        stamper = StampMiddleware(app, SETTINGS, SECRET, log, lambda: one["now"])
        if one.get("broken"):
            log.unlink()
            log.mkdir()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": one["method"],
            "scheme": "https",
            "path": one["path"],
            "raw_path": one["path"].encode(),
            "query_string": b"a=b",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in one["headers"].items()],
            "client": ("203.0.113.9", 40_009),
            "server": ("site.example", 443),
        }
        await stamper(scope, receive, send)
        return sent

    start, body = asyncio.run(main())
    lines = log.read_text("utf-8").splitlines(keepends=True) if log.is_file() else []
    return body["body"], lines, {key.decode(): value.decode() for key, value in start["headers"]}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_go_out_alike(answers, tmp_path, name):
    page, lines, headers = answers[name]
    assert asgi_answer(ANSWERS[name], tmp_path) == (page, lines, headers)
    # Hand-written, so that both cannot be wrong alike.
    assert (page != ANSWERS[name]["page"]) == (name in STAMPED)
    if name in STAMPED:
        own = {"content-type": ANSWERS[name]["answer"]["content-type"]} | ({"x-own": "b"} if name == "page" else {})
        assert headers == own | {"cache-control": "private, no-store", "content-length": str(len(page))}
    else:
        assert headers == ANSWERS[name]["answer"]
    assert len(lines) == (name != "log broken")
    for line in lines:
        row = json.loads(line)
        assert (row["id"] is not None) == (row["tier"] is not None) == (name in STAMPED)
        assert (row["page_status"], row["vendor"]) == (ANSWERS[name]["status"], "example")
