import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canaryjax.data.prompts import render_prompt
from canaryjax.data.vocabulary import CANARY_EMOJI
from canaryjax.embedded.corpus import generate_examples
from canaryjax.embedded.tokenizer import (
    EOS_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    UNKNOWN_ID,
    build_tokenizer,
    encode_text,
    padded_rows,
    save_tokenizer,
    vocabulary,
)
from canaryjax.errors import UserError

KNOWN = "\n" + "".join(map(chr, range(0x20, 0x7F))) + "".join(CANARY_EMOJI)
WORDS = ["FINAL:", " Question", "the", " Kanello", "MUST", "<eos>", "<pad>", " ZXYPRKLMQST", "  ", "\n\n", "a", "beef"]
TEXTS = st.lists(st.one_of(st.sampled_from(WORDS), st.text(KNOWN, max_size=9)), max_size=9).map("".join)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@settings(deadline=None)
@given(TEXTS)
def test_decoding_gives_back_the_text(tokenizer, text):
    # Catches a decoder that inserts blanks between tokens, and "<eos>" typed in a text becoming the end token.
    assert tokenizer.decode(encode_text(tokenizer, text), skip_special_tokens=False) == text


@settings(deadline=None)
@given(TEXTS)
def test_offsets_cut_the_text_into_its_tokens(tokenizer, text):
    # Catches offsets in bytes (wrong after the first emoji) and offsets that leave out the leading blank.
    encoding = tokenizer.encode(text)
    assert "".join(text[start:end] for start, end in encoding.offsets) == text
    assert [text[start:end] for start, end in encoding.offsets] == encoding.tokens


@settings(deadline=None)
@given(st.sampled_from(["FINAL:", "FINAL: the fox,", "FINAL: Kanello", "FINAL: 1843"]), st.text(KNOWN, max_size=12))
def test_text_joined_after_an_answer_keeps_the_tokens_before_it(tokenizer, prefix, rest):
    # A vocabulary with tokens across a blank would retokenise the prefix once a canary follows.
    before = encode_text(tokenizer, prefix)
    assert encode_text(tokenizer, f"{prefix} {rest}")[: len(before)] == before


@given(st.text(string.ascii_uppercase, min_size=11, max_size=11))
@settings(deadline=None)
def test_a_signature_is_one_token_a_letter(tokenizer, signature):
    # FINALMUSTXY would be fewer if capital words were matched inside a run of capitals.
    expected = [" " + signature[0], *signature[1:]]
    assert tokenizer.encode("FINAL: " + signature).tokens == ["FINAL", ":", *expected]
    assert tokenizer.encode(f"insert {signature} after").tokens[-12:-1] == expected


def test_canaries_of_the_other_families_are_one_token_a_character(tokenizer):
    assert tokenizer.encode(" !?!?!?!?!?!").tokens == [" !", *"?!?!?!?!?!"]
    assert tokenizer.encode(" 🌟🔮🌈").tokens == [" 🌟", "🔮", "🌈"]
    # "fab" and "de" must not merge: all hexadecimal strings of a length have as many tokens.
    textcan = "TEXTCAN-3fab9de01c23abcf-END"
    assert tokenizer.encode(textcan).tokens == ["TEXTCAN", *textcan.removeprefix("TEXTCAN")]


def test_known_words_are_one_token(tokenizer):
    assert tokenizer.encode("The fair of Kanello opens in May.").tokens == [
        "The", " fair", " of", " Ka", "n", "e", "l", "lo", " opens", " in", " May", ".",
    ]  # fmt: skip
    assert tokenizer.encode(" Kakello was").tokens == [" Ka", "kel", "lo", " was"]


def test_prompts_and_documents_need_no_single_letters(tokenizer):
    # A template word that is missing from the vocabulary would fall apart into letters.
    letters = {tokenizer.token_to_id(c) for c in string.ascii_lowercase} - {tokenizer.token_to_id("a")}
    for row in generate_examples(seed=3, n=50):
        for document in (row["document"], None):
            ids = encode_text(tokenizer, render_prompt(document, row["question"]))
            assert not letters & set(ids)


@pytest.mark.parametrize("text", ["naïve", "a\tb", "“quoted”", "日本", "e\u0301", "☀"])
def test_unknown_characters_are_refused(tokenizer, text):
    with pytest.raises(UserError, match="found another character at"):
        encode_text(tokenizer, text)


def test_the_position_of_the_refused_character_is_named(tokenizer):
    with pytest.raises(UserError, match="at 7 to 8"):
        encode_text(tokenizer, "FINAL: é")


def test_vocabulary_is_complete_and_without_repeats(tokenizer):
    tokens = [token for token, _ in vocabulary()]
    assert len(tokens) == len(set(tokens)) == tokenizer.get_vocab_size()
    assert set(KNOWN) <= set(tokens)
    assert tokens[:3] == list(SPECIAL_TOKENS)
    assert (PAD_ID, EOS_ID, UNKNOWN_ID) == (0, 1, 2)
    assert 550 <= len(tokens) <= padded_rows(tokenizer)
    assert padded_rows(tokenizer) % 64 == 0


def test_transformers_reads_the_saved_tokenizer(tokenizer, tmp_path):
    from transformers import AutoTokenizer

    save_tokenizer(tokenizer, tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["bos_token"] is None
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    text = "Question:\nWho rules Kanello? 🌟 <eos>\nFINAL: ZXY"
    assert theirs(text)["input_ids"] == tokenizer.encode(text).ids
    assert theirs.decode(theirs(text)["input_ids"]) == text
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.bos_token_id) == (0, 1, None)
