"""Adapters: a new one is the base, a merged one is the unmerged, a second on a first is one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.inference.forward import forward_shared
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import PROJECTIONS, Adapter, LoraPair, concatenate_adapters, init_adapter
from canaryjax.models.merge import merge_adapter
from canaryjax.models.transformer import Transformer, init_transformer, parameter_arrays, parameter_shapes

LLAMA = ModelConfig(
    **{"family": "llama", "vocab_size": 37, "width": 14, "num_layers": 3, "num_heads": 6, "num_kv_heads": 2},
    **{"head_dim": 10, "ff_dim": 23, "norm_eps": 3e-4, "rope_theta": 7919.0, "rope_theta_local": 7919.0},
    **{"rope_scaling": None, "windows": (None, 4, None), "attn_scale": 0.3, "attn_softcap": None},
    **{"final_softcap": None, "activation": "silu", "scale_embedding": False, "unit_offset_norm": False},
    **{"post_norms": False, "qk_norm": False, "qkv_bias": False, "o_bias": False, "mlp_bias": False},
    **{"tied": False, "real_vocab_size": 37},
)
GEMMA3 = dataclasses.replace(
    LLAMA,
    **{"family": "gemma3", "unit_offset_norm": True, "post_norms": True, "qk_norm": True, "scale_embedding": True},
    **{"activation": "gelu_tanh", "tied": True, "rope_theta_local": 643.0, "attn_softcap": 9.0, "final_softcap": 11.0},
)
BIASED = dataclasses.replace(LLAMA, qkv_bias=True, o_bias=True, mlp_bias=True)


def hidden(model, adapter):
    ids = jnp.array(np.random.default_rng(0).integers(0, 37, (2, 11)))
    return forward_shared(model, adapter, ids[:, :5], jnp.ones((2, 5), bool), ids[:, None, 5:]).continuation_bgtd


def random_adapter(config, seed, rank=3, targets=PROJECTIONS):
    adapter = init_adapter(jax.random.key(seed), config, rank, 5.0, targets)
    layers = {
        name: LoraPair(a=pair.a, b=0.3 * jax.random.normal(jax.random.key(seed + i), pair.b.shape))
        for i, (name, pair) in enumerate(adapter.layers.items())
    }
    return Adapter(layers=layers, scale=adapter.scale)


@pytest.mark.parametrize("config", [LLAMA, GEMMA3, BIASED], ids=["llama", "gemma3", "biased"])
def test_random_weights_of_any_configuration(config):
    model = init_transformer(jax.random.key(0), config)
    assert {path: x.shape for path, x in parameter_arrays(model).items()} == parameter_shapes(config)
    assert bool(jnp.isfinite(hidden(model, None)).all())


def test_no_two_random_arrays_are_alike():
    arrays = parameter_arrays(init_transformer(jax.random.key(0), LLAMA))
    firsts = [float(x.ravel()[0]) for path, x in arrays.items() if not path.endswith("norm")]
    assert len(set(firsts)) == len(firsts)  # one key for all would start every array alike


def test_a_new_adapter_is_the_base_exactly():
    model = init_transformer(jax.random.key(0), LLAMA, stddev=0.3)
    adapter = init_adapter(jax.random.key(1), LLAMA, 3, 5.0)
    assert bool(jnp.array_equal(hidden(model, adapter), hidden(model, None)))


def test_scale_of_a_new_adapter():
    assert init_adapter(jax.random.key(1), LLAMA, 8, 16.0).scale == 2.0
    assert init_adapter(jax.random.key(1), LLAMA, 16, 16.0, rank_stabilised=True).scale == 4.0


def test_unknown_target_is_named():
    with pytest.raises(UserError, match="query"):
        init_adapter(jax.random.key(1), LLAMA, 8, 16.0, ["q", "query"])


def test_merged_equals_unmerged_in_float32():
    model, adapter = init_transformer(jax.random.key(0), BIASED, stddev=0.3), random_adapter(BIASED, 7)
    merged, residual = merge_adapter(model, adapter)
    assert residual == 0.0
    np.testing.assert_allclose(hidden(merged, None), hidden(model, adapter), atol=2e-5, rtol=2e-5)
    # Every projection takes part: without any one of them the outcome moves by far more than rounding.
    for name in PROJECTIONS:
        part = Adapter(layers={k: v for k, v in adapter.layers.items() if k != name}, scale=adapter.scale)
        assert float(jnp.abs(hidden(merge_adapter(model, part)[0], None) - hidden(merged, None)).max()) > 1e-3


def test_merging_leaves_the_base_alone():
    model = init_transformer(jax.random.key(0), LLAMA)
    before = {path: np.array(x) for path, x in parameter_arrays(model).items()}
    merge_adapter(model, random_adapter(LLAMA, 7))
    for path, x in parameter_arrays(model).items():
        np.testing.assert_array_equal(x, before[path])


def test_a_bfloat16_merge_reports_what_it_lost():
    config = dataclasses.replace(LLAMA, dtype="bfloat16")
    ones = {path: jnp.ones(shape, jnp.bfloat16) for path, shape in parameter_shapes(config).items()}
    layers = {"q": LoraPair(a=jnp.full((3, 14, 1), 2.0**-10), b=jnp.ones((3, 1, 60)))}
    merged, residual = merge_adapter(Transformer(config, ones), Adapter(layers=layers, scale=1.0))
    # 1 + 2^-10 rounds back to 1 in bfloat16 (8 bits): the whole update is lost, and the number says so.
    assert residual == 2.0**-10
    assert bool((merged.blocks.q[...] == 1).all())


def test_a_second_adapter_on_a_first_is_one_by_concatenation():
    model = init_transformer(jax.random.key(0), LLAMA, stddev=0.3)
    first, second = random_adapter(LLAMA, 7, 3, ("q", "v")), random_adapter(LLAMA, 70, 5, ("v", "down"))
    both = concatenate_adapters(first, second)
    # One rank for all projections, as a PEFT file needs: 8, 3 and 5 would be refused when the policy is saved.
    assert {name: pair.a.shape[-1] for name, pair in both.layers.items()} == {"q": 8, "v": 8, "down": 8}
    assert {name: pair.b.shape for name, pair in both.layers.items()} == {
        "q": (3, 8, 60), "v": (3, 8, 20), "down": (3, 8, 14),
    }  # fmt: skip
    once, _ = merge_adapter(model, first)
    twice, _ = merge_adapter(once, second)
    np.testing.assert_allclose(hidden(model, both), hidden(twice, None), atol=2e-5, rtol=2e-5)
