import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, processors

from canaryjax.data.chat import format_parts
from canaryjax.data.prompts import PromptParts
from canaryjax.data.tokens import TextTokenizer
from canaryjax.errors import UserError

GEMMA_CHAT = (
    "{{ bos_token }}<turn>{% for m in messages %}{{ m['role'] }}\n{{ m['content'] | trim }}{% endfor %}{{ '<end>\n' }}"
)


def save(tokenizer, folder, **settings):
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_one_bos_is_added_and_never_an_eos(with_bos):
    assert with_bos.bos_count == 1
    encoding = with_bos.encode("ab")
    assert encoding.ids.tolist() == [0, *with_bos.encode("ab").ids[1:].tolist()]
    assert len(encoding.ids) == 3  # a post-processor's EOS would make it 4
    assert encoding.ids.dtype == np.int32
    assert encoding.offsets.tolist() == [[0, 0], [0, 1], [1, 2]]


def test_written_bos_is_not_doubled(with_bos):
    """Known fault 5."""
    assert with_bos.encode("<bos>ab").ids.tolist() == with_bos.encode("ab").ids.tolist()


def test_rendered_chat_has_one_bos(with_bos):
    with_bos.chat_template = GEMMA_CHAT
    parts = format_parts(PromptParts("A ", "doc", " Q"), with_bos, "chat")
    assert parts == PromptParts("<bos><turn>user\nA ", "doc", " Q<end>\n")
    assert (with_bos.encode(parts.text).ids == 0).sum() == 1


def test_chat_without_template_is_refused(characters):
    with pytest.raises(UserError, match="chat template"):
        format_parts(PromptParts("A", "doc", "Q"), characters, "chat")


def test_chat_document_keeps_its_blanks(with_bos):
    # A template that trims the message must not trim a document at its edge.
    with_bos.chat_template = "{% for m in messages %}{{ m['content'] | trim }}{% endfor %}"
    assert format_parts(PromptParts("A", " doc ", "Q"), with_bos, "chat").document == " doc "


def test_chat_template_cannot_reach_python(with_bos):
    with_bos.chat_template = "{{ messages.__class__.__mro__ }}"
    with pytest.raises(UserError, match="chat template"):
        format_parts(PromptParts("A", "d", "Q"), with_bos, "chat")


@pytest.mark.parametrize(("setting", "count"), [({}, 1), ({"add_bos_token": True}, 1), ({"add_bos_token": False}, 0)])
def test_directory_settings_decide_the_bos(tmp_path, setting, count):
    backend = _backend()
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    folder = save(backend, tmp_path / "model", bos_token="<bos>", eos_token={"content": "<eos>"}, **setting)
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 7]}')
    tokenizer = TextTokenizer.from_directory(folder)
    assert tokenizer.bos_count == count
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (0, (1, 7))
    assert (tokenizer.encode("ab").ids == 0).sum() == count


def test_config_may_ask_for_a_bos_that_the_file_does_not_add(tmp_path):
    backend = _backend()
    folder = save(backend, tmp_path / "model", bos_token="<bos>", add_bos_token=True)
    assert TextTokenizer.from_directory(folder).encode("ab").ids[0] == 0


def _backend():
    scores = [("<bos>", 0.0), ("<eos>", 0.0), ("a", -1.0), ("b", -1.0)]
    backend = Tokenizer(models.Unigram(scores, unk_id=None, byte_fallback=False))
    backend.add_special_tokens(["<bos>", "<eos>"])
    return backend


def test_qwen_has_no_bos(qwen):
    assert qwen.bos_count == 0
    assert qwen.vocab_size == 151_669
    assert qwen.eos_ids == (151_645,)
    assert qwen.pad_id == 151_643
    assert qwen.decode(qwen.encode("FINAL: 🌟 Rome").ids) == "FINAL: 🌟 Rome"


def test_qwen_chat_answer_follows_the_assistant_turn(qwen):
    text = format_parts(PromptParts("A ", "doc", " Q\n"), qwen, "chat").text
    assert text.startswith("<|im_start|>user\nA doc Q")
    assert "<|im_start|>assistant\n" in text


def test_unknown_character_is_named(characters, word_level):
    # With an unknown token the model writes <unk>; without one BPE drops the character in silence and Unigram fails.
    bpe = TextTokenizer(Tokenizer(models.BPE({"c": 0, "a": 1}, [])))
    with pytest.raises(UserError, match=r"'é' \(U\+00E9\) at character 2"):
        bpe.encode("caé")
    with pytest.raises(UserError, match=r"'é' \(U\+00E9\) at character 2"):
        characters.encode("caé")
    with pytest.raises(UserError, match=r"'x' \(U\+0078\) at character 4"):
        word_level.encode("One xyz two.")
    assert word_level.encode("One two.").ids.tolist() == [1, 2, 3]


def test_lone_surrogate_is_refused(characters):
    with pytest.raises(UserError, match="surrogate"):
        characters.encode("a\ud800")


def test_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        TextTokenizer.from_directory(tmp_path)


def test_malformed_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(UserError, match="readable tokenizer"):
        TextTokenizer.from_directory(tmp_path)


def test_a_unigram_model_without_a_named_unknown_token_refuses_it_too(tmp_path):
    # Its unknown token has an id only, which tokenizer_config.json need not name: text then became <unk> unseen.
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -1.0)], unk_id=0, byte_fallback=False))
    tokenizer = TextTokenizer.from_directory(save(backend, tmp_path / "model"))
    assert tokenizer.encode("ab").ids.tolist() == [1, 2]
    with pytest.raises(UserError, match=r"U\+00E9\) at character 1"):
        tokenizer.encode("a\u00e9b")
