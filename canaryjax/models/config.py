"""What a model's configuration says, in one frozen record for all six families."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Llama3RopeScaling:
    """Llama 3's frequency-dependent rope scaling (long wavelengths are slowed, short ones kept, a ramp between)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True)
class ModelConfig:
    """Shape and arithmetic of a decoder-only transformer.

    Every field is read by the forward pass; `canaryjax.weights` fills it from a Hugging Face or GGUF configuration.

    Attributes:
      family: `gemma`, `gemma2`, `gemma3`, `qwen2`, `qwen3` or `llama`.
      vocab_size: Rows of the embedding table, padding rows included.
      width, num_layers, num_heads, num_kv_heads, head_dim, ff_dim: Sizes.
      norm_eps: Added to the mean square before the root.
      rope_theta: Base of the rotary angles of full-attention layers.
      rope_theta_local: Base of the rotary angles of sliding-window layers (Gemma 3); equals `rope_theta` elsewhere.
      rope_scaling: Llama 3's scaling of the full-attention angles, or None.
      windows: Per layer, how many positions back a token may attend (itself included), or None for all.
      attn_scale: Factor on q·k.
      attn_softcap, final_softcap: `cap * tanh(x / cap)` on attention scores and on logits, or None.
      activation: `silu`, `gelu_tanh` or `gelu`, on the gate of the gated feed-forward.
      scale_embedding: Multiply embeddings by sqrt(width), rounded to the compute dtype (Gemma).
      unit_offset_norm: Norm weights are stored minus one (Gemma).
      post_norms: Norms after attention and feed-forward too (Gemma 2, 3).
      qk_norm: Norm each query and key head before the rotation (Qwen3, Gemma 3).
      qkv_bias, o_bias, mlp_bias: Which projections carry a bias.
      tied: The head is the embedding table.
      real_vocab_size: Entries the tokenizer can produce; rows from here on are padding and never sampled.
      dtype: Compute dtype, `float32` or `bfloat16`; norms, softmax, rope, head and losses are float32 in both.
    """

    family: str
    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ff_dim: int
    norm_eps: float
    rope_theta: float
    rope_theta_local: float
    rope_scaling: Llama3RopeScaling | None
    windows: tuple[int | None, ...]
    attn_scale: float
    attn_softcap: float | None
    final_softcap: float | None
    activation: str
    scale_embedding: bool
    unit_offset_norm: bool
    post_norms: bool
    qk_norm: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    tied: bool
    real_vocab_size: int
    dtype: str = "float32"
