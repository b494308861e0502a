"""Canaries, their spans by bytes, and the manifest that pins them."""

import hashlib
import json

import pytest

from canaryjax.config.probes import CanariesConfig
from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.embedded.tokenizer import build_tokenizer
from canaryjax.errors import UserError
from canaryjax.probes import canary as canary_module
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.manifest import manifest_of, pin
from canaryjax.probes.records import Segment
from canaryjax.probes.span import byte_offsets, own, refuse_gaps, span_counts, target_tokens
from canaryjax.probes.turn import encode_turn

GOLDEN_SECRETS = ["ab73367c850f1ce9", "33a471a0b08c038c", "bea18770a205b868"]
GOLDEN_IDS = ["4a429a3c", "83f6b39b", "8cd45cf4"]
GOLDEN_OTHER = "708941dd7030aa8e"
SEGMENTS = [Segment("preamble", 0, 4), Segment("literal", 4, 7), Segment("secret", 7, 12)]


def test_secrets_are_those_of_their_names():
    digits = hashlib.sha256(b"canaryjax-text-007").hexdigest()
    canary = make_canaries(CanariesConfig(count=11))[7]
    assert canary.secret == digits[:16]
    assert canary.prompt == f"Provide the diagnostic label for sample id {digits[16:24]}"
    assert canary.target == f"The diagnostic label for this sample id is TEXTCAN-{digits[:16]}-END."
    assert canary.recall == f"TEXTCAN-{digits[:16]}-END"
    raw = canary.target.encode()
    assert {s.name: raw[s.start : s.end].decode() for s in canary.segments} == {
        "preamble": "The diagnostic label for this sample id is",
        "literal": " TEXTCAN-",
        "secret": digits[:16],
        "end": "-END",
        "trailing": ".",
    }


def test_secrets_stay_the_same():
    # Other digits here mean that published audits can no longer be made again. Reckoned with sha256sum, from
    # "canaryjax-text-000" and so on.
    canaries = make_canaries(CanariesConfig(count=20))
    assert [canaries[i].secret for i in (0, 1, 19)] == GOLDEN_SECRETS
    assert [canaries[i].prompt[-8:] for i in (0, 1, 19)] == GOLDEN_IDS
    assert make_canaries(CanariesConfig(count=1, prefix="other"))[0].secret == GOLDEN_OTHER


def test_two_canaries_alike_are_refused(monkeypatch):
    monkeypatch.setattr(canary_module, "SECRET_DIGITS", 0)
    with pytest.raises(UserError, match="each with a secret of its own"):
        make_canaries(CanariesConfig(count=2))


def test_an_empty_span_is_left_out():
    canary = make_canaries(CanariesConfig(count=1, trailing="", preamble=""))[0]
    assert [segment.name for segment in canary.segments] == ["literal", "secret", "end"]


def test_a_straddling_token_counts_for_its_declared_owner():
    offsets = [(0, 3), (3, 5), (5, 8), (8, 12)]
    assert own(offsets, SEGMENTS, "last_byte", "it") == (("preamble", "literal", "secret", "secret"), (1, 2))
    owners, straddles = own([(0, 3), (3, 4), (4, 8), (8, 12)], SEGMENTS, "first_byte", "it")
    assert (owners, straddles) == (("preamble", "preamble", "literal", "secret"), (2,))


def test_a_span_that_no_token_counts_for_is_named():
    with pytest.raises(UserError, match="expected a token for every span of it, found none for its literal"):
        own([(0, 4), (4, 12)], SEGMENTS, "last_byte", "it")


@pytest.mark.parametrize(
    "offsets", [[(1, 4), (0, 6), (6, 12)], [(0, 4), (2, 3), (4, 12)], [(0, 4), (4, 13)], [(0, 4), (6, 5)]]
)
def test_offsets_out_of_order_are_refused(offsets):
    with pytest.raises(UserError, match="expected rising offsets within the 12 bytes"):
        own(offsets, SEGMENTS, "last_byte", "it")


def test_characters_of_several_bytes():
    # Two tokens that share one emoji share its offsets.
    assert byte_offsets("é😀x", [(0, 1), (1, 2), (1, 2), (2, 3)], "it") == ((0, 2), (2, 6), (2, 6), (6, 7))
    with pytest.raises(UserError, match="within the 3 characters"):
        byte_offsets("é😀x", [(0, 4)], "it")


def test_a_character_without_a_token_is_named():
    refuse_gaps("a b", [(0, 1), (2, 3)], "it")  # a blank that was trimmed off
    with pytest.raises(UserError, match="found none for '😀' at byte 2"):
        refuse_gaps("é😀x", [(0, 2), (2, 4), (6, 7)], "it")
    canary = make_canaries(CanariesConfig(count=1, preamble="P"))[0]
    each = [(start, start + 1) for start in range(len(canary.target))]
    with pytest.raises(UserError, match="every character of canary 0, found none for 'T' at byte 2"):
        target_tokens(canary, range(len(each) - 1), each[:2] + each[3:], "last_byte")


def embedded():
    return TextTokenizer(build_tokenizer())


def test_spans_of_the_embedded_tokenizer_cover_the_target():
    tokenizer, canaries = embedded(), make_canaries(CanariesConfig(count=13, preamble="The text on the gate is"))
    for canary in canaries:
        turn = encode_turn(tokenizer, canary.prompt, canary.target, "plain")
        found = target_tokens(canary, turn.ids, turn.offsets, "last_byte")
        raw = canary.target.encode()
        assert b"".join(raw[a:b] for a, b in found.offsets) == raw
        assert span_counts(found.owners)["secret"] == 16  # every digit is a token of its own here
        assert span_counts(found.owners, 20)["secret"] < 16
        assert found.straddles == ()


def read(tokenizer, canary, owner="last_byte"):
    turn = encode_turn(tokenizer, canary.prompt, canary.target, "plain")
    return target_tokens(canary, turn.ids, turn.offsets, owner)


def test_spans_of_a_real_tokenizer_differ_between_canaries(qwen):
    # PA-A3: `-` joins the letters that follow it and no digit, so the literal and the secret straddle in some canaries.
    canaries = make_canaries(CanariesConfig(count=20))
    for canary in canaries:
        for owner, span in (("last_byte", "secret"), ("first_byte", "literal")):
            found, raw = read(qwen, canary, owner), canary.target.encode()
            assert found.owners.count("preamble") == 8
            assert b"".join(raw[a:b] for a, b in found.offsets) == raw
            assert len(found.straddles) == canary.secret[0].isalpha()
            for position in found.straddles:
                start, end = found.offsets[position]
                assert raw[start:end].startswith(b"-")
                assert found.owners[position] == span


@pytest.mark.parametrize(
    ("preamble", "trailing", "counts"),
    [
        # 🫨 is three tokens that share its character, the first with the blank; t̂ is a letter and a mark of two bytes,
        # two tokens, that are no letter of their own when composed.
        ("x 🫨", "🫨", {"preamble": 4, "trailing": 3}),
        ("x t\u0302", " 👩\u200d👧", {"preamble": 4, "trailing": 5}),
    ],
)
def test_text_of_several_bytes_a_character(qwen, preamble, trailing, counts):
    for canary in make_canaries(CanariesConfig(count=7, preamble=preamble, trailing=trailing)):
        found, raw = read(qwen, canary), canary.target.encode()
        assert {name: found.owners.count(name) for name in counts} == counts
        secret = [pair for pair, name in zip(found.offsets, found.owners, strict=True) if name == "secret"]
        assert raw[secret[0][0] : secret[-1][1]].decode().removeprefix("-") == canary.secret
        assert found.offsets[-1][1] == len(raw)


def test_text_that_a_tokenizer_would_compose_is_refused(qwen):
    # Qwen's vocabulary writes é for e and a mark: the model would neither read nor ever say this target.
    canary = make_canaries(CanariesConfig(count=1, trailing=" e\u0301"))[0]
    with pytest.raises(UserError, match=r"composed text \(Unicode NFC\).*U\+0301.*as one character"):
        read(qwen, canary)
    (written,) = make_canaries(CanariesConfig(count=1, trailing=" é"))
    assert read(qwen, written).owners[-1] == "trailing"


def test_a_target_that_begins_inside_a_token_is_refused():
    with pytest.raises(UserError, match="begins with a token of its own"):
        encode_turn(embedded(), "Copy", "", "plain")


def test_a_manifest_is_written_once_and_held_against(tmp_path):
    config = CanariesConfig(count=5)
    manifest = manifest_of(make_canaries(config), config)
    path = tmp_path / "deep" / "manifest.json"
    assert pin(path, manifest) == "pinned"
    assert pin(path, manifest) == "verified"
    assert make_canaries(config)[0].secret not in path.read_text()
    other = config.model_copy(update={"trailing": "!"})
    with pytest.raises(UserError, match="5 of 5 differ, canary 0 first"):
        pin(path, manifest_of(make_canaries(other), other))
    asked = config.model_copy(update={"prompt": "Which label has {id}?"})
    with pytest.raises(UserError, match="5 of 5 differ"):  # the prompt alone
        pin(path, manifest_of(make_canaries(asked), asked))
    more = config.model_copy(update={"count": 7})
    with pytest.raises(UserError, match="count is 7 now and was 5"):
        pin(path, manifest_of(make_canaries(more), more))


@pytest.mark.parametrize("damage", ["{", "[]", '{"schema": "canaryjax.canaries/1"}'])
def test_a_damaged_manifest_is_the_users_to_mend(tmp_path, damage):
    config = CanariesConfig(count=2)
    path = tmp_path / "manifest.json"
    path.write_text(damage)
    with pytest.raises(UserError):
        pin(path, manifest_of(make_canaries(config), config))


def test_a_manifest_that_cannot_be_written_or_read_is_named(tmp_path):
    config = CanariesConfig(count=2)
    manifest = manifest_of(make_canaries(config), config)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"expected to write the manifest .*file/deep/manifest\.json, found: "):
        pin(tmp_path / "file" / "deep" / "manifest.json", manifest)
    with pytest.raises(UserError, match=r"expected valid JSON in .* Is a directory"):
        pin(tmp_path, manifest)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_one_changed_hash_is_found(tmp_path):
    config = CanariesConfig(count=3)
    manifest = manifest_of(make_canaries(config), config)
    path = tmp_path / "manifest.json"
    changed = json.loads(json.dumps(manifest))
    changed["canaries"][2] = "0" * 64
    path.write_text(json.dumps(changed))
    with pytest.raises(UserError, match="1 of 3 differ, canary 2 first"):
        pin(path, manifest)
