"""Sizes of a benchmark: a Qwen2 model and the tokens it is given."""

import dataclasses
from dataclasses import dataclass

from canaryjax.models.config import ModelConfig


@dataclass(frozen=True)
class Shape:
    """The study's shape by default: 27 million parameters, a long document, short answers.

    Attributes:
      context: Tokens of a prompt, P.
      completion: Tokens of a completion, T.
      group: Completions of a prompt, G.
      width, layers, heads, kv_heads, head, ff, vocab: Of the model; head is the size of one.
      rank: Of a LoRA adapter on all seven projections, where there is one.
    """

    context: int = 1600
    completion: int = 64
    group: int = 8
    width: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 2
    head: int = 64
    ff: int = 1408
    vocab: int = 8192
    rank: int = 16

    def config(self) -> ModelConfig:
        """A Qwen2 configuration of these sizes, float32, its head tied to its embedding."""
        return ModelConfig(
            family="qwen2",
            vocab_size=self.vocab,
            width=self.width,
            num_layers=self.layers,
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=self.head,
            ff_dim=self.ff,
            norm_eps=1e-6,
            rope_theta=1e6,
            rope_theta_local=1e6,
            rope_scaling=None,
            windows=(None,) * self.layers,
            attn_scale=self.head**-0.5,
            attn_softcap=None,
            final_softcap=None,
            activation="silu",
            scale_embedding=False,
            unit_offset_norm=False,
            post_norms=False,
            qk_norm=False,
            qkv_bias=True,
            o_bias=False,
            mlp_bias=False,
            tied=True,
            real_vocab_size=self.vocab,
        )

    def record(self) -> dict[str, int]:
        """The sizes by name, as a result states them."""
        return dataclasses.asdict(self)


DEFAULT = Shape()
# Seconds for all of it, prime and all different where a model allows: what the smoke tests run.
TINY = Shape(
    context=31, completion=7, group=5, width=22, layers=2, heads=6, kv_heads=3, head=10, ff=37, vocab=211, rank=3
)
