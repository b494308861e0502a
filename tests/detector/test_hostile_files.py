"""Files that are not what they should be: devices, pipes, endless, torn, half a site; each is told in one line."""

import os
import shutil
import stat
import subprocess
import sys

import pytest

from canaryjax.detector import manifest as manifests
from canaryjax.detector import new_file
from canaryjax.detector.edge.crawler import read_crawlers
from canaryjax.detector.edge.settings import EdgeSettings, read_edge_settings
from canaryjax.detector.fold import fold
from canaryjax.detector.generation import generate_site
from canaryjax.detector.own_file import MOST_BYTES, read_own, read_text, read_yaml
from canaryjax.detector.positives import read_positives
from canaryjax.detector.secret import make_secrets, read_secrets
from canaryjax.detector.shapes import read_shapes
from canaryjax.detector.throwaway import make_site_lists
from canaryjax.detector.vocabulary import read_vocabulary
from canaryjax.errors import UserError
from tests.detector.test_site_commands import SIZES, run


def pipe(path):
    os.mkfifo(path, 0o600)


ODD = {
    "pipe": (pipe, "a device or pipe"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device or pipe"),
    "folder": (lambda path: path.mkdir(), "Is a directory"),
    "loop": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "lost link": (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    "endless": (lambda path: path.write_bytes(b"q" * (MOST_BYTES + 1)), "found more"),
}
READERS = {
    "place.txt": read_vocabulary,
    "shapes.yaml": lambda folder: read_shapes(folder / "shapes.yaml"),
    "positives.yaml": read_positives,
    "crawlers.yaml": read_edge_settings,
    "seed": read_secrets,
    "edge_secret": read_secrets,
}


@pytest.fixture
def folder(site_lists, tmp_path):
    shutil.copytree(site_lists, tmp_path / "site")
    make_secrets(tmp_path / "site")
    return tmp_path / "site"


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_plain_file_is_refused_at_once(folder, name, kind):
    make, reason = ODD[kind]
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    if kind == "endless":
        (folder / name).chmod(0o600)
    with pytest.raises(UserError) as caught:
        READERS[name](folder)
    assert reason in str(caught.value)
    assert str(folder / name) in str(caught.value)
    assert "qqqq" not in str(caught.value)


def test_a_file_of_the_most_bytes_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfq\r\nr\rs\n")
    assert read_text(tmp_path / "a", "words") == "q\nr\ns\n"
    assert read_own(tmp_path / "a", 10) == b"\xef\xbb\xbfq\r\nr\rs\n"
    with pytest.raises(OSError, match="more than 9 bytes"):
        read_own(tmp_path / "a", 9)


TAGGED = ("!!bool zq", '!!int ""', "!!int zq", "!!float zq", "!!timestamp zq", "2021-99-99", "9" * 5000, "!!bool")
YAMLS = {
    **{f"value {value[:14]}": (f"a: 1\nb: {value}\n", "broken YAML") for value in TAGGED},
    "flow": ("a: 1\nb: " + "[" * 50_000, "more than 16 levels, line 2"),
    "block": ("\n".join(" " * i + "zq:" for i in range(900)), "more than 16 levels, line 17"),
    "twice": ("a: zq\nb: 2\na: 3\n", "a key twice, line 3"),
    "twice within": ("a: 1\nb:\n  c: zq\n  c: 3\n", "a key twice, line 4"),
    "twice in two spellings": ("7: zq\n0x7: 3\n", "a key twice, line 2"),
    "merged at once": ("b: {<<: {zq: 1}, zq: 2}\n", "broken YAML"),
    "alias": ("a: &zq [zq]\nb: [*zq, *zq]\n", "an alias, line 2"),
    "merged": ("a: &zq {c: 1}\nb: {<<: *zq}\n", "an alias, line 2"),
    "documents": ("a: 1\n---\nb: 2\n", "broken YAML, line 2"),
    "two keys": ("? [zq]\n: 1\n", "broken YAML, line 1"),
    "nul": ("a: 1\0", "broken YAML"),
}


@pytest.mark.parametrize("name", YAMLS)
def test_yaml_that_no_plain_file_needs_is_refused(tmp_path, name):
    text, reason = YAMLS[name]
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        read_yaml(tmp_path / "a.yaml", "shapes")
    assert reason in str(caught.value)
    assert "zq" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_yaml_of_sixteen_levels_is_read(tmp_path):
    (tmp_path / "a.yaml").write_text("[" * 16 + "7" + "]" * 16)
    found = read_yaml(tmp_path / "a.yaml", "numbers")
    for _ in range(16):
        (found,) = found
    assert found == 7


def test_shapes_with_keys_of_every_type_are_refused(folder):
    path = folder / "shapes.yaml"
    path.write_text(path.read_text() + "1: zq\nnull: zq\n2021-01-01: zq\nzq: zq\n")
    with pytest.raises(UserError, match=r"found 4 others and no missing one") as caught:
        read_shapes(path)
    assert "zq" not in str(caught.value)


def test_an_alias_in_crawlers_is_refused(tmp_path):
    (tmp_path / "crawlers.yaml").write_text("example: &a {agents: [ExampleBot]}\nother: *a\n")
    with pytest.raises(UserError, match="found an alias, line 2"):
        read_crawlers(tmp_path / "crawlers.yaml")


@pytest.mark.parametrize("make", [make_secrets, lambda folder: make_site_lists(folder, 3)])
@pytest.mark.parametrize("kind", ["file", "below a file", "lost link", "loop"])
def test_a_folder_that_cannot_be_made_is_told(tmp_path, make, kind):
    (tmp_path / "file").write_text("x")
    path = tmp_path / ("file/below" if kind == "below a file" else kind)
    if kind in ODD:
        ODD[kind][0](path)
    with pytest.raises(UserError, match=r"expected a folder .*; name another"):
        make(path)
    assert (tmp_path / "file").read_text() == "x"


def fail_at(monkeypatch, name):
    """Lets the disk be full from the file of that name on."""
    real = new_file._create

    def create(path, data, mode):
        if path.name == name:
            raise OSError(28, "No space left on device")
        real(path, data, mode)

    monkeypatch.setattr(new_file, "_create", create)


@pytest.mark.parametrize(
    ("make", "last"),
    [(make_secrets, "edge_secret"), (lambda folder: make_site_lists(folder, 3), "shapes.yaml")],
)
def test_a_full_disk_leaves_none_of_the_files(tmp_path, monkeypatch, make, last):
    fail_at(monkeypatch, last)
    with pytest.raises(UserError, match=f"expected to write .*{last}, found: No space left on device; make room"):
        make(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


CUT_SHORT = """
import os, sys
from canaryjax.detector import new_file
from canaryjax.detector.throwaway import make_site_lists

def create(path, data, mode):
    path.write_bytes(data)
    if path.name == "given.txt":
        os._exit(9)

new_file._create = create
make_site_lists(sys.argv[1], 3)
"""


def test_lists_that_were_cut_short_are_marked_as_throw_away(tmp_path):
    """kill -9 in the middle: what is there must not pass for the user's own."""
    done = subprocess.run([sys.executable, "-c", CUT_SHORT, str(tmp_path / "new")], check=False)
    assert done.returncode == 9
    assert sorted(os.listdir(tmp_path / "new")) == ["THROWAWAY", "given.txt"]


def test_a_commitment_that_cannot_be_written_takes_the_manifest_along(folder, monkeypatch):
    fail_at(monkeypatch, "commitment.json")
    with pytest.raises(UserError, match=r"expected to write .*commitment\.json, found: No space left"):
        generate_site(folder, folder, manifests.Sizes(), allow_throwaway=True)
    assert not (folder / "manifest.json").exists()
    monkeypatch.undo()
    generate_site(folder, folder, manifests.Sizes(), allow_throwaway=True)


@pytest.mark.parametrize(
    ("there", "lost"), [("manifest.json", "commitment.json"), ("commitment.json", "manifest.json")]
)
def test_half_a_site_is_told_as_such(folder, there, lost):
    """kill -9 between the two files."""
    generate_site(folder, folder, manifests.Sizes(), allow_throwaway=True)
    (folder / lost).unlink()
    words = ["--secrets", folder]
    for command in (["generate", folder, *words, "--throw-away"], ["verify", folder, *words]):
        with pytest.raises(UserError) as caught:
            run(*command)
        assert f"found {there} without {lost}; restore {lost} from a copy, or, if generate was stopped" in str(
            caught.value
        )
    (folder / there).unlink()  # as the message says
    run("generate", folder, *words, "--throw-away", *SIZES)


def test_sentences_that_have_no_folder_are_told_before_the_site_is_dealt(folder, tmp_path):
    words = ["generate", folder, "--secrets", folder, "--throw-away", "--write-sentences"]
    with pytest.raises(UserError, match=r"expected an existing folder for .*nowhere/a, found none; make it"):
        run(*words, tmp_path / "nowhere" / "a")
    assert not (folder / "manifest.json").exists()


def test_sentences_that_cannot_be_written_leave_the_site_and_say_how_to_go_on(folder, tmp_path, monkeypatch):
    fail_at(monkeypatch, "a")
    words = ["generate", folder, "--secrets", folder, "--throw-away", *SIZES, "--write-sentences", tmp_path / "a"]
    with pytest.raises(UserError, match=r"the site is made, so for the sentences run canaryjax detector sentences"):
        run(*words)
    monkeypatch.undo()
    run("sentences", folder, "--secrets", folder, "--out", tmp_path / "a")
    with pytest.raises(UserError, match=r"expected an existing folder for .*/b, found none"):
        run("sentences", folder, "--secrets", folder, "--out", tmp_path / "nowhere" / "b")


def test_a_file_that_cannot_be_finished_goes_again(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UserError, match="No space left on device; make room"):
        new_file.create_file(tmp_path / "a", b"secret", 0o600)
    assert list(tmp_path.iterdir()) == []


def test_secrets_longer_than_a_key_can_be_are_refused(folder):
    path = folder / "seed"
    path.write_bytes(b"k" * 4097)
    with pytest.raises(UserError, match="at most 4096 bytes"):
        read_secrets(folder)
    path.write_bytes(b"k" * 4000 + b" \r\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    read_secrets(folder)


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u1b44\U0001d16d", "\u0f71\u0f74\u0f81"])
def test_marks_without_end_are_folded_in_linear_time(marks):
    """Putting n marks in order takes n^2 steps: these would take hours."""
    assert fold("Zo" + marks * 700_000 + "e") == "zoe"
    assert fold("Zo\u0308e \u1fb3 \u03b1\u0345") == "zoe \u03b1\u03b9 \u03b1\u03b9"


@pytest.mark.parametrize("change", [{"ip_header": "x real"}, {"ip_header": "\u00e9"}, {"ip_header": ""}])
def test_a_header_that_no_request_can_have_is_refused(vocabulary, shapes, change):
    with pytest.raises(UserError, match="expected the name of a header"):
        EdgeSettings(vocabulary, shapes, **change)
    assert EdgeSettings(vocabulary, shapes, ip_header="cf-connecting-ip").ip_header == "cf-connecting-ip"


def test_a_window_that_no_date_can_hold_is_refused(vocabulary, shapes):
    with pytest.raises(UserError, match="expected a window of 1 to 3162240000 seconds"):
        EdgeSettings(vocabulary, shapes, window_seconds=10**400)


def test_an_empty_marker_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match="expected a marker in ASCII"):
        run("edge", folder, "--out", tmp_path / "out", "--marker", "")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def site(site_lists, tmp_path_factory):
    root = tmp_path_factory.mktemp("decode")
    shutil.copytree(site_lists, root / "site")
    make_secrets(root / "secrets")
    generated = generate_site(root / "site", root / "secrets", manifests.Sizes(), allow_throwaway=True)
    return root / "site", generated


def sentence_of(site):
    from canaryjax.detector.sentence import render

    _, generated = site
    id = next(entry.id for entry in generated.manifest.entries if entry.part.population == "canary")
    return f"{id:012x}", render(id, generated.vocabulary, generated.shapes)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be", "windows-1252"])
def test_a_page_is_read_in_the_encoding_that_it_is_in(site, tmp_path, encoding):
    id, sentence = sentence_of(site)
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    accented = sentence.replace("a", "\u00e1").replace("e", "\u00e8")  # folds to the same words
    (tmp_path / "page").write_bytes(f"{mark}caf\u00e9 {accented}".encode(encoding))
    assert f": {id} " in run("decode", tmp_path / "page", "--site", site[0])


def decode(site, *words, before=(), **options):
    command = [*before, sys.executable, "-m", "canaryjax.detector", "decode", "--site", str(site[0]), *map(str, words)]
    return subprocess.run(command, capture_output=True, timeout=300, **options)


def test_a_closed_standard_input_is_told(site):
    done = decode(site, before=("sh", "-c", 'exec "$@" <&-', "sh"))
    assert done.returncode == 2
    assert done.stderr == (
        b"canaryjax: error: expected a text on standard input, found it closed; name a file, or send one in\n"
    )


def test_names_of_files_cannot_write_to_the_terminal(site, tmp_path):
    path = os.fsencode(tmp_path) + b"/a\x1b[2J\nb\xff\xc3\xa9"
    with open(path, "w") as file:
        file.write(sentence_of(site)[1])
    done = decode(site, os.fsdecode(path), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert f"a\\x1b[2J\\nb\\udcff\\xe9: {sentence_of(site)[0]} ".encode() in done.stdout
    assert done.stderr == b""


def test_a_text_beyond_memory_is_refused(site, tmp_path, monkeypatch):
    from canaryjax.cli import detector_site

    monkeypatch.setattr(detector_site, "MOST_BYTES", 7)
    (tmp_path / "a").write_bytes(b"q" * 8)
    with pytest.raises(UserError, match=r"at most 7 bytes, found more in .*/a; split it"):
        run("decode", tmp_path / "a", "--site", site[0])
    with pytest.raises(UserError, match="found more in standard input; split it"):
        run("decode", "--site", site[0], text="q" * 8)
