"""Loads a model: weights, configuration, tokenizer and end-of-text ids, from a directory or a GGUF file."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

import canaryjax.embedded
from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.transformer import Transformer
from canaryjax.weights.engine import COMPUTE_DTYPES, load_arrays
from canaryjax.weights.families import COMPOSITE_GEMMA3, TABLES
from canaryjax.weights.hf_config import find_architecture, read_config
from canaryjax.weights.stored import given_path, open_checkpoint, read_json

if TYPE_CHECKING:
    from canaryjax.data.tokens import TextTokenizer


EMBEDDED = "embedded"  # means the small model that ships with the package, wherever one stands

_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


@dataclass(frozen=True)
class LoadedModel:
    """A base model, ready to score and sample.

    Attributes:
      params: The weights, a pytree.
      config: Its configuration (also `params.config`).
      tokenizer: None where the directory has none: the model then takes ids only.
      eos_ids: Ids that end a text; several where `generation_config.json` names several, none where nothing does.
      bos_id: The id that begins a text, or None.
      name: Short name for reports.
      path: Where it was read from.
    """

    params: Transformer
    config: ModelConfig
    tokenizer: "TextTokenizer | None"
    eos_ids: tuple[int, ...]
    bos_id: int | None
    name: str
    path: Path

    def __repr__(self) -> str:
        # The fields' own would print every array, in errors too.
        count = sum(x.size for x in jax.tree.leaves(self.params))
        return f"LoadedModel({self.name!r}, {self.config.family}, {count:,} parameters, {self.config.dtype})"


def check_model(model: Any) -> None:
    """Raises UserError for anything but what `load_model` returns."""
    if not isinstance(model, LoadedModel):
        raise no_model(model)


def no_model(given: Any) -> UserError:
    """The error for something in a model's place."""
    if isinstance(given, str | Path):
        return UserError(
            f"expected a model from load_model, found {str(given)!r}; call load_model({str(given)!r}) first"
        )
    return UserError(f"expected a model from load_model, found {type(given).__name__}; load the base first")


def load_model(path: str | Path, dtype: str = "float32") -> LoadedModel:
    """Loads a Hugging Face directory (safetensors, sharded or not) or a `.gguf` file.

    Args:
      path: The directory or the file; `embedded` is the small model that ships with the package.
      dtype: Dtype of the weights and of the computation, `float32` or `bfloat16`.

    Raises:
      UserError: Whatever is missing, unknown, damaged or not implemented, by name.
    """
    embedded = str(path) == EMBEDDED
    path = model_location(path) if embedded else given_path(path)
    if dtype not in COMPUTE_DTYPES:
        raise UserError(f"expected dtype to be one of {list(COMPUTE_DTYPES)}, found {dtype!r}; choose one")
    if path.suffix == ".gguf":
        from canaryjax.weights.gguf import load_gguf

        return load_gguf(path, dtype)
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing"
        raise UserError(f"expected a model directory or a .gguf file, found {found} at {path}; check the path")
    raw = read_json(path / "config.json")
    config = read_config(raw, str(path / "config.json"), dtype)
    composite = find_architecture(raw, "config.json") == "Gemma3ForConditionalGeneration"
    table = COMPOSITE_GEMMA3 if composite else TABLES[config.family]
    tensors = open_checkpoint(path)
    tokenizer = _read_tokenizer(path)
    config = with_real_vocab(config, tokenizer, path)
    arrays = load_arrays(tensors, config, table, dtype)
    eos_ids, bos_id = _read_special_ids(path, raw, config)
    return LoadedModel(
        Transformer(config, arrays), config, tokenizer, eos_ids, bos_id, EMBEDDED if embedded else path.name, path
    )


def load_tokenizer(path: str | Path) -> "tuple[TextTokenizer | None, int]":
    """The tokenizer of a model, None where it has none, and the rows of its embedding; reads no weights.

    Raises:
      UserError: As `load_model`, for what is read here.
    """
    path = model_location(path) if str(path) == EMBEDDED else given_path(path)
    if path.suffix == ".gguf":
        from canaryjax.weights.gguf import end_ids, open_gguf, read_gguf_config, read_tokenizer

        metadata, tensors = open_gguf(path)
        tokenizer = read_tokenizer(metadata, path)
        if tokenizer is not None:
            tokenizer.eos_ids = end_ids(metadata)
        return tokenizer, read_gguf_config(metadata, tensors, path, "float32").vocab_size
    raw = read_json(path / "config.json")
    config, tokenizer = read_config(raw, str(path / "config.json"), "float32"), _read_tokenizer(path)
    config = with_real_vocab(config, tokenizer, path)
    if tokenizer is not None:
        tokenizer.eos_ids = _read_special_ids(path, raw, config)[0]
    return tokenizer, config.vocab_size


def model_location(path: str | Path) -> Path:
    """Where a model is that is asked for by a path or as `embedded`."""
    return Path(canaryjax.embedded.__file__).parent / "model" if str(path) == EMBEDDED else Path(path)


def model_files(path: str | Path) -> list[Path]:
    """The files that `load_model` reads at `path`: with others in their place it would be another model."""
    path = Path(path).expanduser()
    if path.suffix == ".gguf":
        # A tokenizer beside it is read in place of the one inside.
        read = _companions(path.parent) if (path.parent / "tokenizer.json").is_file() else []
        return [path, *read]
    weights = {tensor.file for tensor in open_checkpoint(path).values()}
    return sorted({*weights, *_companions(path)})


def _companions(folder: Path) -> list[Path]:
    return [folder / name for name in _COMPANIONS if (folder / name).is_file()]


def with_real_vocab(config: ModelConfig, tokenizer: "TextTokenizer | None", path: Path) -> ModelConfig:
    """Sets how many of the embedding's rows the tokenizer can produce; the rest are padding."""
    if tokenizer is None:
        return config
    learned = max(tokenizer.backend.get_vocab(with_added_tokens=False).values(), default=-1) + 1
    if learned > config.vocab_size:
        raise UserError(
            f"expected a tokenizer of at most {config.vocab_size} entries (the embedding's rows), found {learned} in "
            f"{path}; use the tokenizer that belongs to these weights"
        )
    # Gemma 3's text models ship an image token one past the table; ids are checked before use, so it does no harm.
    real = max(tokenizer.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    return dataclasses.replace(config, real_vocab_size=min(real, config.vocab_size))


def _read_tokenizer(path: Path):
    if not (path / "tokenizer.json").exists():
        return None
    from canaryjax.data.tokens import TextTokenizer

    return TextTokenizer.from_directory(path)


def _read_special_ids(path: Path, raw: dict, config: ModelConfig) -> tuple[tuple[int, ...], int | None]:
    generation = path / "generation_config.json"
    places = [(generation, read_json(generation))] if generation.exists() else []
    places.append((path / "config.json", {**raw, **(raw.get("text_config") or {})}))

    def first(name):
        return next(((where, entry[name]) for where, entry in places if entry.get(name) is not None), (None, None))

    where, eos = first("eos_token_id")
    eos_ids = tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)
    bos_where, bos = first("bos_token_id")
    for file, token in [*((where, token) for token in eos_ids), *([(bos_where, bos)] if bos is not None else [])]:
        if type(token) is not int or not 0 <= token < config.vocab_size:
            raise UserError(
                f"expected token ids below {config.vocab_size} in {file}, found {token!r}; correct the file"
            )
    return eos_ids, bos
