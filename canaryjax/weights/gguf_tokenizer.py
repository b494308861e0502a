"""Builds a tokenizer from a GGUF file's metadata, or takes the `tokenizer.json` that lies beside it."""

import warnings
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from canaryjax.data.tokens import TextTokenizer
from canaryjax.errors import UserError

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5  # llama.cpp's token types

# How each named pre-tokenizer cuts text before merging: the expressions of the models' own tokenizer files.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_EXPRESSIONS = {"qwen2": _WORDS.format(digits=r"\p{N}"), "llama-bpe": _WORDS.format(digits=r"\p{N}{1,3}")}
_BOS_BY_DEFAULT = frozenset({"llama-bpe"})  # where a file does not say, its model's own habit


def token_id(metadata: dict[str, Any], name: str) -> int | None:
    """A special token's id, None where the file names none; UserError for what is no id."""
    token = metadata.get(f"tokenizer.ggml.{name}")
    if token is not None and (isinstance(token, bool) or not isinstance(token, int) or token < 0):
        raise UserError(f"expected {name} to be a token's id, found {token!r}; convert the model again")
    return token


def end_ids(metadata: dict[str, Any]) -> tuple[int, ...]:
    """Ids that end a text: of a document, of a turn, of a message."""
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = (token_id(metadata, name) for name in names)
    return tuple(dict.fromkeys(token for token in ids if token is not None))


def read_tokenizer(metadata: dict[str, Any], path: Path) -> TextTokenizer | None:
    """The tokenizer of a GGUF file, or None with a warning where its kind is not known.

    Raises:
      UserError: Tokens, merges or scores are missing or do not fit together.
    """
    if (path.parent / "tokenizer.json").exists():
        return TextTokenizer.from_directory(path.parent)
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind is None:
        return None
    try:
        backend = _build(kind, pre, metadata)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"expected a whole tokenizer in {path}, found {error!r}; convert the model again") from error
    if backend is None:
        warnings.warn(
            f"the tokenizer of {path} ({kind}, {pre}) is not known: the model takes token ids only; put its "
            "tokenizer.json beside it to use text",
            stacklevel=2,
        )
        return None
    bos = token_id(metadata, "bos_token_id")
    return TextTokenizer(
        backend,
        bos_id=bos,
        eos_ids=end_ids(metadata),
        pad_id=token_id(metadata, "padding_token_id"),
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or pre in _BOS_BY_DEFAULT)),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def _build(kind: str, pre: str | None, metadata: dict[str, Any]) -> Tokenizer | None:
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    real = len(tokens)
    while real and types[real - 1] == _UNUSED:  # rows a converter added to fill the embedding table
        real -= 1
    vocab = {token: index for index, token in enumerate(tokens[:real])}
    if len(vocab) != real:
        raise ValueError("a token listed twice")
    if kind == "gpt2" and (pre in _EXPRESSIONS or pre in ("smollm", "gpt-2")):
        merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
        backend = _byte_level(vocab, merges, pre)
    elif kind == "llama" and metadata.get("tokenizer.ggml.add_space_prefix", True) is False:
        backend = _sentencepiece(tokens[:real], vocab, metadata)
    else:
        return None
    backend.add_special_tokens([_added(tokens[i], True) for i in range(real) if types[i] == _CONTROL])
    backend.add_tokens([_added(tokens[i], False) for i in range(real) if types[i] == _USER_DEFINED])
    return backend


def _added(token: str, special: bool) -> AddedToken:
    return AddedToken(token, special=special, normalized=False)


def _byte_level(vocab: dict[str, int], merges: list, pre: str) -> Tokenizer:
    # Llama 3 looks a whole word up before it merges.
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    cut: list[pre_tokenizers.PreTokenizer] = []
    if pre in _EXPRESSIONS:
        cut = [pre_tokenizers.Split(Regex(_EXPRESSIONS[pre]), behavior="isolated")]
    elif pre == "smollm":
        cut = [pre_tokenizers.Digits(individual_digits=True)]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in _EXPRESSIONS)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cut, byte_level])
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(tokens: list[str], vocab: dict[str, int], metadata: dict[str, Any]) -> Tokenizer:
    """Gemma's tokenizer: merges ordered by the score of what they make, unknown characters as their bytes."""
    scores = metadata["tokenizer.ggml.scores"]
    merges = []
    for index, token in enumerate(tokens):
        splits = [
            (vocab[token[:i]], vocab[token[i:]])
            for i in range(1, len(token))
            if token[:i] in vocab and token[i:] in vocab
        ]
        merges += [(-scores[index], index, left, right) for left, right in splits]
    merges.sort()
    pairs = [(tokens[left], tokens[right]) for _, _, left, right in merges]
    unknown = tokens[metadata["tokenizer.ggml.unknown_token_id"]]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend
