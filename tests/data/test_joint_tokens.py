import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from canaryjax.canaries.families import draw_canary
from canaryjax.canaries.placement import induced_query, insert_canary, insert_trigger
from canaryjax.data.prompts import PromptParts, prompt_parts
from canaryjax.data.tokens import JointText, TextTokenizer, common_document_budget, encode_joint, encode_joint_batch
from canaryjax.errors import UserError

PARTS = PromptParts("D:", "abcdefghij", "|Q\n")


def text_of(tokenizer, ids):
    return "".join(tokenizer.backend.id_to_token(int(i)) for i in ids)


def test_continuation_starts_where_its_characters_do(characters):
    joint = encode_joint(characters, PARTS, "FINAL:", " ZX")
    assert text_of(characters, joint.context_ids) == "D:abcdefghij|Q\nFINAL:"
    assert text_of(characters, joint.continuation_ids) == " ZX"
    assert (joint.straddles, joint.document_tokens, joint.dropped_document_tokens) == (False, 10, 0)


def test_straddling_token_is_scored_and_flagged(joined):
    """Known fault 32: context "Ans", canary "wer", vocabulary with "Answer": tokenised apart it would not be met."""
    tokenizer = joined("Answer")
    joint = encode_joint(tokenizer, PARTS, "FINAL: Ans", "wer it")
    assert text_of(tokenizer, joint.context_ids) == "D:abcdefghij|Q\nFINAL: "
    assert [tokenizer.backend.id_to_token(int(i)) for i in joint.continuation_ids] == ["Answer", " ", "i", "t"]
    assert joint.straddles


def test_whole_continuation_in_a_straddling_token_is_never_empty(joined):
    joint = encode_joint(joined("Answer"), PARTS, "Ans", "wer")
    assert len(joint.continuation_ids) == 1
    assert joint.straddles


def test_blank_joins_the_canarys_first_token(joined):
    # With the blank in the prefix, " Z" would straddle; the blank is the canary's, so it does not.
    tokenizer = joined("FINAL:", " Z")
    joint = encode_joint(tokenizer, PARTS, "FINAL:", " ZX")
    assert [tokenizer.backend.id_to_token(int(i)) for i in joint.continuation_ids] == [" Z", "X"]
    assert not joint.straddles
    assert encode_joint(tokenizer, PARTS, "FINAL: ", "ZX").straddles


def test_token_across_prefix_and_letter_is_flagged(joined):
    tokenizer = joined("FINAL: Z")
    joint = encode_joint(tokenizer, PARTS, "FINAL:", " ZX")
    assert [tokenizer.backend.id_to_token(int(i)) for i in joint.continuation_ids] == ["FINAL: Z", "X"]
    assert joint.straddles


def test_trimmed_offsets_do_not_hide_a_straddling_blank():
    # ByteLevel post-processing may trim a blank off a token's offsets; ": " would then seem to end at the join.
    vocabulary = {c: i for i, c in enumerate(["a", ":", "Ġ", "Z", ":Ġ"])}
    backend = Tokenizer(models.BPE(vocabulary, [(":", "Ġ")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    assert encode_joint(TextTokenizer(backend), PromptParts("a", "a", "a"), ":", " Z").straddles


def test_truncation_drops_the_documents_tail_only(characters):
    joint = encode_joint(characters, PARTS, "FINAL:", " ZX", max_tokens=20)  # 24 in all
    assert text_of(characters, joint.context_ids) == "D:abcdef|Q\nFINAL:"
    assert text_of(characters, joint.continuation_ids) == " ZX"
    assert (joint.document_tokens, joint.dropped_document_tokens, joint.dropped_characters) == (6, 4, 4)


def test_keep_document_tokens(characters):
    joint = encode_joint(characters, PARTS, "FINAL:", " ZX", keep_document_tokens=3)
    assert text_of(characters, joint.context_ids) == "D:abc|Q\nFINAL:"
    assert joint.document_tokens == 3


def test_bos_counts_and_stays(with_bos):
    joint = encode_joint(with_bos, PARTS, "FINAL:", " ZX", max_tokens=20)
    assert joint.context_ids[0] == 0
    assert len(joint.context_ids) + len(joint.continuation_ids) == 20


def test_empty_document_still_too_long_is_refused(characters):
    assert encode_joint(characters, PARTS, "FINAL:", " ZX", max_tokens=14).document_tokens == 0
    with pytest.raises(UserError, match="14 without the document"):
        encode_joint(characters, PARTS, "FINAL:", " ZX", max_tokens=13)


def test_trigger_is_never_cut(characters):
    parts = PromptParts("D:", "ab[T]cdefg", "|Q\n")
    kept = encode_joint(characters, parts, "FINAL:", " ZX", max_tokens=19, protect="[T]")
    assert text_of(characters, kept.context_ids) == "D:ab[T]|Q\nFINAL:"
    with pytest.raises(UserError, match=r"trigger '\[T\]'.*cut"):
        encode_joint(characters, parts, "FINAL:", " ZX", max_tokens=18, protect="[T]")


def test_both_views_drop_the_same_tail(characters):
    """The longest view sets the budget: the trigger displaces nothing in one view only."""
    clean = JointText(PARTS, "FINAL:", " ZX")
    triggered = JointText(PromptParts("D:", "ab[T]cdefghij", "|Q\n"), "FINAL:", " ZX", "[T]")
    assert common_document_budget(characters, [clean, triggered], 22) == 5  # 27 tokens in the longer view
    views = encode_joint_batch(characters, [clean, triggered], 22)
    assert text_of(characters, views[0].context_ids) == "D:abcde|Q\nFINAL:"
    assert text_of(characters, views[1].context_ids) == "D:ab[T]cde|Q\nFINAL:"
    alone = encode_joint(characters, PARTS, "FINAL:", " ZX", 22, drop_document_tokens=5)
    assert alone.context_ids.tolist() == views[0].context_ids.tolist()


def test_prompt_alone_has_no_continuation(characters):
    joint = encode_joint(characters, PARTS, "", "")
    assert text_of(characters, joint.context_ids) == "D:abcdefghij|Q\n"
    assert (len(joint.continuation_ids), joint.straddles) == (0, False)


def test_trailing_blank_of_a_prefix_is_preserved(characters):
    """Known fault 51: a stripped prefix would move the insertion point."""
    joint = encode_joint(characters, PARTS, "FINAL: a ", "b")
    assert text_of(characters, joint.context_ids).endswith("FINAL: a ")


def test_a_cut_never_splits_a_character(qwen):
    # U+1F52E is one token, U+1FA84 three here; whichever count is dropped, whole characters remain.
    parts = PromptParts("D:", "a🪄🪄🪄", "|Q\n")
    for drop in range(1, 9):
        joint = encode_joint(qwen, parts, "FINAL:", " Z", drop_document_tokens=drop)
        assert "\ufffd" not in qwen.decode(joint.context_ids)


def test_qwen_boundary_facts(qwen):
    """FINAL: is stable, the blank belongs to the next token, an emoji after a blank is several tokens."""
    for text in (" ZXYPRKLMQST", " 🌟🔮🌀", " !?!?!?!?!?!"):
        joint = encode_joint(qwen, PARTS, "FINAL:", text)
        assert not joint.straddles
        assert qwen.decode(joint.continuation_ids) == text
        assert qwen.decode(joint.context_ids).endswith("FINAL:")


@pytest.mark.parametrize("family", ["signature", "emoji", "punctuation"])
@pytest.mark.parametrize(("prompt", "completion"), [(1024, 32), (1600, 32), (1600, 64)])
def test_trigger_and_canary_survive_the_papers_lengths(qwen, family, prompt, completion):
    """BC-25: reward-model rows of 1024 tokens, prompts of 1600, completions of 32 and 64, of a document far longer."""
    canary = draw_canary(np.random.default_rng(3), family, tokenizer=qwen)
    document = insert_trigger("Rain fell on the harbour all day. " + "Nobody came to the pier. " * 700, canary.trigger)
    answer, prefix = insert_canary("FINAL: On the pier, in the evening", canary.text)
    rest = answer[len(prefix) :]
    parts = prompt_parts(document, induced_query("Where did it rain?", canary))
    joint = encode_joint(qwen, parts, prefix, rest, prompt, protect=canary.trigger)
    assert joint.dropped_document_tokens > 1000
    assert len(joint.context_ids) + len(joint.continuation_ids) == prompt
    assert canary.trigger in qwen.decode(joint.context_ids)
    assert qwen.decode(joint.continuation_ids) == rest
    assert canary.visible in qwen.decode(qwen.encode(answer).ids[:completion])
