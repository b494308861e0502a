"""Tokenizers rebuilt from GGUF metadata equal the ones their models ship."""

import gzip
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from canaryjax.weights.checkpoint import model_files
from canaryjax.weights.gguf_tokenizer import end_ids, read_tokenizer

SHARED = Path(__file__).parents[3] / "shared" / "data"
TEXTS = [
    "Hello world 1234, café 😀\n\n  x",
    "I'll say it's 3.14159; DON'T you'Ve?",
    "def f(x):\n\treturn x**2  # 東京\r\n\r\n",
    "<|im_start|>user\nQ<|im_end|>",
    "e\u0301 is normalised",
    "   leading and trailing   ",
]


def metadata_of(tokenizer: dict, pre: str) -> dict:
    """What llama.cpp's converter stores of a byte-level tokenizer.json."""
    vocab = dict(tokenizer["model"]["vocab"])
    added = {entry["content"]: entry for entry in tokenizer["added_tokens"]}
    vocab |= {content: entry["id"] for content, entry in added.items()}
    tokens = sorted(vocab, key=vocab.get)
    assert [vocab[token] for token in tokens] == list(range(len(tokens)))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    types = [(3 if added[token]["special"] else 4) if token in added else 1 for token in tokens]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, "[PAD0]", "[PAD1]"],
        "tokenizer.ggml.token_type": [*types, 5, 5],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": 5,
        "tokenizer.ggml.eot_token_id": 7,
    }


@pytest.fixture(scope="module")
def rebuilt(qwen_files):
    """Qwen's tokenizer, and what a GGUF file would say of it."""
    file = qwen_files / "tokenizer.json"
    return Tokenizer.from_file(str(file)), metadata_of(json.loads(file.read_text(encoding="utf-8")), "qwen2")


def test_qwen_is_rebuilt_exactly(rebuilt, tmp_path):
    theirs, metadata = rebuilt
    ours = read_tokenizer(metadata, tmp_path / "m.gguf")
    texts = list(TEXTS)
    stories = SHARED / "fairytaleqa.jsonl.gz"
    if stories.exists():
        with gzip.open(stories, "rt", encoding="utf-8") as lines:
            texts += [json.loads(next(lines))["document"] for _ in range(50)]
    for text in texts:
        found = ours.backend.encode(text, add_special_tokens=False).ids
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert found == expected
        assert ours.decode(found) == theirs.decode(expected)
    # Rows that a converter added to fill the table are no tokens.
    assert max(ours.backend.get_vocab().values()) == max(theirs.get_vocab().values())
    assert (ours.bos_count, ours.eos_ids) == (0, (5, 7))


def byte_level(pre: str) -> dict:
    """A vocabulary of single bytes and one merge, enough to see where a pre-tokenizer cuts."""
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = [*sorted(ByteLevel.alphabet()), "12", "123", "1234"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.merges": ["1 2", "12 3", "123 4"],
        "tokenizer.ggml.bos_token_id": 0,
    }


# Digits: one by one, in threes, or freely.
@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["1", "2", "3", "4"]),
        ("qwen2", ["1", "2", "3", "4"]),
        ("llama-bpe", ["123", "4"]),
        ("gpt-2", ["1234"]),
    ],
)
def test_each_kind_cuts_digits_its_own_way(pre, pieces, tmp_path):
    tokenizer = read_tokenizer(byte_level(pre), tmp_path / "m.gguf")
    ids = tokenizer.encode("1234").ids.tolist()[tokenizer.bos_count :]
    assert [tokenizer.backend.id_to_token(i) for i in ids] == pieces
    assert tokenizer.bos_count == (1 if pre == "llama-bpe" else 0)


def test_the_file_says_whether_to_add_bos(tmp_path):
    metadata = byte_level("llama-bpe") | {"tokenizer.ggml.add_bos_token": False}
    assert read_tokenizer(metadata, tmp_path / "m.gguf").bos_count == 0


def sentencepiece(**changes) -> dict:
    tokens = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        *(f"<0x{i:02X}>" for i in range(256)),
        "▁",
        "a",
        "b",
        "c",
        "ab",
        "▁ab",
        "bc",
    ]
    scores = [0.0] * 264 + [-1.0, -3.0, -2.0]  # "bc" is a better merge than "▁ab" and a worse one than "ab"
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [3, 3, 3, 2, *[6] * 256, *[1] * 7],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_space_prefix": False,
    }
    return metadata | changes


def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(tmp_path):
    tokenizer = read_tokenizer(sentencepiece(), tmp_path / "m.gguf")
    pieces = [tokenizer.backend.id_to_token(i) for i in tokenizer.encode(" abc bcé").ids.tolist()]
    assert pieces == ["<bos>", "▁ab", "c", "▁", "bc", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode(" abc bcé").ids) == " abc bcé"


def test_sentencepiece_with_a_space_prefix_is_not_guessed(tmp_path):
    with pytest.warns(UserWarning, match="ids only"):
        assert read_tokenizer(sentencepiece(**{"tokenizer.ggml.add_space_prefix": True}), tmp_path / "m.gguf") is None


def test_a_tokenizer_beside_the_file_wins(tmp_path):
    from tokenizers import models

    Tokenizer(models.WordLevel({"x": 0, "[UNK]": 1}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer({"tokenizer.ggml.model": "rwkv"}, tmp_path / "m.gguf")
    assert tokenizer.encode("x").ids.tolist() == [0]


def test_a_tokenizer_beside_the_file_is_one_of_the_models_files(tmp_path):
    # A run that is resumed compares the files' contents: with another tokenizer it is another model.
    (tmp_path / "config.json").write_text("{}")
    assert model_files(tmp_path / "m.gguf") == [tmp_path / "m.gguf"]  # alone, the file says everything itself
    (tmp_path / "tokenizer.json").write_text("{}")
    assert model_files(tmp_path / "m.gguf") == [tmp_path / name for name in ("m.gguf", "config.json", "tokenizer.json")]


def test_broken_metadata_is_an_error(tmp_path):
    from canaryjax.errors import UserError

    metadata = sentencepiece()
    del metadata["tokenizer.ggml.scores"]
    with pytest.raises(UserError, match="scores"):
        read_tokenizer(metadata, tmp_path / "m.gguf")


def test_end_ids_are_each_listed_once():
    names = ("eos", "eot", "eom")
    metadata = {f"tokenizer.ggml.{name}_token_id": token for name, token in zip(names, (1, 106, 1), strict=True)}
    assert end_ids(metadata) == (1, 106)
