"""The edge's two implementations, Python and JavaScript, on the same vectors: equal in every byte (SD-13, SD-14)."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import random
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from canaryjax.cli.detector import app
from canaryjax.detector.derive import edge_id
from canaryjax.detector.edge import stamp
from canaryjax.detector.edge.asgi import StampMiddleware
from canaryjax.detector.edge.settings import EdgeSettings, edge_json, read_edge_settings
from canaryjax.detector.edge.stamp import (
    Visit,
    canonical_path,
    edition_for,
    escaped,
    log_line,
    log_row,
    stamped,
)
from canaryjax.detector.secret import Secret, make_secrets, read_secrets
from canaryjax.detector.sentence import fact_of, render
from canaryjax.detector.shapes import Shapes
from canaryjax.detector.throwaway import make_site_lists
from canaryjax.detector.vocabulary import Vocabulary
from canaryjax.errors import UserError

DRIVER = Path(__file__).with_name("edge_driver.mjs")
GOLDEN = json.loads((Path(__file__).with_name("golden") / "code_v1.json").read_text("utf-8"))
MODULE = Path(stamp.__file__).with_name("canary.js")
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


def run_node(module=MODULE, **vectors):
    nothing = {
        name: [] for name in ("ids", "labels", "paths", "texts", "visits", "responses", "refused", "sites", "streams")
    }
    env = vectors.pop("env", None) or {"CANARY_EDGE_SECRET": f"{KEY}\n", "CANARY_SITE": edge_json(SETTINGS)}
    node = shutil.which("node")
    if node is None:
        assert os.environ.get("CI") != "true", "Node.js is missing: the worker's module would go untested"
        pytest.skip("needs Node.js")
    with tempfile.TemporaryDirectory() as folder:
        # By this name every version of Node.js takes it for the ES module that an edge takes it for.
        copy = shutil.copyfile(module, Path(folder) / "canary.mjs")
        done = subprocess.run(
            [node, str(DRIVER), str(copy)],
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
    assert (base64.b64decode(page), line) == python_page(VISITS[number])


def python_page(one):
    """A visit's page and row from the Python side."""
    headers = one["headers"]
    path = canonical_path(one["path"].encode())
    seen = Visit(one["now"], path, headers.get("x-visitor"), headers.get("user-agent"))
    edition = edition_for(seen, SETTINGS, SECRET)
    changed = stamped(one["page"], edition.id, SETTINGS)
    row = log_row(seen, edition.vendor, None if changed is None else edition, 200)
    return one["page"] if changed is None else changed, log_line(row).decode()


def test_a_thousand_random_pages_and_paths_agree():
    pages = (
        b"<!--edition-->",
        b"<!--edition",
        b"</body>",
        b"</BoDy ",
        b"</body",
        b">",
        b"\xff",
        b"\x00\xa0",
        b"caf\xc3\xa9 ",
    )
    paths = (
        "/",
        "\\",
        ".",
        "..",
        "%2e",
        "%2E",
        "%",
        "%2",
        "%2F",
        "%5c",
        "%7E",
        "a",
        "\u00e9",
        " ",
        "'",
        "^",
        "|",
        "{",
        "[",
        "//",
    )
    visits = [
        visit(
            b"".join(RNG.choices(pages, k=RNG.randrange(13))),
            path="/" + "".join(RNG.choices(paths, k=RNG.randrange(11))).rstrip(" "),  # no request line ends in one
            agent=RNG.choice(USER_AGENTS),
            now=RNG.randrange(2**42),
        )
        for _ in range(1000)
    ]
    found = [(base64.b64decode(page), line) for page, line in run_node(visits=[wire(one) for one in visits]).stamped]
    assert found == [python_page(one) for one in visits]
    assert len({page for page, _ in found}) > 500


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


BAD = {
    "archive": [None, "x" * 64, ["x"] * 63, ["x"] * 8, [7] * 64],
    "agents": [None, [["bot"]], [["bot", None]], {}],
    "sentences": [None, [], "x", ["{opening} {given}"], [SHAPES.sentences[0] + "{year}"], [SHAPES.sentences[0], None]],
    "openings": [None, [], [""]],
    "window_seconds": [None, 0, -1, 1.5, "7919", 3_162_240_001],
    "first_year": [None, 999, 10_000, "1701"],
    "years": [None, 1, 4097, 2.5],
    "marker": [None, "", "  ", "caf\u00e9", 7],
    "ip_header": [0, "", "x visitor", "X-Visitor", "caf\u00e9"],
    "given": [None, ["x"] * 4095, ["x"] * 4095 + [None]],
}
GOOD = {
    "archive": [["x"] * 16, ["x"] * 4096],
    "agents": [[]],
    "window_seconds": [1, 3_162_240_000],
    "years": [2, 4096],
    "ip_header": [None, "x-real_ip"],
}


def with_setting(key, value):
    """Settings with one key of another value; None leaves it out."""
    kept = {name: old for name, old in json.loads(edge_json(SETTINGS)).items() if name != key}
    return {"CANARY_EDGE_SECRET": KEY, "CANARY_SITE": kept if value is None else kept | {key: value}}


def test_settings_that_python_does_not_write_are_refused_when_they_are_read():
    bad = [(key, with_setting(key, value)) for key, values in BAD.items() for value in values]
    found = run_node(refused=[one for _, one in bad]).refused
    for (key, _), said in zip(bad, found, strict=True):
        assert said is not None, key
        assert f" of {key} in CANARY_SITE, found other; write it anew" in said
    good = [with_setting(key, value) for key, values in GOOD.items() for value in values if value is not None]
    good.append({"CANARY_EDGE_SECRET": KEY, "CANARY_SITE": json.loads(edge_json(SETTINGS)) | {"ip_header": None}})
    assert run_node(refused=good).refused == [None] * 9


SECRETS = {
    "none": (None, "found none"),
    "empty": ("", "found none"),
    "blank": (" \n", "found none"),
    "15": ("k" * 15 + "\n" * 7, "found another text"),
    "16": ("\t\x0b " + "k" * 16 + "\r\n\x0c", None),
    "4096": ("k" * 4096, None),
    "4097": ("k" * 4096 + "\n", "found another text"),
    "accent": ("\u00e9" * 17, "found another text"),
    "blank within": ("k" * 8 + " " + "k" * 8, "found another text"),
    "no-break space": ("\u00a0" + "k" * 17, "found another text"),
    "delete": ("k" * 17 + "\x7f", "found another text"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_the_worker_takes_the_secrets_that_python_takes(tmp_path, name):
    secret, wrong = SECRETS[name]
    (said,) = run_node(refused=[{"CANARY_EDGE_SECRET": secret, "CANARY_SITE": edge_json(SETTINGS)}]).refused
    assert (said is None) == (wrong is None)
    assert wrong is None or wrong in said
    assert "kkk" not in (said or "")
    if secret is not None:
        make_secrets(tmp_path)
        (tmp_path / "edge_secret").write_bytes(secret.encode())
        with contextlib.nullcontext() if wrong is None else pytest.raises(UserError):
            read_secrets(tmp_path)


ANSWERS = {
    "page": visit(MARKED, status=200, answer={"content-type": "Text/HTML; charset=utf-8", "etag": '"a"', "x-own": "b"}),
    "xhtml": visit(MARKED, status=200, answer={"content-type": "application/xhtml+xml", "cache-control": "public"}),
    "no place": visit(b"<p>", status=200, answer={"content-type": "text/html", "etag": '"c"'}),
    "not found": visit(MARKED, status=404, answer={"content-type": "text/html"}),
    "text": visit(MARKED, status=200, answer={"content-type": "text/plain"}),
    "no type": visit(MARKED, status=200, answer={}),
    "posted": visit(MARKED, method="POST", status=200, answer={"content-type": "text/html"}),
    "too large": visit(MARKED + b" " * 2**23, status=200, answer={"content-type": "text/html", "etag": '"d"'}),
    "at the limit": visit(MARKED + b" " * (2**23 - len(MARKED)), status=200, answer={"content-type": "text/html"}),
    "log broken": visit(MARKED, status=200, broken=True, answer={"content-type": "text/html", "etag": '"e"'}),
}
STAMPED = ("page", "xhtml", "at the limit")


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


def stream(parts, size, **more):
    return wire(visit(b"", answer={"content-type": "text/html", "etag": '"f"'}, parts=parts, size=size, **more))


def test_a_stream_beyond_the_limit_is_let_go_before_its_end():
    """It is never held as a whole: a page without end would fill the worker's memory, and its reader wait for ever."""
    (found,) = run_node(streams=[stream(23, 2**20)]).streams
    assert 9 <= found["held"] <= 10  # 8 MiB, the part that is more, and one on its way
    assert found["made"] == 23
    assert found["sha256"] == hashlib.sha256(b"".join(bytes([i]) * 2**20 for i in range(23))).hexdigest()
    assert dict(found["headers"]) == {"content-type": "text/html", "etag": '"f"'}
    assert [(row["id"], row["page_status"]) for row in map(json.loads, found["lines"])] == [(None, 200)]


def test_a_reader_that_leaves_ends_the_stream_that_was_let_go():
    (found,) = run_node(streams=[stream(23, 2**20, cancels=True)]).streams
    assert found["cancelled"]
    assert found["made"] <= 10


def test_a_page_that_breaks_while_it_is_held_is_logged():
    (found,) = run_node(streams=[stream(5, 7, fails=3)]).streams
    assert found["error"] == "broken page"
    assert [(row["id"], row["page_status"]) for row in map(json.loads, found["lines"])] == [(None, 500)]


def golden_site(archive, first_year, years, shapes, openings):
    """A site whose sentences spell out the places that an id points at."""
    lists = {field: tuple(f"{field} {i}" for i in range(4096)) for field in ("given", "surname", "place", "event")}
    vocabulary = Vocabulary(**lists, archive=tuple(map(str, range(archive))), first_year=first_year, years=years)
    fields = "{opening},{given},{surname},{place},{event},{archive},{year}"
    texts = tuple(f"{fields},{i}" for i in range(shapes))
    return EdgeSettings(vocabulary, Shapes(texts, tuple(map(str, range(openings))), {}, (), first_year, years))


def spelt(code, archive, first_year, years, shapes, openings):
    """The sentence that a golden vector asks for on such a site."""
    year = code["year"][GOLDEN["years"].index([first_year, years])]
    return (
        f"{code['opening'][str(openings)]},given {code['given']},surname {code['surname']},place {code['place']},"
        f"event {code['event']},{code['archive'][str(archive)]},{year},{code['shape'][str(shapes)]}"
    )


def test_golden_vectors_of_the_code():
    # 45 sites: each size of the archive with each span of years, shapes and openings beside it.
    codes, first = GOLDEN["codes"], GOLDEN["codes"][0]
    shapes, openings = (sorted(map(int, first[key])) for key in ("shape", "opening"))
    sizes = [
        (int(archive), *GOLDEN["years"][i], shapes[i], openings[i]) for archive in first["archive"] for i in range(3)
    ]
    sites = [golden_site(*size) for size in sizes]
    wanted = [[spelt(code, *size) for code in codes] for size in sizes]
    ids = [int(code["id"], 16) for code in codes]
    vectors = [[edge_json(site), [str(one) for one in ids]] for site in sites]
    labels = [[one["kind"], one["label"]] for one in GOLDEN["derived"] if "label" in one]
    env = {"CANARY_EDGE_SECRET": GOLDEN["secrets"]["edge_secret"], "CANARY_SITE": edge_json(SETTINGS)}
    found = run_node(env=env, sites=vectors, labels=labels)
    assert found.sites == wanted
    assert [[render(one, site.vocabulary, site.shapes) for one in ids] for site in sites] == wanted
    derived = [one["id"] for one in GOLDEN["derived"] if "label" in one]
    assert [f"{int(one):012x}" for one in found.ids] == derived
    assert len(derived) >= 8
    assert len(ids) >= 40


def test_what_the_command_writes_stamps_as_the_middleware_does(tmp_path):
    make_site_lists(tmp_path / "site", 31)
    (tmp_path / "site" / "crawlers.yaml").write_text("example: {agents: [ExampleBot]}")
    words = [
        "edge",
        tmp_path / "site",
        "--out",
        tmp_path / "worker",
        "--window-seconds",
        7919,
        "--ip-header",
        "X-Visitor",
    ]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert "crawlers.yaml names crawlers of 1 vendor\n" in done.output
    module, site = tmp_path / "worker" / "canary.js", tmp_path / "worker" / "site.json"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (module.parent, module, site)] == [0o700, 0o600, 0o600]

    settings = read_edge_settings(tmp_path / "site", window_seconds=7919, ip_header="x-visitor")
    env = {"CANARY_EDGE_SECRET": KEY, "CANARY_SITE": json.loads(site.read_text("utf-8"))}  # parsed, as a bundler does
    found = run_node(module=module, env=env, visits=[wire(visit(MARKED)), wire(visit(MARKED, agent=None))])
    for (page, line), agent in zip(found.stamped, (USER_AGENTS[2], None), strict=True):
        seen = Visit(NOW, "/a/b", "192.0.2.7", agent)
        edition = edition_for(seen, settings, SECRET)
        assert base64.b64decode(page) == stamped(MARKED, edition.id, settings)
        assert line.encode() == log_line(log_row(seen, edition.vendor, edition, 200))
    again = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(again.exception, UserError)
    assert "expected a new folder" in str(again.exception)
