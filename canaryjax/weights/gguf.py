"""Reads a GGUF file (llama.cpp's format) into a model: metadata, dequantised tensors, tokenizer."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from canaryjax.errors import UserError
from canaryjax.models.config import Llama3RopeScaling, ModelConfig
from canaryjax.models.transformer import Transformer
from canaryjax.weights.checkpoint import LoadedModel, with_real_vocab
from canaryjax.weights.engine import Ignored, Row, Table, load_arrays
from canaryjax.weights.fields import MOST_LAYERS
from canaryjax.weights.gguf_tokenizer import end_ids, read_tokenizer, token_id
from canaryjax.weights.stored import StoredTensor

FAMILIES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3")
_ROPE_FACTORS = "rope_freqs.weight"
# Metadata under the architecture's own prefix that no forward pass reads.
_HARMLESS = frozenset({"context_length", "vocab_size", "block_count", "rope.scaling.finetuned"})
# llama.cpp recognises the models whose attention is scaled by width / heads, not by head size, by their depth.
_SCALED_BY_WIDTH = {"gemma2": 46, "gemma3": 62}


def _rows(family: str) -> tuple[Row, ...]:
    """The family's table; llama's query and key rows are stored as rotary pairs, Gemma's norm weights plus one."""
    pair = family == "llama"
    shift = -1.0 if family.startswith("gemma") else 0.0
    return (
        Row("token_embd.weight", "embedding"),
        Row("output_norm.weight", "final_norm", offset=shift),
        Row("output.weight", "head"),
        Row("blk.{l}.attn_q.weight", "blocks.q", transpose=True, interleaved="q" if pair else None),
        Row("blk.{l}.attn_k.weight", "blocks.k", transpose=True, interleaved="k" if pair else None),
        Row("blk.{l}.attn_v.weight", "blocks.v", transpose=True),
        Row("blk.{l}.attn_output.weight", "blocks.o", transpose=True),
        Row("blk.{l}.ffn_gate.weight", "blocks.gate", transpose=True),
        Row("blk.{l}.ffn_up.weight", "blocks.up", transpose=True),
        Row("blk.{l}.ffn_down.weight", "blocks.down", transpose=True),
        Row("blk.{l}.attn_q.bias", "blocks.q_bias", interleaved="q" if pair else None),
        Row("blk.{l}.attn_k.bias", "blocks.k_bias", interleaved="k" if pair else None),
        Row("blk.{l}.attn_v.bias", "blocks.v_bias"),
        Row("blk.{l}.attn_output.bias", "blocks.o_bias"),
        Row("blk.{l}.ffn_gate.bias", "blocks.gate_bias"),
        Row("blk.{l}.ffn_up.bias", "blocks.up_bias"),
        Row("blk.{l}.ffn_down.bias", "blocks.down_bias"),
        Row("blk.{l}.attn_norm.weight", "blocks.pre_attn_norm", offset=shift),
        Row("blk.{l}.ffn_norm.weight", "blocks.pre_mlp_norm", offset=shift),
        Row("blk.{l}.attn_q_norm.weight", "blocks.q_norm", offset=shift),
        Row("blk.{l}.attn_k_norm.weight", "blocks.k_norm", offset=shift),
        Row("blk.{l}.post_attention_norm.weight", "blocks.post_attn_norm", offset=shift),
        Row("blk.{l}.post_ffw_norm.weight", "blocks.post_mlp_norm", offset=shift),
    )


TABLES = {
    family: Table(
        rows=_rows(family),
        ignored=(Ignored(r"rope_freqs\.weight", "read into the configuration's rope scaling"),),
        dtypes=None,  # whatever the gguf package can dequantise
    )
    for family in FAMILIES
}


def load_gguf(path: Path, dtype: str) -> LoadedModel:
    """Loads a GGUF file of one of the six families, its weights dequantised.

    Raises:
      UserError: The `gguf` package is absent; the file is missing, damaged or one part of several; its architecture,
        rope scaling or metadata are not implemented.
    """
    metadata, tensors = open_gguf(path)
    config = read_gguf_config(metadata, tensors, path, dtype)
    tokenizer = read_tokenizer(metadata, path)
    config = with_real_vocab(config, tokenizer, path)
    arrays = load_arrays(tensors, config, TABLES[config.family], dtype)
    bos = token_id(metadata, "bos_token_id")
    return LoadedModel(Transformer(config, arrays), config, tokenizer, end_ids(metadata), bos, path.stem, path)


def open_gguf(path: Path) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    """A file's metadata and its tensors, none of which is read yet."""
    try:
        import gguf
    except ImportError as error:
        raise UserError(
            f"expected the gguf package to read {path}, found none; run .venv/bin/python -m pip install -e '.[gguf]'"
        ) from error
    if not path.is_file():
        raise UserError(
            f"expected a GGUF file, found {'a directory' if path.is_dir() else 'nothing'} at {path}; check it"
        )

    class Reader(gguf.GGUFReader):
        """Reads through a plain array: each of the million little slices of a memory map is much dearer."""

        @property
        def data(self):
            return self._plain

        @data.setter
        def data(self, mapped):
            self._plain = np.asarray(mapped)

    try:
        reader = Reader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError) as error:
        raise UserError(
            f"expected a whole GGUF file, found {path} damaged or truncated ({error}); fetch it again"
        ) from error
    if metadata.get("split.count", 1) not in (0, 1):
        raise UserError(
            f"expected one GGUF file, found {path}, part of {metadata['split.count']}; merge the parts first"
        )

    def shape_of(tensor) -> tuple[int, ...]:
        return tuple(int(n) for n in reversed(tensor.shape))

    def reading(tensor) -> Callable[[], np.ndarray]:
        def read() -> np.ndarray:
            try:
                # The package takes 16 rows at a time; rows are whole blocks, so longer rows are equal and faster.
                data = tensor.data
                joined = data.reshape(-1, math.gcd(len(data), 512) * data.shape[-1]) if data.ndim == 2 else data
                return gguf.dequantize(joined, tensor.tensor_type).reshape(shape_of(tensor))
            except NotImplementedError as error:
                kind = tensor.tensor_type.name
                raise UserError(
                    f"expected a type that can be dequantised for {tensor.name!r}, found {kind} in {path}; "
                    "quantise the model to another type"
                ) from error

        return read

    return metadata, {
        tensor.name: StoredTensor(tensor.name, path, shape_of(tensor), tensor.tensor_type.name, reading(tensor))
        for tensor in reader.tensors
    }


class _Metadata:
    """The entries under the architecture's prefix; what nobody read is an error, as in `config.json`."""

    def __init__(self, metadata: dict[str, Any], family: str, path: Path):
        self._entries = {
            name.removeprefix(f"{family}."): value for name, value in metadata.items() if name.startswith(f"{family}.")
        }
        self._read: set[str] = set()
        self.path = path

    def get(self, name: str, default=None):
        self._read.add(name)
        return self._entries.get(name, default)

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name, default)
        if isinstance(value, list) and len(set(value)) == 1:  # one entry a layer, all alike
            value = value[0]
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e30:
            raise UserError(
                f"expected {name} to be a positive number in {self.path}, found {value!r}; convert it again"
            )
        # Stored as float32: 9.9999997e-06 means 1e-05.
        return value if isinstance(value, int) else float(str(np.float32(value)))

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.number(name, default)
        if value != int(value):
            raise UserError(f"expected {name} to be a whole number in {self.path}, found {value}; convert it again")
        return int(value)

    def expect(self, name: str, *allowed) -> None:
        value = self.get(name)
        if value is not None and value not in allowed:
            raise UserError(
                f"expected {name} to be one of {list(allowed)} in {self.path}, found {value!r}: not implemented"
            )

    def finish(self) -> None:
        left = sorted(set(self._entries) - self._read - _HARMLESS)
        if left:
            raise UserError(
                f"expected only metadata whose effect is known in {self.path}, found {left}: not implemented"
            )


def read_gguf_config(
    metadata: dict[str, Any], tensors: dict[str, StoredTensor], path: Path, dtype: str = "float32"
) -> ModelConfig:
    """Reads a GGUF file's metadata, and what the presence of a tensor says (biases, an untied head, rope factors)."""
    family = metadata.get("general.architecture")
    if family not in FAMILIES:
        raise UserError(
            f"expected one of the architectures {list(FAMILIES)} in {path}, found {family!r}; use another model"
        )
    if "token_embd.weight" not in tensors:
        raise UserError(f"expected 'token_embd.weight' in {path}, found no such tensor; fetch the file again")
    meta = _Metadata(metadata, family, path)
    width, heads = meta.integer("embedding_length"), meta.integer("attention.head_count")
    layers = meta.integer("block_count")
    if layers > MOST_LAYERS:
        raise UserError(f"expected block_count of at most {MOST_LAYERS} in {path}, found {layers}; convert it again")
    head_dim = meta.integer("attention.key_length", meta.get("rope.dimension_count") or width // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        meta.expect(name, head_dim)
    meta.expect("attention.causal", True)
    meta.expect("rope.scaling.type", "none")
    if meta.get("rope.scaling.type") is None:
        meta.expect("rope.scaling.factor", 1.0)
    theta = meta.number("rope.freq_base", 1e6 if family == "gemma3" else 1e4)
    gemma, capped = family.startswith("gemma"), family == "gemma2"
    vocab = tensors["token_embd.weight"].shape[0]
    config = ModelConfig(
        family=family,
        vocab_size=vocab,
        real_vocab_size=vocab,
        width=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=meta.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        ff_dim=meta.integer("feed_forward_length"),
        norm_eps=meta.number("attention.layer_norm_rms_epsilon"),
        rope_theta=theta,
        rope_theta_local=meta.number("rope.freq_base_swa", 1e4) if family == "gemma3" else theta,
        rope_scaling=_rope_scaling(tensors, theta, head_dim),
        windows=_windows(meta, family, layers),
        attn_scale=_attn_scale(meta, family, width, heads, layers, head_dim),
        attn_softcap=meta.number("attn_logit_softcapping", 50.0) if capped else None,
        final_softcap=meta.number("final_logit_softcapping", 30.0) if capped else None,
        activation="gelu_tanh" if gemma else "silu",
        scale_embedding=gemma,
        unit_offset_norm=gemma,
        post_norms=family in ("gemma2", "gemma3"),
        qk_norm=family in ("gemma3", "qwen3"),
        qkv_bias="blk.0.attn_q.bias" in tensors,
        o_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_gate.bias" in tensors,
        tied="output.weight" not in tensors,
        dtype=dtype,
    )
    meta.finish()
    return config


def _windows(meta: _Metadata, family: str, layers: int) -> tuple[int | None, ...]:
    if family not in ("gemma2", "gemma3"):
        return (None,) * layers
    window = meta.integer("attention.sliding_window", 4096 if family == "gemma2" else None)
    pattern = meta.get("attention.sliding_window_pattern")
    if not isinstance(pattern, list):
        period = meta.integer("attention.sliding_window_pattern", 2 if family == "gemma2" else 6)
        pattern = [(i + 1) % period != 0 for i in range(layers)]
    if len(pattern) != layers:
        raise UserError(f"expected {layers} sliding_window_pattern in {meta.path}, found {len(pattern)}; convert again")
    return tuple(window if slides else None for slides in pattern)


def _attn_scale(meta: _Metadata, family: str, width: int, heads: int, layers: int, head_dim: int) -> float:
    stored = meta.get("attention.scale")
    if stored is not None:
        return meta.number("attention.scale")
    return (width // heads if _SCALED_BY_WIDTH.get(family) == layers else head_dim) ** -0.5


def _rope_scaling(tensors: dict[str, StoredTensor], theta: float, head_dim: int) -> Llama3RopeScaling | None:
    """Recovers Llama 3's scaling from the divisor of each frequency, which is all that the format stores."""
    if _ROPE_FACTORS not in tensors:
        return None
    divisors = np.asarray(tensors[_ROPE_FACTORS].read(), np.float64)
    if divisors.shape != (head_dim // 2,):
        raise UserError(
            f"expected {head_dim // 2} rope factors, found {divisors.shape} in {tensors[_ROPE_FACTORS].file}"
        )
    if np.allclose(divisors, 1.0):
        return None
    frequency = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    factor = float(str(np.float32(divisors.max())))
    # Only L / (high - low) and low / (high - low) matter; Llama 3's own values come first, then a fit with L = 8192.
    candidates = [Llama3RopeScaling(factor, 1.0, 4.0, 8192)]
    ramp = (1 / divisors - 1 / factor) / (1 - 1 / factor)
    inside = (ramp > 1e-6) & (ramp < 1 - 1e-6)
    if inside.sum() >= 2:
        ratio = 8192 * frequency[inside] / (2 * np.pi)
        slope, start = np.polyfit(ratio, ramp[inside], 1)
        candidates.append(Llama3RopeScaling(factor, -start / slope, (1 - start) / slope, 8192))
    for scaling in candidates:
        ratio = scaling.original_max_position * frequency / (2 * np.pi)
        span = scaling.high_freq_factor - scaling.low_freq_factor
        expected = np.clip((ratio - scaling.low_freq_factor) / span, 0, 1)
        if np.allclose(1 / divisors, (1 - expected) / factor + expected, rtol=1e-4):
            return scaling
    raise UserError(
        f"expected rope factors of Llama 3's form in {tensors[_ROPE_FACTORS].file}, found {divisors[:4]}...; "
        "only llama3 scaling is implemented"
    )
