"""SD-37, SD-38 over a site's whole life: no word, sentence or secret in any output, file, log, error or `repr`."""

import asyncio
import json
import logging
import pickle
import re
import shutil
import stat
import traceback

import pytest
from typer.testing import CliRunner

from canaryjax.cli.app import app
from canaryjax.detector.edge.asgi import StampMiddleware
from canaryjax.detector.edge.settings import read_edge_settings
from canaryjax.detector.generation import read_generated
from canaryjax.detector.secret import read_secrets
from canaryjax.errors import UserError

# What is secret itself, and lies where its owner put it or asked for it; all other files may be shown.
SECRET_FILES = {"seed", "control_seed", "edge_secret", "sentences.jsonl", "again.jsonl", "page.html", "site.json"}
LISTS = {f"{name}.txt" for name in ("given", "surname", "place", "event", "archive")} | {"shapes.yaml"}
SIZES = ["--site", "3", "--linked", "1", "--sitemap", "2", "--honeypot", "1", "--per-rung", "2", "--negatives", "5"]


def run(*words, text=None):
    """What a command shows on both streams, or the traceback of what it raises."""
    done = CliRunner().invoke(app, ["detector", *map(str, words)], input=text)
    if done.exception is None or isinstance(done.exception, SystemExit):
        return done.output
    assert isinstance(done.exception, UserError)
    return done.output + "".join(traceback.format_exception(done.exception))


def stamp_and_log(root):
    """Two requests through the edge, the second with a log that cannot be written."""

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"<body></body>"})

    async def main():
        sent = []

        async def send(message):
            sent.append(message)

        settings, secret = read_edge_settings(root / "site"), read_secrets(root / "secrets").edge_secret
        for log in (root / "requests.jsonl", root / "gone" / "requests.jsonl"):
            log.parent.mkdir(exist_ok=True)
            stamper = StampMiddleware(application, settings, secret, log)
            if log.parent.name == "gone":
                shutil.rmtree(log.parent)
            await stamper({"type": "http", "method": "GET", "path": "/a", "headers": []}, None, send)
        return sent[1]["body"].decode()

    return asyncio.run(main())


@pytest.fixture(scope="module")
def life(tmp_path_factory):
    """A site from its secrets to the reading of a stamped page: its folder, and all that was shown by the way."""
    root = tmp_path_factory.mktemp("life")
    site, keys = root / "site", ["--secrets", root / "secrets"]
    heard: list[str] = []
    handler = logging.Handler(0)
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    shown = [
        run("secrets", root / "secrets"),
        run("lists", site, "--seed", 3),
        run("generate", site, *keys, *SIZES),  # refused: throw-away lists
        run("generate", site, *keys, "--throw-away", "--write-sentences", root / "sentences.jsonl", *SIZES),
        run("generate", site, *keys, "--throw-away", *SIZES),  # refused: dealt already
        run("sentences", site, *keys, "--out", root / "again.jsonl"),
        run("verify", site, *keys),
        run("edge", site, "--out", root / "worker"),
    ]
    rows = [stamp_and_log(root), *(root / "sentences.jsonl").read_text().splitlines()]
    # Apart, so that no id is made by chance of two sentences' words (once in 50 runs if they stood together).
    (root / "page.html").write_text(f"\n{'x ' * 80}".join(rows))
    shown.append(run("decode", root / "page.html", "--site", site, *keys, "--log", root / "requests.jsonl"))
    generated = read_generated(site, root / "secrets")
    shown += [repr(generated), repr(vars(generated)), *heard]
    with pytest.raises(TypeError) as caught:
        pickle.dumps(generated)
    logging.getLogger().removeHandler(handler)
    assert heard
    return root, [*shown, str(caught.value)]


def words_of(root):
    return {word.lower() for name in LISTS - {"shapes.yaml"} for word in (root / "site" / name).read_text().split()}


def keys_of(root):
    return [(root / "secrets" / name).read_text().strip() for name in ("seed", "control_seed", "edge_secret")]


def leaks(root, text):
    """How many words, pieces of sentences and secrets stand in a text."""
    rows = [json.loads(line) for line in (root / "sentences.jsonl").read_text().splitlines()]
    # The words of a list stand whole between others; hex digits alone could make one.
    words = words_of(root) & set(re.findall(r"\w+", text.lower()))
    starts = {" ".join(row["sentence"].split()[:4]) for row in rows}
    return len(words) + sum(piece in text for piece in [*starts, *keys_of(root)])


def test_what_is_looked_for_is_found_where_it_is(life):
    root, _ = life
    assert leaks(root, (root / "sentences.jsonl").read_text()) > 60  # 15 of each field but the year, some perhaps twice
    assert leaks(root, (root / "page.html").read_text()) > 60
    assert all(leaks(root, (root / "secrets" / name).read_text()) == 1 for name in ("seed", "edge_secret"))
    assert leaks(root, (root / "worker" / "site.json").read_text()) > 4 * 4096


def test_no_file_but_the_secret_ones_holds_any(life):
    root, _ = life
    others = [path for path in root.rglob("*") if path.is_file() and path.name not in SECRET_FILES | LISTS]
    assert {path.name for path in others} == {
        "THROWAWAY",
        "manifest.json",
        "commitment.json",
        "canary.js",
        "requests.jsonl",
    }
    assert [path.name for path in others if leaks(root, path.read_text())] == []
    assert '"id":"' in (root / "requests.jsonl").read_text()  # stamped, or the log would have little to hide


def test_no_output_shows_any(life):
    root, shown = life
    assert "expected word lists of your own" in shown[2]
    assert "a site is dealt once" in shown[4]
    assert len(re.findall(r"\.html: [0-9a-f]{12} ", shown[8])) == 16  # 15 of the manifest, 1 of the edge
    assert [text for text in shown if leaks(root, text)] == []


def test_secret_files_are_their_owners_alone(life):
    root, _ = life
    made = SECRET_FILES - {"page.html"} | {"manifest.json", "requests.jsonl", "canary.js"}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.name in made}
    assert modes == dict.fromkeys(made, 0o600)


MISTAKES = {
    "twice": ("given.txt", lambda text: text.replace(text.split()[7], text.split()[8])),
    "too long": ("place.txt", lambda text: text.replace(text.split()[7], " ".join(text.split()[:9]), 1)),
    "markup": ("event.txt", lambda text: text.replace("\n", "&\n", 1)),
    "order": ("surname.txt", lambda text: "\n".join(reversed(text.split()))),
    "broken": ("shapes.yaml", lambda text: text.replace("- '{opening}", "- ['{opening}", 1)),
    "field": ("shapes.yaml", lambda text: text.replace("{archive}", "", 1)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_no_mistake_shows_any(life, tmp_path, name):
    root, _ = life
    shutil.copytree(root / "site", tmp_path / "site")
    file, change = MISTAKES[name]
    path = tmp_path / "site" / file
    path.write_text(change(path.read_text()))
    shown = run("verify", tmp_path / "site", "--secrets", root / "secrets")
    assert "UserError: expected" in shown
    assert file in shown
    assert leaks(root, shown) == 0


def test_no_mistake_with_a_secret_shows_any(life, tmp_path):
    root, _ = life
    shutil.copytree(root / "secrets", tmp_path / "secrets")
    seed, _, _ = keys_of(root)
    for spoilt in (seed[::-1], seed[:11], f"{seed[:20]} {seed[20:]}"):
        (tmp_path / "secrets" / "seed").write_text(spoilt)
        shown = run("verify", root / "site", "--secrets", tmp_path / "secrets")
        assert "UserError: expected" in shown
        assert seed[:11] not in shown
        assert seed[::-1] not in shown
