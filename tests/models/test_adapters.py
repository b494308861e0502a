"""Adapters: a new one is the base, a merged one is the unmerged, a second on a first is one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.inference.forward import forward_shared
from canaryjax.inference.logprobs import head_logits
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import (
    TARGETS,
    Adapter,
    LoraPair,
    adapter_pairs,
    concatenate_adapters,
    from_pairs,
    init_adapter,
)
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


@jax.jit
def logits(model, adapter):
    ids = jnp.array(np.random.default_rng(0).integers(0, 37, (2, 11)))
    states = forward_shared(model, adapter, ids[:, :5], jnp.ones((2, 5), bool), ids[:, None, 5:]).continuation_bgtd
    return head_logits(model, adapter, states)


def random_adapter(config, seed, rank=3, targets=TARGETS):
    adapter = init_adapter(jax.random.key(seed), config, rank, 5.0, targets)
    pairs = {
        name: LoraPair(a=pair.a, b=0.3 * jax.random.normal(jax.random.key(seed + i), pair.b.shape))
        for i, (name, pair) in enumerate(adapter_pairs(adapter).items())
    }
    return from_pairs(pairs, adapter.scale)


@pytest.mark.parametrize("config", [LLAMA, GEMMA3, BIASED], ids=["llama", "gemma3", "biased"])
def test_random_weights_of_any_configuration(config):
    model = init_transformer(jax.random.key(0), config)
    assert {path: x.shape for path, x in parameter_arrays(model).items()} == parameter_shapes(config)
    assert bool(jnp.isfinite(logits(model, None)).all())


def test_no_two_random_arrays_are_alike():
    arrays = parameter_arrays(init_transformer(jax.random.key(0), LLAMA))
    firsts = [float(x.ravel()[0]) for path, x in arrays.items() if not path.endswith("norm")]
    assert len(set(firsts)) == len(firsts)  # one key for all would start every array alike


def test_a_new_adapter_is_the_base_exactly():
    model = init_transformer(jax.random.key(0), LLAMA, stddev=0.3)
    adapter = init_adapter(jax.random.key(1), LLAMA, 3, 5.0, TARGETS)
    assert bool(jnp.array_equal(logits(model, adapter), logits(model, None)))


def test_scale_of_a_new_adapter():
    assert init_adapter(jax.random.key(1), LLAMA, 8, 16.0).scale == 2.0
    assert init_adapter(jax.random.key(1), LLAMA, 16, 16.0, rank_stabilised=True).scale == 4.0


def test_unknown_target_is_named():
    with pytest.raises(UserError, match="query"):
        init_adapter(jax.random.key(1), LLAMA, 8, 16.0, ["q", "query"])


@pytest.mark.parametrize("config", [BIASED, GEMMA3], ids=["untied", "tied"])
def test_merged_equals_unmerged_in_float32(config):
    model, adapter = init_transformer(jax.random.key(0), config, stddev=0.3), random_adapter(config, 7)
    merged, residual = merge_adapter(model, adapter)
    assert residual == 0.0
    whole = logits(merged, None)
    np.testing.assert_allclose(whole, logits(model, adapter), atol=2e-5, rtol=2e-5)
    # Every target takes part: without any one of them the outcome moves by far more than rounding.
    for name in TARGETS:
        pairs = {k: v for k, v in adapter_pairs(adapter).items() if k != name}
        assert float(jnp.abs(logits(model, from_pairs(pairs, adapter.scale)) - whole).max()) > 1e-3


def test_merging_an_adapter_of_the_head_unties_a_tied_model():
    # Added into the embedding, it would change what every token is looked up as.
    model, adapter = (
        init_transformer(jax.random.key(0), GEMMA3, stddev=0.3),
        random_adapter(GEMMA3, 7, targets=["head"]),
    )
    merged, _ = merge_adapter(model, adapter)
    assert not merged.config.tied
    np.testing.assert_array_equal(merged.embedding[...], model.embedding[...])
    wanted = model.embedding[...] + adapter.scale * (adapter.head.a @ adapter.head.b).T
    np.testing.assert_allclose(merged.head[...], wanted, atol=1e-6)
    assert merge_adapter(model, random_adapter(GEMMA3, 7, targets=["q"]))[0].config.tied


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
    first, second = random_adapter(LLAMA, 7, 3, ("q", "v")), random_adapter(LLAMA, 70, 5, ("v", "down", "head"))
    both = concatenate_adapters(first, second)
    # One rank for all projections, as a PEFT file needs: 8, 3 and 5 would be refused when the policy is saved.
    assert {name: pair.a.shape[-1] for name, pair in adapter_pairs(both).items()} == dict.fromkeys(
        ("q", "v", "down", "head"), 8
    )
    assert {name: pair.b.shape for name, pair in adapter_pairs(both).items()} == {
        "q": (3, 8, 60), "v": (3, 8, 20), "down": (3, 8, 14), "head": (8, 37),
    }  # fmt: skip
    once, _ = merge_adapter(model, first)
    twice, _ = merge_adapter(once, second)
    np.testing.assert_allclose(logits(model, both), logits(twice, None), atol=2e-5, rtol=2e-5)
