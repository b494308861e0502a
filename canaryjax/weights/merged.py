"""A base with an adapter merged in, as a Hugging Face directory of its own: weights, configuration, tokenizer."""

import json
from pathlib import Path
from typing import Any

from canaryjax.errors import UserError
from canaryjax.models.lora import Adapter
from canaryjax.models.merge import merge_adapter
from canaryjax.weights.atomic import free_place
from canaryjax.weights.checkpoint import LoadedModel, check_model
from canaryjax.weights.export import save_model
from canaryjax.weights.stored import given_path, read_json

_COMPANIONS = (
    *("generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "tokenizer.model", "chat_template.jinja"),
)


def save_merged(model: LoadedModel, adapter: Adapter, path: str | Path) -> float:
    """Writes a model with an adapter merged in, so that `load_model` and `transformers` read it as an ordinary model.

    The sum is made in float32. In bfloat16 it is rounded to the base's dtype, which can lose a small update: load the
    base in float32 to keep it. A tied base comes out untied where the adapter changes its head.

    Args:
      model: The base, from `load_model`.
      adapter: One policy, from `load_adapter` with this model or from training.
      path: A new or empty directory, never the base's own.

    Returns:
      The largest absolute difference between a merged weight and the exact float32 sum; 0 in float32.

    Raises:
      UserError: No loaded model or no adapter, an adapter of another base, merged weights that are not finite, or a
        directory in use.
    """
    check_model(model)
    if not isinstance(adapter, Adapter):
        raise UserError(
            f"expected an adapter to merge, found {type(adapter).__name__}; pass what load_adapter or training returned"
        )
    path = given_path(path)
    free_place(path)  # before the work
    merged, residual = merge_adapter(model.params, adapter)
    tokenizer = model.tokenizer
    settings: dict[str, Any] = {}
    if model.path.is_dir():
        raw = read_json(model.path / "config.json")
        trained_to = (raw.get("text_config") or raw).get("max_position_embeddings")
        settings = {} if trained_to is None else {"max_position_embeddings": trained_to}
        files = {name: (model.path / name).read_bytes() for name in _COMPANIONS if (model.path / name).is_file()}
    else:
        files = {} if tokenizer is None else _tokenizer_files(tokenizer)
    save_model(
        merged, path, bos_id=model.bos_id, eos_ids=model.eos_ids,
        pad_id=None if tokenizer is None else tokenizer.pad_id, more_settings=settings, files=files,
    )  # fmt: skip
    return residual


def _tokenizer_files(tokenizer) -> dict[str, bytes]:
    """Of a tokenizer that was read from a GGUF file: what `TextTokenizer.from_directory` and `transformers` read."""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(tokenizer.bos_count),
        "bos_token": tokenizer.special_text(tokenizer.bos_id) or None,
        "eos_token": tokenizer.special_text(next(iter(tokenizer.eos_ids), None)) or None,
        "pad_token": tokenizer.special_text(tokenizer.pad_id) or None,
        "chat_template": tokenizer.chat_template,
    }
    return {
        "tokenizer.json": tokenizer.backend.to_str().encode(),
        "tokenizer_config.json": json.dumps({k: v for k, v in settings.items() if v is not None}).encode(),
    }
