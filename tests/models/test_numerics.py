"""Where numbers are rounded, and in which order a layer works: faults that a float32 test of the whole cannot show."""

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from canaryjax.models.config import ModelConfig
from canaryjax.models.transformer import (
    Block,
    Transformer,
    apply_block,
    apply_rope,
    embed,
    parameter_shapes,
    rms_norm,
    rope_tables,
)

CONFIG = ModelConfig(
    **{"family": "gemma3", "vocab_size": 11, "width": 10, "num_layers": 1, "num_heads": 3, "num_kv_heads": 1},
    **{"head_dim": 6, "ff_dim": 7, "norm_eps": 3e-3, "rope_theta": 53.0, "rope_theta_local": 53.0},
    **{"rope_scaling": None, "windows": (None,), "attn_scale": 0.3, "attn_softcap": None, "final_softcap": None},
    **{"activation": "gelu_tanh", "scale_embedding": True, "unit_offset_norm": True, "post_norms": False},
    **{"qk_norm": True, "qkv_bias": False, "o_bias": False, "mlp_bias": False, "tied": True, "real_vocab_size": 11},
)


def random_model(dtype="float32"):
    config, rng = dataclasses.replace(CONFIG, dtype=dtype), np.random.default_rng(3)
    shapes = parameter_shapes(config)
    return Transformer(config, {path: jnp.asarray(rng.normal(size=shape), dtype) for path, shape in shapes.items()})


def by_hand_norm(x, weight):
    """float64, the weight's offset added there."""
    x, weight = np.asarray(x, np.float64), np.asarray(weight, np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + CONFIG.norm_eps) * (1 + weight)


def test_the_embeddings_factor_is_rounded_before_it_multiplies():
    # sqrt(10) is 3.1623, in bfloat16 3.15625: Gemma was trained with the latter. Rounded once, after an exact product,
    # entries differ in their last bit.
    model = random_model("bfloat16")
    ids = np.arange(11)
    table = np.asarray(model.embedding[...])
    wanted = (table.astype(np.float32) * np.float32(3.15625)).astype(ml_dtypes.bfloat16)
    rounded_late = (table.astype(np.float32) * np.float32(10**0.5)).astype(ml_dtypes.bfloat16)
    assert (wanted != rounded_late).any()
    np.testing.assert_array_equal(np.asarray(embed(model, ids)), wanted)


def test_a_norm_is_exact_until_it_is_rounded_once():
    # In bfloat16 1 + 2^-9 is 1: an offset added there loses the weight, and squares summed there lose a digit.
    weight = jnp.full(10, 2.0**-9, jnp.bfloat16)
    config = dataclasses.replace(CONFIG, dtype="bfloat16")
    x = jnp.asarray(np.random.default_rng(4).normal(size=(211, 10)) * 5, jnp.bfloat16)
    model = random_model("bfloat16")
    found = rms_norm(x, type(model.final_norm)(weight), config)
    assert found.dtype == jnp.bfloat16
    wanted = by_hand_norm(x, weight).astype(ml_dtypes.bfloat16)
    without = by_hand_norm(x, 0 * weight).astype(ml_dtypes.bfloat16)
    assert (wanted != without).any()
    np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize("offset", [True, False])
def test_a_norms_gradients_are_those_of_its_formula(offset):
    # The backward pass is written out: against central differences in float64, for states and weights.
    config = dataclasses.replace(CONFIG, unit_offset_norm=offset)
    rng = np.random.default_rng(6)
    x, weight, of_y = rng.normal(size=(3, 10)), rng.normal(size=10), rng.normal(size=(3, 10))

    def ours(x, weight):
        model = random_model()
        return (rms_norm(x, type(model.final_norm)(weight), config) * jnp.asarray(of_y, jnp.float32)).sum()

    def formula(x, weight):
        y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + config.norm_eps) * (offset + weight)
        return (y * of_y).sum()

    found = jax.grad(ours, (0, 1))(jnp.asarray(x, jnp.float32), jnp.asarray(weight, jnp.float32))
    for index, operand in enumerate((x, weight)):
        wanted = np.zeros_like(operand)
        for at in np.ndindex(operand.shape):
            step = np.zeros_like(operand)
            step[at] = 1e-6
            ends = ([o + sign * step * (o is operand) for o in (x, weight)] for sign in (1, -1))
            above, below = (formula(*end) for end in ends)
            wanted[at] = (above - below) / 2e-6
        np.testing.assert_allclose(found[index], wanted, rtol=1e-5, atol=1e-5)


def test_queries_and_keys_are_normalised_before_they_are_turned():
    # A norm whose weight differs between a head's two halves does not commute with the rotation.
    model = random_model()
    block = Block(
        {part: getattr(model.blocks, part)[0] for part in Block.PARTS if getattr(model.blocks, part) is not None}
    )
    x = jnp.asarray(np.random.default_rng(5).normal(size=(2, 5, 10)), jnp.float32)
    positions = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]])
    seen = {}

    def attend(q, k, v):
        seen.update(q=np.asarray(q), k=np.asarray(k))
        return jnp.zeros_like(q), None

    apply_block(block, {}, 1.0, x, rope_tables(CONFIG, jnp.asarray(positions))[0], attend, CONFIG)
    h = by_hand_norm(x, block.pre_attn_norm[...])
    for name, kernel, weight, heads in (("q", block.q, block.q_norm, 3), ("k", block.k, block.k_norm, 1)):
        plain = (h @ np.asarray(kernel[...], np.float64)).reshape(2, 5, heads, 6)
        np.testing.assert_allclose(seen[name], turned(by_hand_norm(plain, weight[...]), positions), atol=2e-5)
        assert np.abs(by_hand_norm(turned(plain, positions), weight[...]) - seen[name]).max() > 0.1


def test_rotary_angles_are_float32_under_bfloat16():
    # In bfloat16 position 10,007 is 9,984, 23 radians off at the first frequency.
    config = dataclasses.replace(CONFIG, dtype="bfloat16")
    tables = rope_tables(config, jnp.array([[10_007]]))[0]
    assert tables.dtype == jnp.float32
    angles = 10_007 / 53.0 ** (np.arange(3) / 3)
    np.testing.assert_allclose(tables[:, 0, 0], [np.cos(angles), np.sin(angles)], atol=2e-3)


def test_a_rotation_is_rounded_once():
    # 1 * cos - 1 * sin is 2^-12 here; a cosine of bfloat16, or a product rounded before the difference, makes it 0.
    table = jnp.array([0.5 + 2.0**-12, 0.5], jnp.float32).reshape(2, 1, 1, 1)
    found = apply_rope(jnp.ones((1, 1, 1, 2), jnp.bfloat16), table)
    assert found.dtype == jnp.bfloat16
    assert found.ravel().tolist() == [2.0**-12, 1.0]


def turned(x, positions):
    """Rotary positions as complex numbers, one for each pair (i, i + h/2)."""
    angle = positions[..., None] / 53.0 ** (np.arange(3) / 3)
    z = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * angle)[:, :, None]
    return np.concatenate([z.real, z.imag], axis=-1)
