"""Tiny models: sizes prime or all different, every scalar away from its default, so that a swapped axis shows."""

import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import HEAD, Adapter, LoraPair, from_pairs, target_shapes
from canaryjax.models.transformer import Transformer, parameter_shapes

_PLAIN = {
    "family": "qwen2",
    "vocab_size": 53,
    "width": 26,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 14,
    "ff_dim": 37,
    "norm_eps": 3e-5,
    "rope_theta": 777.0,
    "rope_theta_local": 777.0,
    "rope_scaling": None,
    "windows": (None, None, None),
    "attn_scale": 0.31,
    "attn_softcap": None,
    "final_softcap": None,
    "activation": "silu",
    "scale_embedding": False,
    "unit_offset_norm": False,
    "post_norms": False,
    "qk_norm": False,
    "qkv_bias": True,
    "o_bias": False,
    "mlp_bias": False,
    "tied": True,
    "real_vocab_size": 53,
}
# Windows of 5 and 3 are shorter than every context below, and span contexts and continuations.
_WINDOWED = _PLAIN | {
    "family": "gemma3",
    "windows": (5, None, 3),
    "rope_theta_local": 91.0,
    "attn_softcap": 2.5,
    "final_softcap": 4.0,
    "activation": "gelu_tanh",
    "scale_embedding": True,
    "unit_offset_norm": True,
    "post_norms": True,
    "qk_norm": True,
    "qkv_bias": False,
}
STYLES = {"plain": _PLAIN, "windowed": _WINDOWED}


def make_model(style: str = "plain", seed: int = 0, stddev: float = 0.3, **changes) -> Transformer:
    """Normal weights, norms and biases included, drawn with NumPy: nothing to compile."""
    config, rng = ModelConfig(**(STYLES[style] | changes)), np.random.default_rng(seed)
    arrays = {
        path: jnp.asarray(rng.normal(size=shape) * stddev, config.dtype)
        for path, shape in parameter_shapes(config).items()
    }
    return Transformer(config, arrays)


def make_adapter(config: ModelConfig, seed: int, rank: int = 3, size: float = 0.1) -> Adapter:
    """An adapter far from zero, on every projection and the head."""
    rng, pairs = np.random.default_rng(seed), {}
    for name, (size_in, size_out) in target_shapes(config).items():
        stack = () if name == HEAD else (config.num_layers,)
        a, b = (size * rng.normal(size=(*stack, *shape)) for shape in ((size_in, rank), (rank, size_out)))
        pairs[name] = LoraPair(a=jnp.asarray(a, jnp.float32), b=jnp.asarray(b, jnp.float32))
    return from_pairs(pairs, 1.7)


@pytest.fixture
def tiny_model():
    """`tiny_model(style="plain", **changes)`."""
    return make_model


@pytest.fixture
def tiny_adapter():
    """`tiny_adapter(config, seed)`."""
    return make_adapter


@pytest.fixture
def shared_batch():
    """`shared_batch(key, v)`: contexts of 11, 7 and 2 real tokens in 13, two continuations each of up to 5."""

    def make(seed, v):
        rng = np.random.default_rng(seed)
        lengths, own = np.array([11, 7, 2]), np.array([[5, 3], [1, 4], [5, 2]])
        mask, own_mask = np.arange(13) < lengths[:, None], np.arange(5) < own[..., None]
        ids = np.where(mask, rng.integers(0, v, (3, 13)), 0)
        own_ids = np.where(own_mask, rng.integers(0, v, (3, 2, 5)), 0)
        return jnp.asarray(ids, jnp.int32), jnp.asarray(mask), jnp.asarray(own_ids, jnp.int32), jnp.asarray(own_mask)

    return make
