"""Shapes of well-known models, for plans without their weights."""

from dataclasses import replace

from canaryjax.models.config import ModelConfig

_QWEN25_1_5B = ModelConfig(
    family="qwen2", vocab_size=151_936, width=1536, num_layers=28, num_heads=12, num_kv_heads=2, head_dim=128,
    ff_dim=8960, norm_eps=1e-6, rope_theta=1e6, rope_theta_local=1e6, rope_scaling=None, windows=(None,) * 28,
    attn_scale=128**-0.5, attn_softcap=None, final_softcap=None, activation="silu", scale_embedding=False,
    unit_offset_norm=False, post_norms=False, qk_norm=False, qkv_bias=True, o_bias=False, mlp_bias=False, tied=True,
    real_vocab_size=151_665, dtype="bfloat16",
)  # fmt: skip
KNOWN_SHAPES = {
    "qwen2.5-1.5b": _QWEN25_1_5B,
    "gemma-2b": replace(
        _QWEN25_1_5B, family="gemma", vocab_size=256_000, width=2048, num_layers=18, num_heads=8, num_kv_heads=1,
        head_dim=256, ff_dim=16_384, rope_theta=1e4, rope_theta_local=1e4, windows=(None,) * 18, attn_scale=256**-0.5,
        activation="gelu_tanh", scale_embedding=True, unit_offset_norm=True, qkv_bias=False, real_vocab_size=256_000,
    ),
    "smollm2-135m": replace(
        _QWEN25_1_5B, family="llama", vocab_size=49_152, width=576, num_layers=30, num_heads=9, num_kv_heads=3,
        head_dim=64, ff_dim=1536, norm_eps=1e-5, rope_theta=1e5, rope_theta_local=1e5, windows=(None,) * 30,
        attn_scale=64**-0.5, qkv_bias=False, real_vocab_size=49_152,
    ),
    "llama3.2-1b": replace(
        _QWEN25_1_5B, family="llama", vocab_size=128_256, width=2048, num_layers=16, num_heads=32, num_kv_heads=8,
        head_dim=64, ff_dim=8192, norm_eps=1e-5, rope_theta=5e5, rope_theta_local=5e5, windows=(None,) * 16,
        attn_scale=64**-0.5, qkv_bias=False, real_vocab_size=128_256,
    ),
}  # fmt: skip


def known_shape(path: str) -> ModelConfig | None:
    """The shape of a well-known model whose name occurs in a path, or None.

    >>> known_shape("google/gemma-2b").head_dim
    256
    """
    name = path.lower()
    return next((shape for key, shape in KNOWN_SHAPES.items() if key in name), None)
