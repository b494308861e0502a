"""`canaryjax detector` secrets, lists, generate, sentences, verify, decode: what they write, print and refuse."""

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from canaryjax.cli.app import app
from canaryjax.detector.derive import edge_id
from canaryjax.detector.secret import Secret
from canaryjax.errors import UserError

SIZES = ["--site", "3", "--linked", "1", "--sitemap", "2", "--honeypot", "1", "--per-rung", "2", "--negatives", "5"]


def run(*words, text=None):
    """What a command prints; its UserError is raised as it is."""
    done = CliRunner().invoke(app, ["detector", *map(str, words)], input=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A generated site, with what `generate` printed."""
    root = tmp_path_factory.mktemp("root")
    run("secrets", root / "secrets")
    run("lists", root / "site", "--seed", 3)
    words = ["--secrets", root / "secrets", "--throw-away", "--write-sentences", root / "sentences.jsonl"]
    (root / "printed").write_text(run("generate", root / "site", *words, *SIZES))
    return root


@pytest.fixture
def copy(root, tmp_path):
    shutil.copytree(root, tmp_path / "root")
    return tmp_path / "root"


def rows_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def entries_of(root):
    return json.loads((root / "site" / "manifest.json").read_text())["entries"]


def words_of(root):
    return [word for path in (root / "site").glob("*.txt") for word in path.read_text("utf-8").splitlines()]


def test_the_files_sentences_are_the_published_ones(root):
    rows, entries = rows_of(root / "sentences.jsonl"), entries_of(root)
    published = [entry for entry in entries if entry["population"] == "canary"]
    assert [(row["id"], row["tier"], row["rung"], row["cohort"]) for row in rows] == [
        (entry["id"], entry["tier"], entry["occurrences"], entry["cohort"]) for entry in published
    ]
    assert stat.S_IMODE((root / "sentences.jsonl").stat().st_mode) == 0o600
    given = (root / "site" / "given.txt").read_text().splitlines()
    assert all(given[int(row["id"], 16) >> 36] in row["sentence"] for row in rows)


def test_generate_says_what_goes_where_and_shows_no_text(root):
    printed = (root / "printed").read_text()
    commitment = json.loads((root / "site" / "commitment.json").read_text())["sha256_of_manifest"]
    assert f"commitment {commitment}: show it" in printed
    for line in (
        "3 site sentences, each on 1 page: on pages of the site",
        "1 cohort sentences, each on 1 page: on pages that robots.txt forbids and only an invisible link leads to",
        "2 ladder sentences, each on 300 pages: on pages of the site",
        "5 negatives: never publish them, anywhere",
    ):
        assert f"  {line}\n" in printed
    assert "throw-away lists" in printed
    assert not [word for word in words_of(root) if word in printed]


def test_a_file_that_cannot_be_made_is_found_out_before_the_site_is_dealt(root, tmp_path):
    run("lists", tmp_path / "site", "--seed", 3)
    words = ["--secrets", root / "secrets", "--throw-away", "--write-sentences", tmp_path / "none" / "sentences"]
    with pytest.raises(UserError, match=r"expected an existing folder for .*sentences, found none"):
        run("generate", tmp_path / "site", *words, *SIZES)
    assert not (tmp_path / "site" / "manifest.json").exists()
    with pytest.raises(UserError, match=r"expected an existing folder for .*sentences, found none"):
        run("sentences", root / "site", "--secrets", root / "secrets", "--out", tmp_path / "none" / "sentences")


def test_a_file_in_a_folders_place_is_named(root, tmp_path):
    (tmp_path / "file").write_text("mine")
    for words in (["secrets", tmp_path / "file"], ["lists", tmp_path / "file" / "site", "--seed", 3]):
        with pytest.raises(UserError, match=r"expected a folder .*file.*, found a file"):
            run(*words)


def test_a_site_whose_sentences_do_not_read_back_is_not_dealt(root, tmp_path):
    """Entries that overlap with the words beside a place: the two that begin before it are all that is tried."""
    run("lists", tmp_path / "site", "--seed", 3)
    places = (tmp_path / "site" / "place.txt").read_text().split()
    overlapping = ["Quo Qui Mill", "Qui Mill Creek", *(f"Mill Creek {place}" for place in places[2:])]
    (tmp_path / "site" / "place.txt").write_text("\n".join(overlapping))
    shapes = (tmp_path / "site" / "shapes.yaml").read_text()
    (tmp_path / "site" / "shapes.yaml").write_text(shapes.replace("{place}", "quo qui {place}"))
    with pytest.raises(UserError, match=r"expected every sentence to read back as its id, found .* that does not"):
        run("generate", tmp_path / "site", "--secrets", root / "secrets", "--throw-away", *SIZES)
    assert not (tmp_path / "site" / "manifest.json").exists()


def test_sentences_can_be_written_again(root, tmp_path):
    run("sentences", root / "site", "--secrets", root / "secrets", "--out", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (root / "sentences.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"expected no file .*again, found one; nothing is overwritten"):
        run("sentences", root / "site", "--secrets", root / "secrets", "--out", tmp_path / "again")


def test_generate_refuses_throw_away_lists_and_leaves_nothing(root, tmp_path):
    run("lists", tmp_path / "site", "--seed", 5)
    before = sorted(os.listdir(tmp_path / "site"))
    with pytest.raises(UserError, match=r"expected word lists of your own .*found throw-away ones"):
        run("generate", tmp_path / "site", "--secrets", root / "secrets")
    assert sorted(os.listdir(tmp_path / "site")) == before
    # The mark gone and the shapes reworded, they are taken for the user's own, and the manifest says so.
    (tmp_path / "site" / "THROWAWAY").unlink()
    shapes = tmp_path / "site" / "shapes.yaml"
    shapes.write_text(shapes.read_text().replace("{opening} {given}", "{opening} once {given}"))
    assert "throw-away" not in run("generate", tmp_path / "site", "--secrets", root / "secrets")
    assert json.loads((tmp_path / "site" / "manifest.json").read_text())["throwaway"] is False


def test_generate_overwrites_nothing(copy):
    before = (copy / "site" / "manifest.json").read_bytes()
    words = ["generate", copy / "site", "--secrets", copy / "secrets", "--throw-away"]
    with pytest.raises(UserError, match=r"expected no manifest\.json in .*a site is dealt once"):
        run(*words)
    assert (copy / "site" / "manifest.json").read_bytes() == before
    (copy / "site" / "manifest.json").unlink()
    (copy / "site" / "commitment.json").unlink()
    with pytest.raises(UserError, match=r"expected no file .*sentences\.jsonl, found one"):
        run(*words, "--write-sentences", copy / "sentences.jsonl")
    assert not (copy / "site" / "manifest.json").exists()


def test_two_sites_of_one_seed_are_dealt_unlike(root, copy):
    for name in ("manifest.json", "commitment.json"):
        (copy / "site" / name).unlink()
    run("generate", copy / "site", "--secrets", copy / "secrets", "--throw-away", *SIZES)
    first, second = entries_of(root), entries_of(copy)
    # 20 positions to 9 parts: the same deal comes once in more than 10^12.
    assert [entry["key"] for entry in first] != [entry["key"] for entry in second]


def test_verify_says_that_all_belongs_together(root):
    said = run("verify", root / "site", "--secrets", root / "secrets")
    assert json.loads((root / "site" / "commitment.json").read_text())["sha256_of_manifest"] in said
    assert "15 canaries, 5 negatives" in said


def swap_two_lines(path):
    lines = path.read_text().splitlines()
    lines[6], lines[10] = lines[10], lines[6]
    path.write_text("\n".join(lines) + "\n")


def edit_manifest(path):
    path.write_text(path.read_text().replace('"occurrences": 300', '"occurrences": 100'))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("site/event.txt", swap_two_lines, "expected the event.txt with which the site was generated"),
        ("site/manifest.json", edit_manifest, "found it edited: its SHA-256 is not the one in commitment.json"),
        ("secrets/seed", lambda path: path.unlink(), "expected a secret in "),
        ("secrets/seed", lambda path: path.write_text("of-another-site-altogether"), "expected the seed with which"),
        (
            "secrets/control_seed",
            lambda path: path.write_text((path.parent / "seed").read_text()),
            "found seed and control_seed equal",
        ),
    ],
)
def test_verify_names_what_is_wrong_and_no_secret(copy, name, change, message):
    words = words_of(copy)
    change(copy / name)
    keys = [path.read_text().strip() for path in (copy / "secrets").iterdir()]
    with pytest.raises(UserError) as caught:
        run("verify", copy / "site", "--secrets", copy / "secrets")
    assert message in str(caught.value)
    assert not [word for word in words if word in str(caught.value)]
    assert not [key for key in keys if key in str(caught.value)]


def test_decode_finds_ids_in_files_and_says_where_they_belong(root, tmp_path):
    rows, keys = rows_of(root / "sentences.jsonl"), {entry["id"]: entry["key"] for entry in entries_of(root)}
    ladder = next(row for row in rows if row["rung"] == 300)
    page, other = tmp_path / "page.html", tmp_path / "other.txt"
    page.write_text(f"<p>Before.</p><p>{ladder['sentence']}</p>", "utf-8")
    other.write_bytes(b"Nothing here, \xff and no text at that.")
    said = run("decode", page, other, "--site", root / "site")
    assert said == (f"{page}: {ladder['id']} {keys[ladder['id']]} (occurrences 300)\n{other}: no id\n")
    honeypot = next(row for row in rows if row["cohort"] == "honeypot")
    said = run("decode", "--site", root / "site", "--secrets", root / "secrets", text=honeypot["sentence"])
    assert said == f"-: {honeypot['id']} {keys[honeypot['id']]} (honeypot)\n"


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_decode_reads_pages_in_other_encodings(root, tmp_path, encoding):
    # Of a page in Windows-1252, read as UTF-8, each accented letter would part a word. UTF-16: what PowerShell writes.
    row = rows_of(root / "sentences.jsonl")[0]
    accents = str.maketrans("aeiou", "\u00e1\u00eb\u00ee\u00f8\u00fc")
    words = [word.translate(accents) for word in row["sentence"].split()]
    (tmp_path / "page").write_bytes(" ".join(words).encode(encoding))
    assert f": {row['id']} " in run("decode", tmp_path / "page", "--site", root / "site")


def test_decode_knows_negatives_requests_and_strangers(root, tmp_path):
    from canaryjax.detector.generation import read_lists
    from canaryjax.detector.sentence import render

    vocabulary, shapes = read_lists(root / "site")
    negative = next(entry for entry in entries_of(root) if entry["population"] == "negative")
    secret = Secret((root / "secrets" / "edge_secret").read_bytes().strip())
    edge = edge_id(secret, "window", "2031-03")
    log = tmp_path / "log.jsonl"
    values = {"time": "2031-03-05T07:11:13.017Z", "path": "/a", "ip": None, "user_agent": None, "vendor": None}
    values |= {"tier": "window", "label": "2031-03", "id": f"{edge:012x}", "page_status": 200}
    log.write_text((json.dumps(values) + "\n") * 2)
    # Far apart, so that no fourth id is made by chance of two sentences' words.
    ids = (int(negative["id"], 16), edge, 0x123456789ABC)
    text = f"\n{'x ' * 80}".join(render(id, vocabulary, shapes) for id in ids)
    said = run("decode", "--site", root / "site", "--secrets", root / "secrets", "--log", log, text=text)
    assert set(said.splitlines()) == {
        f"-: {negative['id']} {negative['key']} (never published)",
        f"-: {edge:012x} window (request of 2031-03-05T07:11:13.017Z for /a, the first of 2)",
        "-: 123456789abc unknown (not in the manifest or the log)",
    }
    said = run("decode", "--site", root / "site", text=text)
    assert f"-: {edge:012x} unknown (not in the manifest; give --log if an edge stamps pages)" in said
    log.write_text(log.read_text().replace(f"{edge:012x}", f"{edge ^ 1:012x}"))
    with pytest.raises(UserError, match="found others in 2 of 2 rows"):
        run("decode", "--site", root / "site", "--secrets", root / "secrets", "--log", log, text=text)


def test_a_mistake_is_one_line_and_status_2(root, tmp_path):
    words = [sys.executable, "-m", "canaryjax.detector", "decode", "nowhere.txt", "--site", str(root / "site")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr == (
        "canaryjax: error: expected to read nowhere.txt, found: No such file or directory; check the path\n"
    )
    assert done.stdout == ""
