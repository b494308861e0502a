"""Tiny tokenizers and the real one at hand."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from canaryjax.config.schema import DataConfig
from canaryjax.data.tokens import TextTokenizer

DEFAULTS = {name: field.default for name, field in DataConfig.model_fields.items()} | {"questions_per_document": None}


def character_backend(merged: tuple[str, ...] = (), extra: tuple[str, ...] = ()) -> Tokenizer:
    """Every printable ASCII character a token, and the `merged` strings too (longest first), no unknown token."""
    characters = ["\n", *map(chr, range(0x20, 0x7F)), *extra]
    scores = [("<bos>", 0.0), ("<eos>", 0.0)] + [(c, -10.0) for c in characters] + [(m, -1.0) for m in merged]
    backend = Tokenizer(models.Unigram(scores, unk_id=None, byte_fallback=False))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<bos>", "<eos>"])
    return backend


@pytest.fixture
def characters():
    return TextTokenizer(character_backend())


@pytest.fixture
def with_bos():
    """As Gemma and Llama 3: the post-processor puts one <bos> before a text."""
    backend = character_backend()
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    return TextTokenizer(backend, bos_id=0, eos_ids=(1,))


@pytest.fixture(scope="session")
def shared_data():
    folder = Path(__file__).resolve().parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}")
    return folder


@pytest.fixture
def joined():
    """Builds a character tokenizer that knows some longer strings as one token each."""
    return lambda *merged: TextTokenizer(character_backend(merged))


@pytest.fixture
def word_level():
    """Words only, split at blanks, with an unknown token."""
    words = ["<unk>", "One", "two", "."]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return TextTokenizer(backend)


@pytest.fixture(scope="session")
def source():
    """Builds a data source: every key as in the config, all questions of a document."""

    def build(path=None, kind="jsonl", **more):
        assert set(more) <= set(DEFAULTS)
        return SimpleNamespace(**DEFAULTS | {"kind": kind, "path": None if path is None else str(path)} | more)

    return build


@pytest.fixture
def written(tmp_path):
    """Writes rows (objects, or lines as they are) as JSON lines and gives the path."""

    def write(*rows, name="rows.jsonl"):
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        return path

    return write
