"""Tiny random models of all six families, and small tools to damage what they were saved as. No torch."""

import dataclasses
import json
import struct
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.models.config import Llama3RopeScaling, ModelConfig
from canaryjax.models.transformer import Transformer, parameter_arrays, parameter_shapes
from canaryjax.weights.export import save_model

BASE = ModelConfig(
    family="llama",
    vocab_size=37,
    width=14,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=10,
    ff_dim=23,
    norm_eps=3e-4,
    rope_theta=7919.0,
    rope_theta_local=7919.0,
    rope_scaling=None,
    windows=(None, None, None),
    attn_scale=10**-0.5,
    attn_softcap=None,
    final_softcap=None,
    activation="silu",
    scale_embedding=False,
    unit_offset_norm=False,
    post_norms=False,
    qk_norm=False,
    qkv_bias=False,
    o_bias=False,
    mlp_bias=False,
    tied=False,
    real_vocab_size=37,
)
_GEMMA = {"activation": "gelu_tanh", "scale_embedding": True, "unit_offset_norm": True, "tied": True}
_BIASES = {"qkv_bias": True, "o_bias": True}
CONFIGS = {
    "llama": dataclasses.replace(
        BASE, **_BIASES, mlp_bias=True, rope_scaling=Llama3RopeScaling(7.0, 1.3, 5.3, 83), activation="gelu"
    ),
    "qwen2": dataclasses.replace(BASE, family="qwen2", qkv_bias=True, windows=(None, 5, 5)),
    "qwen3": dataclasses.replace(BASE, family="qwen3", qk_norm=True, tied=True),
    "gemma": dataclasses.replace(BASE, family="gemma", **_GEMMA),
    "gemma2": dataclasses.replace(
        BASE,
        **{**_GEMMA, "tied": False},
        family="gemma2",
        post_norms=True,
        windows=(5, None, 5),
        attn_scale=13**-0.5,
        attn_softcap=7.0,
        final_softcap=11.0,
    ),
    "gemma3": dataclasses.replace(
        BASE,
        **_GEMMA,
        **_BIASES,
        family="gemma3",
        post_norms=True,
        qk_norm=True,
        windows=(5, 5, None),
        rope_theta_local=643.0,
        attn_scale=17**-0.5,
    ),
}


def random_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """Every array random and of its own: norms and biases too, so that no two can be swapped unseen."""
    key = jax.random.key(seed)
    arrays = {
        path: (
            0.3 * jax.random.normal(jax.random.fold_in(key, i), shape) + (1.0 if path.endswith("norm") else 0.0)
        ).astype(config.dtype)
        for i, (path, shape) in enumerate(parameter_shapes(config).items())
    }
    return Transformer(config, arrays)


def same_arrays(left: Transformer, right: Transformer) -> bool:
    a, b = parameter_arrays(left), parameter_arrays(right)
    return a.keys() == b.keys() and all(bool(jnp.array_equal(a[path], b[path])) for path in a)


def read_header(file: Path) -> tuple[dict, bytes]:
    """Header and data of a safetensors file, for tests that damage one."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_header(file: Path, header: dict | str, data: bytes) -> None:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_tensors(file: Path, tensors: dict[str, np.ndarray]) -> None:
    header, data = {}, b""
    for key, x in tensors.items():
        kind = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int32": "I32"}[x.dtype.name]
        header[key] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    write_header(file, header, data)


def read_tensors(file: Path) -> dict[str, np.ndarray]:
    from canaryjax.weights.stored import open_safetensors

    return {key: np.array(tensor.read()) for key, tensor in open_safetensors(file).items()}


class Tools:
    configs = CONFIGS
    random_model = staticmethod(random_model)
    same_arrays = staticmethod(same_arrays)
    read_header = staticmethod(read_header)
    write_header = staticmethod(write_header)
    write_tensors = staticmethod(write_tensors)
    read_tensors = staticmethod(read_tensors)


@pytest.fixture(scope="session")
def tools() -> type[Tools]:
    """The functions of this file: test files cannot import it by name."""
    return Tools


@pytest.fixture
def saved(tmp_path) -> Path:
    """A fresh saved llama, for a test to damage."""
    save_model(random_model(CONFIGS["llama"]), tmp_path / "model", bos_id=1, eos_ids=[2, 3])
    return tmp_path / "model"


@pytest.fixture
def sharded(saved, tmp_path) -> Path:
    """The same model in two shards with an index."""
    tensors = read_tensors(saved / "model.safetensors")
    keys = sorted(tensors)
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    where = {key: names[i % 2] for i, key in enumerate(keys)}
    for name in names:
        write_tensors(saved / name, {key: tensors[key] for key in keys if where[key] == name})
    (saved / "model.safetensors").unlink()
    (saved / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return saved
