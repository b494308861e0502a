"""The manifest and its commitment: what they say, what they hide, and that no change goes unseen."""

import dataclasses
import hashlib
import hmac
import json
import stat
from collections import Counter

import pytest

from canaryjax.detector import manifest as manifests
from canaryjax.detector.derive import static_id
from canaryjax.detector.design import Sizes
from canaryjax.detector.manifest import (
    check_manifest,
    make_manifest,
    read_manifest,
    refuse_shared_ids,
    write_manifest,
)
from canaryjax.detector.secret import Secret, Secrets
from canaryjax.detector.vocabulary import LISTS
from canaryjax.errors import UserError

SEED, CONTROL, EDGE = b"example-seed-not-secret", b"example-control-not-secret", b"example-edge-not-secret"
SECRETS = Secrets(Secret(SEED), Secret(CONTROL), Secret(EDGE))
SIZES = Sizes(site=3, linked=1, sitemap=2, honeypot=1, per_rung=2, negatives=5)
NONCE = bytes(range(32))


@pytest.fixture(scope="module")
def lists(vocabulary, shapes):
    return vocabulary, shapes


@pytest.fixture(scope="module")
def made(lists):
    return make_manifest(SECRETS, *lists, SIZES, NONCE, "2031-03-05T07:11:13+00:00", True)


@pytest.fixture
def folder(tmp_path, made):
    write_manifest(tmp_path, made)
    return tmp_path


def derived(key, kind, position):
    return hmac.new(key, f"canaryjax-canary/1/{kind}/{position}".encode(), hashlib.sha256).hexdigest()[:12]


def test_ids_come_from_the_secret_of_the_part_and_from_the_position(folder):
    rows = json.loads((folder / "manifest.json").read_text())["entries"]
    assert [row["position"] for row in rows] == list(range(20))
    for row in rows:
        negative = row["population"] == "negative"
        assert row["id"] == derived(
            CONTROL if negative else SEED, "negative" if negative else "static", row["position"]
        )
        assert row["key"] == f"{'negative' if negative else row['tier']}-{row['position']:03d}"
    assert Counter(row["population"] for row in rows) == {"canary": 15, "negative": 5}
    assert Counter(row["occurrences"] for row in rows if row["tier"] == "ladder") == {300: 2, 100: 2, 10: 2, 1: 2}
    assert len({row["id"] for row in rows}) == 20  # SD-6


def test_what_was_written_is_read_back_and_belongs_together(folder, made, lists):
    manifest = read_manifest(folder)
    assert manifest == made
    check_manifest(manifest, SECRETS, *lists)
    entry = manifest.entries[11]
    assert manifest.by_id[entry.id] == entry


def test_the_commitment_is_the_plain_hash_of_the_file(folder):
    commitment = json.loads((folder / "commitment.json").read_text())
    assert commitment == {
        "schema": "canaryjax.commitment/1",
        "sha256_of_manifest": hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest(),
        "made": "2031-03-05T07:11:13+00:00",
    }


def test_neither_file_holds_a_word_or_a_secret(folder, lists):
    # SD-37, SD-38: not the word lists, not the shapes, not the keys, nor their plain hashes, which could be guessed at.
    text = (folder / "manifest.json").read_text() + (folder / "commitment.json").read_text()
    vocabulary, shapes = lists
    words = [word for name in LISTS for word in getattr(vocabulary, name)]
    assert not [word for word in (*words, *shapes.openings, *shapes.sentences) if word.casefold() in text.casefold()]
    for key in (SEED, CONTROL, EDGE):
        assert key.decode() not in text
        assert hashlib.sha256(key).hexdigest()[:16] not in text
    assert hashlib.sha256(json.dumps(vocabulary.given).encode()).hexdigest()[:16] not in text


def test_a_fingerprint_of_a_list_is_keyed(lists):
    other = make_manifest(
        Secrets(Secret(b"another-example-seed"), SECRETS.control_seed, None), *lists, SIZES, NONCE, "", True
    )
    mine = make_manifest(SECRETS, *lists, SIZES, NONCE, "", True)
    assert mine.fingerprints["given.txt"] != other.fingerprints["given.txt"]
    assert other.fingerprints["edge_secret"] is None


def test_the_manifest_is_for_its_owner_alone(folder):
    assert stat.S_IMODE((folder / "manifest.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "commitment.json").stat().st_mode) & 0o400


@pytest.mark.parametrize("kept", ["manifest.json", "commitment.json"])
def test_a_site_is_dealt_once(tmp_path, made, kept):
    (tmp_path / kept).write_text("published")
    with pytest.raises(UserError, match=f"found {kept} without "):
        write_manifest(tmp_path, made)
    assert [path.name for path in tmp_path.iterdir()] == [kept]
    assert (tmp_path / kept).read_text() == "published"


def edit(folder, change, commit=False):
    """Changes the manifest, and with `commit` its commitment too, as somebody would who wants to hide it."""
    value = json.loads((folder / "manifest.json").read_text())
    value = change(value) or value
    data = (json.dumps(value, indent=1) + "\n").encode()
    (folder / "manifest.json").write_bytes(data)
    if commit:
        commitment = json.loads((folder / "commitment.json").read_text())
        commitment["sha256_of_manifest"] = hashlib.sha256(data).hexdigest()
        (folder / "commitment.json").write_text(json.dumps(commitment))


def other_id(value):
    value["entries"][3]["id"] = f"{int(value['entries'][3]['id'], 16) ^ 1:012x}"


def other_part(value):
    rows = value["entries"]
    first = next(row for row in rows if row["occurrences"] == 300)
    second = next(row for row in rows if row["occurrences"] == 100)
    first["occurrences"], second["occurrences"] = 100, 300


def other_nonce(value):
    value["nonce"] = "00" * 32


@pytest.mark.parametrize("change", [other_id, other_part, other_nonce, lambda value: value.update(made="earlier")])
def test_an_edited_manifest_is_refused(folder, change):
    edit(folder, change)
    with pytest.raises(UserError, match=r"found it edited: its SHA-256 is not the one in commitment\.json"):
        read_manifest(folder)


@pytest.mark.parametrize("change", [other_part, other_nonce])
def test_parts_that_no_lot_dealt_are_refused_even_with_a_new_commitment(folder, change):
    edit(folder, change, commit=True)
    with pytest.raises(UserError, match="found it edited: its parts are not those that its nonce deals"):
        read_manifest(folder)


def test_an_id_of_another_making_is_refused_even_with_a_new_commitment(folder, lists):
    edit(folder, other_id, commit=True)
    with pytest.raises(UserError, match="found it edited: position 3 differs"):
        check_manifest(read_manifest(folder), SECRETS, *lists)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.pop("entries") and None,
        lambda value: value["entries"].pop() and None,
        lambda value: value["entries"][0].update(id="no-hex-digit"),
        lambda value: value["entries"].__setitem__(0, 7),
        lambda value: value["fingerprints"].pop("given.txt") and None,
        lambda value: value.update(nonce="00"),
        lambda value: value.update(nonce=7),
        lambda value: value["sizes"].update(site=-3),
        lambda value: value["sizes"].update(sites=3),
        lambda value: value.update(sizes=[]),
        lambda value: value.update(note="mine"),
    ],
)
def test_a_manifest_of_another_form_is_refused(folder, change):
    edit(folder, change, commit=True)
    with pytest.raises(UserError, match=r"expected manifest\.json as generate wrote it, found it edited"):
        read_manifest(folder)


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": "canaryjax.manifest/2"}'])
def test_a_manifest_of_another_version_is_refused(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"expected manifest.json of version canaryjax.manifest/1, found .*use the"):
        read_manifest(folder)


@pytest.mark.parametrize("name", ["manifest.json", "commitment.json"])
def test_a_missing_or_broken_file_is_named(folder, name):
    (folder / name).write_text("{")
    with pytest.raises(UserError, match=f"expected valid JSON in .*{name}"):
        read_manifest(folder)
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"found .* without {name}; restore {name} from a copy"):
        read_manifest(folder)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_changed_since_is_named_and_not_quoted(made, lists, name):
    vocabulary, shapes = lists
    entries = getattr(vocabulary, name)
    changed = dataclasses.replace(vocabulary, **{name: (entries[1], entries[0], *entries[2:])})
    with pytest.raises(UserError, match=rf"expected the {name}\.txt with which .*found a changed file") as caught:
        check_manifest(made, SECRETS, changed, shapes)
    assert entries[0] not in str(caught.value)


def test_sentences_may_not_be_reworded_and_questions_may(made, lists):
    vocabulary, shapes = lists
    questions = {**shapes.questions, "who": shapes.questions["who"] + " Please."}
    check_manifest(
        made, SECRETS, vocabulary, dataclasses.replace(shapes, questions=questions, famous=shapes.famous[1:])
    )
    for field in ("sentences", "openings"):
        changed = dataclasses.replace(shapes, **{field: getattr(shapes, field)[1:]})
        with pytest.raises(UserError, match=r"expected the shapes\.yaml with which"):
            check_manifest(made, SECRETS, vocabulary, changed)


@pytest.mark.parametrize("name", ["seed", "control_seed", "edge_secret"])
def test_another_secret_is_named_and_not_shown(made, lists, name):
    other = dataclasses.replace(SECRETS, **{name: Secret(b"of-another-site-altogether")})
    with pytest.raises(UserError, match=f"expected the {name} with which .*found another secret") as caught:
        check_manifest(made, other, *lists)
    assert "altogether" not in str(caught.value)
    assert "not-secret" not in str(caught.value)


def test_an_edge_may_come_later_or_be_left_out(made, lists):
    check_manifest(made, dataclasses.replace(SECRETS, edge_secret=None), *lists)
    without = make_manifest(dataclasses.replace(SECRETS, edge_secret=None), *lists, SIZES, NONCE, "", True)
    check_manifest(without, SECRETS, *lists)


def test_a_negative_with_a_canarys_id_is_refused(monkeypatch, lists):
    # Happens once in 2^48: here every negative gets the id of its position under the live seed, and of position 0.
    monkeypatch.setattr(manifests, "negative_id", lambda secret, position: static_id(SECRETS.seed, 0))
    with pytest.raises(UserError, match=r"expected an id of its own for each sentence, found one id for .*new secrets"):
        make_manifest(SECRETS, *lists, SIZES, NONCE, "", True)


def test_shared_ids_are_named_by_key():
    refuse_shared_ids([("site-000", 5), ("negative-001", 6)])
    with pytest.raises(UserError, match="found one id for site-000 and negative-001"):
        refuse_shared_ids([("site-000", 5), ("site-002", 6), ("negative-001", 5)])


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value | {"made": 17},
        lambda value: value | {"made": "yesterday"},
        lambda value: value | {"throwaway": "no"},
        lambda value: value | {"fingerprints": value["fingerprints"] | {"seed": 17}},
        lambda value: value["entries"][1].update(position=True),
        lambda value: value["entries"][1].update(occurrences=float(value["entries"][1]["occurrences"])),
    ],
)
def test_a_value_of_another_type_is_refused_though_it_is_committed_to(folder, change):
    edit(folder, change, commit=True)
    with pytest.raises(UserError, match="it is not in the form that generate writes"):
        read_manifest(folder)
