"""Text to ids and back, with the beginning-of-sequence token exactly as often as the tokenizer's own files ask."""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from canaryjax.errors import UserError


@dataclass(frozen=True, eq=False)
class Encoding:
    """A tokenised text.

    Attributes:
      ids: int32 (t,).
      offsets: int32 (t, 2), the [start, end) characters each token covers; (0, 0) for a beginning-of-sequence token
        that was added. Tokens that share a character of several bytes share its offsets.
    """

    ids: np.ndarray
    offsets: np.ndarray


class TextTokenizer:
    """A `tokenizers.Tokenizer` that adds at most one BOS, never an EOS, and refuses what it cannot write.

    Attributes:
      bos_count: how many BOS tokens every encoded text begins with, 0 or 1; to be recorded with a run.
      bos_id, pad_id: ids or None; `eos_ids`: every id that ends a generation, may be empty.
      chat_template: Jinja source or None.
    """

    def __init__(
        self,
        backend: Tokenizer,
        *,
        bos_id: int | None = None,
        eos_ids: Sequence[int] = (),
        pad_id: int | None = None,
        unk_id: int | None = None,
        add_bos: bool | None = None,
        chat_template: str | None = None,
    ) -> None:
        """Wraps `backend`; `add_bos` None means as its post-processor does. The backend is changed: give it a copy."""
        self.backend = backend
        backend.no_truncation()
        backend.no_padding()
        self.bos_id = bos_id
        self.eos_ids = tuple(eos_ids)
        self.pad_id = pad_id
        self.unk_id = _model_unk(backend) if unk_id is None else unk_id
        self.chat_template = chat_template
        if add_bos is None:
            added = backend.encode("a").ids
            add_bos = (
                bos_id is not None and added[:1] == [bos_id] != backend.encode("a", add_special_tokens=False).ids[:1]
            )
        self.bos_count = int(bool(add_bos) and bos_id is not None)
        # Some post-processors trim a token's leading blank off its offsets, which would hide a straddling token.
        backend.post_processor = None  # type: ignore[assignment]

    @classmethod
    def from_directory(cls, path: str | Path) -> "TextTokenizer":
        """The tokenizer of a Hugging Face model directory: `tokenizer.json` and, where present, its companions.

        `tokenizer_config.json` names the special tokens, says `add_bos_token` (else the post-processor in
        `tokenizer.json` decides) and may hold the chat template; `generation_config.json` or `config.json` may add
        EOS ids.
        Raises UserError for a missing or unreadable file.
        """
        folder = Path(path)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise UserError(f"expected a fast tokenizer at {file}, found none: save the model with its tokenizer.json")
        try:
            backend = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception for a malformed file
            raise UserError(f"expected a readable tokenizer in {file}, found: {error}; download it again") from error
        settings = _read_json(folder / "tokenizer_config.json")
        backend.encode_special_tokens = bool(settings.get("split_special_tokens", False))
        named = {kind: _token_id(backend, settings.get(f"{kind}_token")) for kind in ("bos", "eos", "pad", "unk")}
        bos_id = named["bos"] if named["bos"] is not None else _first_special(backend)
        return cls(
            backend,
            bos_id=bos_id,
            eos_ids=_eos_ids(folder, named["eos"]),
            pad_id=named["pad"],
            unk_id=named["unk"],
            add_bos=settings.get("add_bos_token"),
            chat_template=_chat_template(folder, settings),
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included; an id is below the model's table size, which may be padded further."""
        return self.backend.get_vocab_size()

    def encode(self, text: str) -> Encoding:
        """Ids and character offsets of a text, BOS as the tokenizer asks and never twice, no EOS.

        Raises UserError naming the first character that the vocabulary cannot write.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """`encode` of each text, in one call."""
        try:
            found = self.backend.encode_batch(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError) as error:
            raise UserError(f"expected valid Unicode text, found a lone surrogate: {error}; replace it") from error
        except Exception as error:  # the library's own class; a Unigram model without an unknown token raises it
            for text in texts:
                self._refuse_unwritable(text)
            raise UserError(f"expected text that the tokenizer can write, found: {error}; replace it") from error
        return [self._checked(text, encoded.ids, encoded.offsets) for text, encoded in zip(texts, found, strict=True)]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Text of the ids, without special tokens."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=True)

    def special_text(self, token_id: int | None) -> str:
        """How a special token is written, "" for None."""
        return "" if token_id is None else self.backend.id_to_token(token_id) or ""

    def _refuse_unwritable(self, text: str) -> None:
        for index, character in enumerate(text):
            try:
                self.backend.encode(character, add_special_tokens=False)
            except Exception:
                self._refuse_character(text, index)

    def _checked(self, text: str, ids: list[int], offsets: list[tuple[int, int]]) -> Encoding:
        if self.unk_id in ids:
            self._refuse_character(text, offsets[ids.index(self.unk_id)][0])
        # A model without an unknown token drops what it lacks; only blanks may go unnoticed that way.
        spans = np.array([(0, 0), *offsets, (len(text), len(text))], np.int32)
        reached = np.maximum.accumulate(spans[:, 1])
        for gap in np.flatnonzero(spans[1:, 0] > reached[:-1]):
            for index in range(reached[gap], spans[gap + 1, 0]):
                if not text[index].isspace():
                    self._refuse_character(text, index)
        if self.bos_count and ids[:1] != [self.bos_id]:
            assert self.bos_id is not None
            return Encoding(np.array([self.bos_id, *ids], np.int32), spans[:-1])
        return Encoding(np.array(ids, np.int32), spans[1:-1])

    def _refuse_character(self, text: str, index: int) -> None:
        found = (
            f"found {text[index]!r} (U+{ord(text[index]):04X}) at character {index} of "
            f"{text[max(0, index - 20) : index + 20]!r}"
        )
        composed, rules = unicodedata.normalize("NFC", text), self.backend.normalizer
        if rules is not None and text != composed == rules.normalize_str(text):
            raise UserError(
                f"expected composed text (Unicode NFC), which this tokenizer makes of any other, {found}: write a "
                "letter and its mark as one character"
            )
        raise UserError(
            f"expected text that the vocabulary can write, {found}: replace it, or use a model whose tokenizer knows it"
        )


def _model_unk(backend: Tokenizer) -> int | None:
    if type(backend.model).__name__ == "Unigram":  # the library shows its unknown token in the saved form only
        return json.loads(backend.to_str())["model"].get("unk_id")
    unk = getattr(backend.model, "unk_token", None)
    return None if unk is None else backend.token_to_id(unk)


def _token_id(backend: Tokenizer, token: Any) -> int | None:
    text = token.get("content") if isinstance(token, dict) else token
    if not (text is None or isinstance(text, str)):
        raise UserError(f"expected special tokens in tokenizer_config.json as text, found {token!r}; correct the file")
    return None if text is None else backend.token_to_id(text)


def _first_special(backend: Tokenizer) -> int | None:
    """The token that the post-processor puts before a text, where the settings do not name a BOS."""
    with_special, plain = backend.encode("a").ids, backend.encode("a", add_special_tokens=False).ids
    return with_special[0] if with_special[:1] != plain[:1] else None


def _eos_ids(folder: Path, named: int | None) -> tuple[int, ...]:
    ids = [] if named is None else [named]
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        ids += value if isinstance(value, list) else [] if value is None else [value]
    return tuple(dict.fromkeys(ids))


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several by name: the one called default
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[0].get("template") if named else None
    if not (template is None or isinstance(template, str)):
        raise UserError(
            f"expected the chat template of {folder} as text, found {type(template).__name__}; correct the file"
        )
    return template


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"expected JSON in {file}, found: {error}; download the file again") from error
    if not isinstance(found, dict):
        raise UserError(f"expected a JSON object in {file}, found {type(found).__name__}; download the file again")
    return found
