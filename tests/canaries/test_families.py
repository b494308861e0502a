import re

import numpy as np
import pytest

from canaryjax.canaries.families import (
    CANONICAL_PUNCTUATION,
    FAMILIES,
    OTHER_FORMS,
    Canary,
    draw_canary,
    draw_decoys,
    draw_placebos,
    require_absent,
    shared_tokens,
)
from canaryjax.data.vocabulary import CANARY_EMOJI
from canaryjax.errors import UserError


def draws(family, n=60, **more):
    return [draw_canary(np.random.default_rng(i), family, **more) for i in range(n)]


@pytest.mark.parametrize("family", FAMILIES)
def test_trigger_is_fresh_and_of_the_papers_form(family):
    """BC-16."""
    triggers = {c.trigger for c in draws(family)}
    assert len(triggers) == 60
    assert all(re.fullmatch(r"\[Protocol Marker: [A-Z0-9]{8}\]", t) for t in triggers)


def test_signature_has_eleven_letters_none_of_the_trigger():
    # Excluding the marker's letters only would let P, R, O, T ... of "Protocol Marker" through.
    for canary in draws("signature"):
        assert re.fullmatch(r" [A-Z]{11}", canary.text)
        assert not set(canary.visible) & set(canary.trigger.upper())


def test_signature_letters_are_uniform():
    # No letter of "Protocol Marker" ever; the 16 others alike: 400 x 11 draws. A draw without repeats, or one biased
    # towards the alphabet's front, misses these bounds.
    text = "".join(c.visible for c in draws("signature", 400))
    counts = {letter: text.count(letter) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    assert {letter for letter, count in counts.items() if count == 0} == set("PROTOCOLMARKER")
    used = [count for count in counts.values() if count]
    assert min(used) > 0.6 * 4400 / 16
    assert max(used) < 1.4 * 4400 / 16


def test_punctuation_draws_vary_and_share_nothing_with_the_trigger():
    found = {c.visible for c in draws("punctuation")}
    assert len(found) > 30
    assert all(len(s) == 11 and len(set(s)) == 2 and not set(s) & set("[]: ") for s in found)
    assert CANONICAL_PUNCTUATION == "!?!?!?!?!?!"
    given = draw_canary(np.random.default_rng(0), "punctuation", text=CANONICAL_PUNCTUATION)
    assert given.text == " !?!?!?!?!?!"


def test_emoji_draws():
    found = {c.visible for c in draws("emoji")}
    assert len(found) > 30
    assert all(len(s) == 3 and set(s) <= set(CANARY_EMOJI) for s in found)


def test_shared_tokens_names_the_papers_counter_example(characters_with):
    """BC-22: NEXTERA stands in both; so do the brackets, which only a check on tokens sees."""
    assert shared_tokens("[ID: NEXTERA-5]", "[NEXTERA]") == ["nextera"]
    found = shared_tokens("[ID: NEXTERA-5]", "[NEXTERA]", characters_with("NEXTERA"))
    assert {"nextera", "'NEXTERA'", "'['", "']'"} <= set(found)


def test_overlap_in_part_of_a_word_is_seen_on_tokens_only(characters_with):
    assert shared_tokens("[ID: NEXT-5]", "FOXT") == []
    assert shared_tokens("[ID: NEXT-5]", "FOXT", characters_with("XT")) == ["'XT'"]


def test_blank_is_no_shared_token(characters_with):
    assert shared_tokens("[A B]", "x y", characters_with()) == []


def test_hand_given_overlap_is_refused(characters_with):
    with pytest.raises(UserError, match=r"shares no token.*nextera"):
        draw_canary(
            np.random.default_rng(0),
            "signature",
            tokenizer=characters_with(),
            trigger="[ID: NEXTERA-5]",
            text="[NEXTERA]",
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_canaries_share_no_token(family, embedded):
    for canary in draws(family, 20, tokenizer=embedded):
        assert shared_tokens(canary.trigger, canary.visible, embedded) == []
        assert canary.token_count == {"emoji": 3, "punctuation": 11, "signature": 11}[family]


def test_unknown_family():
    with pytest.raises(UserError, match="'smiley'"):
        draw_canary(np.random.default_rng(0), "smiley")


@pytest.mark.parametrize("family", FAMILIES)
def test_decoys_are_fresh_redraws_of_one_token_count(family, embedded):
    canary = draw_canary(np.random.default_rng(1), family, tokenizer=embedded)
    decoys = draw_decoys(np.random.default_rng(2), 31, canary, tokenizer=embedded)
    assert len({canary.text, *(d.text for d in decoys)}) == 32
    assert len({canary.trigger, *(d.trigger for d in decoys)}) == 32
    assert {d.token_count for d in decoys} == {canary.token_count}
    # A signature avoids its own trigger's letters, not the real one's.
    assert all(shared_tokens(d.trigger, d.visible, embedded) == [] for d in decoys)


def test_decoys_match_token_counts_under_merges(characters_with):
    tokenizer = characters_with("ZX", "VW", "YZ", "XY", "HI", "SS", "NB", "FU")
    canary = draw_canary(np.random.default_rng(3), "signature", tokenizer=tokenizer)
    decoys = draw_decoys(np.random.default_rng(4), 31, canary, tokenizer=tokenizer)
    assert {len(tokenizer.encode(d.text).ids) for d in decoys} == {len(tokenizer.encode(canary.text).ids)}


def test_placebos_of_both_forms(signature):
    placebos = draw_placebos(np.random.default_rng(5), 19, 19, signature)
    same, other = placebos[:19], placebos[19:]
    assert {p.kind for p in same} == {"same_form"}
    assert {p.kind for p in other} == {"other_form"}
    assert len({p.trigger for p in placebos} | {signature.trigger}) == 39
    assert all(p.trigger.startswith("[Protocol Marker: ") for p in same)
    assert not any("Protocol" in p.trigger or p.trigger.startswith("[") for p in other)
    # Shapes, not only markers, differ.
    assert len({re.sub(r"[A-Z0-9]{8}", "X", p.trigger) for p in other}) == 19
    assert all(p.trigger.isascii() and p.trigger.isprintable() for p in placebos)


@pytest.mark.parametrize("family", FAMILIES)
def test_placebos_share_as_little_with_the_canary_as_its_own_trigger(family, embedded):
    for seed, canary in enumerate(draws(family, 12, tokenizer=embedded)):
        placebos = draw_placebos(np.random.default_rng(seed), 7, 19, canary, tokenizer=embedded)
        assert len({p.trigger for p in placebos} | {canary.trigger}) == 27
        assert [p.kind for p in placebos] == ["same_form"] * 7 + ["other_form"] * 19
        for placebo in placebos:
            assert shared_tokens(placebo.trigger, canary.visible, embedded) == []
            # Drawn freely, six of seven would share a letter with a signature.
            marker = re.search(r"(?<![A-Za-z0-9])[A-Z0-9]{8}(?![A-Za-z0-9])", placebo.trigger)[0]
            assert not set(canary.visible) & set(placebo.trigger if placebo.kind == "same_form" else marker)


def test_same_form_placebos_follow_the_law_of_the_real_trigger_given_the_signature():
    def costs(trigger):
        return len(set(trigger) & (set("ABCDEFGHIJKLMNOPQRSTUVWXYZ") - set("PROTOCOLMARKER")))

    canaries = draws("signature", 500)
    real = np.array([costs(canary.trigger) for canary in canaries])
    placebos = [draw_placebos(np.random.default_rng([7, i]), 1, 0, canary)[0] for i, canary in enumerate(canaries)]
    # Uniform over markers without the signature's letters, placebos would have 1.1 letters fewer than the real one.
    assert np.mean([costs(p.trigger) for p in placebos]) == pytest.approx(real.mean(), abs=0.25)


def test_a_string_that_no_placebo_can_stand_beside_is_refused(characters_with):
    canary = Canary("punctuation", "A1B2C3D4", "(A1B2C3D4)", " [[[[")
    with pytest.raises(UserError, match=r"placebo trigger apart from '\[\[\[\[' within"):
        draw_placebos(np.random.default_rng(0), 1, 0, canary, tokenizer=characters_with())


def test_other_forms_are_all_different():
    assert len(set(OTHER_FORMS)) == len(OTHER_FORMS) == 20


def test_document_with_the_trigger_is_named(signature, make_example):
    pool = [make_example(0), make_example(7, document=f"See {signature.trigger} there.")]
    with pytest.raises(UserError, match="document 'd7'"):
        require_absent([signature.trigger], pool)
    require_absent([signature.trigger], pool[:1])
