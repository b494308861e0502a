"""Writes a model as an ordinary Hugging Face directory, the inverse of loading one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.transformer import Transformer, parameter_arrays
from canaryjax.weights.atomic import new_directory
from canaryjax.weights.engine import export_arrays
from canaryjax.weights.families import ARCHITECTURES, TABLES
from canaryjax.weights.stored import given_path

_ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def config_json(config: ModelConfig, *, bos_id: int | None, eos_ids: Sequence[int], pad_id: int | None) -> dict:
    """The `config.json` that `read_config` and `transformers` read as this configuration."""
    family, slides = config.family, [window is not None for window in config.windows]
    out = {
        "architectures": [next(name for name, known in ARCHITECTURES.items() if known == family)],
        "model_type": "gemma3_text" if family == "gemma3" else family,
        "dtype": config.dtype,
        "bos_token_id": bos_id,
        "eos_token_id": list(eos_ids),
        "pad_token_id": pad_id,
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.ff_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "hidden_activation" if family in ("gemma2", "gemma3") else "hidden_act": _ACTIVATIONS[config.activation],
        "rope_parameters": _rope(config),
    }
    if family != "qwen2":
        if config.qkv_bias != config.o_bias:
            raise UserError(
                "expected biases on all four projections of attention or on none, found them on "
                f"{'q, k and v' if config.qkv_bias else 'o'} alone; no {family} directory can say that"
            )
        out["attention_bias"] = config.qkv_bias
    if family == "llama":
        out["mlp_bias"] = config.mlp_bias
    if family in ("gemma2", "gemma3"):
        out["query_pre_attn_scalar"] = _whole(config.attn_scale**-2)
        out["final_logit_softcapping"] = config.final_softcap
    if family == "gemma2":
        out["attn_logit_softcapping"] = config.attn_softcap
    if family not in ("llama", "gemma"):
        out["layer_types"] = ["sliding_attention" if slide else "full_attention" for slide in slides]
        out["sliding_window"] = next((window for window in config.windows if window is not None), None)
    if family in ("qwen2", "qwen3"):
        out["use_sliding_window"] = any(slides)
    return out


def _whole(x: float) -> int | float:
    return round(x) if abs(x - round(x)) < 1e-6 * x else x


def _rope(config: ModelConfig) -> dict:
    plain = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.family == "gemma3":
        return {"full_attention": plain, "sliding_attention": {**plain, "rope_theta": config.rope_theta_local}}
    if config.rope_scaling is None:
        return plain
    return {
        "rope_type": "llama3",
        "rope_theta": config.rope_theta,
        "factor": config.rope_scaling.factor,
        "low_freq_factor": config.rope_scaling.low_freq_factor,
        "high_freq_factor": config.rope_scaling.high_freq_factor,
        "original_max_position_embeddings": config.rope_scaling.original_max_position,
    }


def save_model(
    model: Transformer,
    directory: str | Path,
    *,
    bos_id: int | None = None,
    eos_ids: Sequence[int] = (),
    pad_id: int | None = None,
    metadata: dict[str, str] | None = None,
    more_settings: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Writes `config.json` and `model.safetensors`; the directory appears whole or not at all.

    Args:
      model: The weights, in their own dtype.
      directory: A new or empty directory; never the one the weights were read from.
      bos_id, eos_ids, pad_id: Recorded in `config.json`.
      metadata: Strings for the safetensors header.
      more_settings: Entries of `config.json` that no configuration of ours holds.
      files: Contents of more files by name, such as a tokenizer's.

    Raises:
      UserError: The directory holds something already, or cannot be written, or `config.json` cannot say where biases
        are.
    """
    directory = given_path(directory)
    tensors = dict(export_arrays(parameter_arrays(model), model.config, TABLES[model.config.family]))
    settings = config_json(model.config, bos_id=bos_id, eos_ids=eos_ids, pad_id=pad_id) | dict(more_settings or {})
    with new_directory(directory) as partial:
        save_file(tensors, partial / "model.safetensors", metadata={"format": "pt", **(metadata or {})})
        (partial / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        for name, content in (files or {}).items():
            (partial / name).write_bytes(content)
