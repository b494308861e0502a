"""Canaries, their spans by bytes, and the manifest that pins them."""

import hashlib
import json

import pytest

from canaryjax.config.probes import CanariesConfig
from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.embedded.tokenizer import build_tokenizer
from canaryjax.errors import UserError
from canaryjax.probes.canary import make_canaries
from canaryjax.probes.manifest import manifest_of, pin
from canaryjax.probes.records import Segment
from canaryjax.probes.span import byte_offsets, own, span_counts, target_tokens
from canaryjax.probes.turn import encode_turn

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


@pytest.mark.parametrize("offsets", [[(0, 4), (2, 3), (4, 12)], [(0, 4), (4, 13)], [(0, 4), (6, 5)]])
def test_offsets_out_of_order_are_refused(offsets):
    with pytest.raises(UserError, match="expected rising offsets within the 12 bytes"):
        own(offsets, SEGMENTS, "last_byte", "it")


def test_characters_of_several_bytes():
    # Two tokens that share one emoji share its offsets.
    assert byte_offsets("é😀x", [(0, 1), (1, 2), (1, 2), (2, 3)], "it") == ((0, 2), (2, 6), (2, 6), (6, 7))
    with pytest.raises(UserError, match="within the 3 characters"):
        byte_offsets("é😀x", [(0, 4)], "it")


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


def test_one_changed_hash_is_found(tmp_path):
    config = CanariesConfig(count=3)
    manifest = manifest_of(make_canaries(config), config)
    path = tmp_path / "manifest.json"
    changed = json.loads(json.dumps(manifest))
    changed["canaries"][2] = "0" * 64
    path.write_text(json.dumps(changed))
    with pytest.raises(UserError, match="1 of 3 differ, canary 2 first"):
        pin(path, manifest)
