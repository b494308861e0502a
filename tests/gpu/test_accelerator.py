"""What an accelerator must compute as a CPU does, at small sizes; run by `bin/gpu-check`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.inference.attention import attend_causal
from canaryjax.inference.logprobs import score_shared
from canaryjax.models.lora import init_adapter
from canaryjax.models.transformer import init_transformer
from harness.shape import Shape

pytestmark = pytest.mark.gpu

SHAPE = Shape(context=67, completion=5, group=3, width=48, layers=2, heads=6, kv_heads=2, head=16, ff=104, vocab=211)
SCORE = jax.jit(score_shared)


@pytest.fixture(scope="module")
def batch():
    """Contexts and continuations of different lengths."""
    draws = np.random.default_rng(60)
    b, s, g, t = 2, SHAPE.context, SHAPE.group, SHAPE.completion
    ids, own = (draws.integers(3, SHAPE.vocab, size, dtype=np.int32) for size in ((b, s), (b, g, t)))
    mask, own_mask = np.arange(s) < np.array([[s], [s - 13]]), np.arange(t) < draws.integers(1, t + 1, (b, g, 1))
    return ids, mask, own, own_mask


def policy(dtype="float32"):
    """A base of spread-out weights and an adapter that changes it."""
    model = init_transformer(jax.random.key(61), dataclasses.replace(SHAPE.config(), dtype=dtype), stddev=0.2)
    adapter = init_adapter(jax.random.key(62), SHAPE.config(), 3, 6.0)
    return model, jax.tree.map(lambda x: x + 0.02, adapter)


def test_scores_equal_those_of_the_cpu(batch):
    here, there = jax.devices()[0], jax.devices("cpu")[0]
    with jax.default_matmul_precision("highest"):  # products of 19 bits are a GPU's default
        scored = [np.asarray(SCORE(*jax.device_put((*policy(), *batch), device))) for device in (here, there)]
    allowed = 1e-5 * np.maximum(1.0, np.abs(scored[1]))
    assert (np.abs(scored[0] - scored[1]) <= allowed).all()
    assert (scored[1][batch[3]] < 0).all()  # something was scored


def test_bfloat16_is_near_float32(batch):
    exact, rounded = (np.asarray(SCORE(*policy(dtype), *batch)) for dtype in ("float32", "bfloat16"))
    residual = np.abs(exact - rounded)[batch[3]]
    print(f"bfloat16 residual: mean {residual.mean():.4f}, largest {residual.max():.4f} nats a token")
    assert 0 < residual.mean() < 0.1  # 0 would be float32 in disguise


def test_a_second_call_compiles_nothing(batch):
    compiled: list[str] = []

    def hear(event: str, duration_secs: float, **_: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    arguments = jax.device_put((*policy(), *batch))
    SCORE(*arguments)
    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        SCORE(*jax.tree.map(lambda x: x + 0, arguments[:2]), *arguments[2:]).block_until_ready()
        before = len(compiled)
        SCORE(*arguments).block_until_ready()
        assert len(compiled) == before
    finally:
        jax.monitoring.unregister_event_duration_listener(hear)


@pytest.mark.parametrize("head", [64, 256])
def test_our_attention_equals_cudnns(head):
    if "cuda" not in jax.devices()[0].client.platform_version:
        pytest.skip("needs cuDNN, which only CUDA devices have")
    config = dataclasses.replace(SHAPE.config(), head_dim=head, attn_scale=head**-0.5, dtype="bfloat16")
    b, s, n, k = 2, 134, config.num_heads, config.num_kv_heads  # cuDNN has no backward pass for an odd length
    sizes = [(b, s, n, head), (b, k, s, head), (b, k, s, head), (b, s, n, head)]
    q, keys, values, weights = (
        jax.random.normal(jax.random.fold_in(jax.random.key(63), i), size, jnp.float32).astype(jnp.bfloat16)
        for i, size in enumerate(sizes)
    )

    def ours(q, k, v):
        return attend_causal(q, k, v, jnp.int32(2**30), config)

    def theirs(q, k, v):
        k, v = (jnp.swapaxes(x, 1, 2) for x in (k, v))
        return jax.nn.dot_product_attention(q, k, v, scale=config.attn_scale, is_causal=True, implementation="cudnn")

    found = []
    for attend in (ours, theirs):
        out, back = jax.vjp(attend, q, keys, values)
        found.append([np.asarray(x, np.float32) for x in (out, *back(weights))])
    for mine, their in zip(*found, strict=True):
        assert np.linalg.norm(mine - their) <= 0.01 * np.linalg.norm(mine)  # both round to 8 bits
