"""Floating-point operations that the mathematics of a forward and a gradient pass asks for."""

from dataclasses import dataclass

from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import projection_shapes


@dataclass(frozen=True)
class Operations:
    """Operations of one context and its continuations, a multiplication and an addition counted as two.

    Attributes:
      linear: Of the frozen projections.
      adapter: Of the low-rank updates.
      attention: Of scores and mixing, over the pairs that causality leaves.
      head: Of the logits at continuation positions.
    """

    linear: int
    adapter: int
    attention: int
    head: int

    @property
    def forward(self) -> int:
        """Of the forward pass alone."""
        return self.linear + self.adapter + self.attention + self.head

    @property
    def gradient(self) -> int:
        """Of forward and backward pass with only the adapter trained.

        The backward pass of a frozen product is one product (its input's gradient), of a trained one two, of attention
        twice the forward's. What is computed again in the backward pass is not counted.
        """
        return self.forward + self.linear + 2 * self.adapter + 2 * self.attention + self.head


def count_operations(config: ModelConfig, context: int, group: int, completion: int, rank: int) -> Operations:
    """Operations for one context shared by `group` continuations; each causal pair is counted once.

    Args:
      config: The model.
      context, completion: Tokens.
      group: Continuations.
      rank: Of an adapter on all seven projections; 0 is none.
    """
    shapes = projection_shapes(config).values()
    tokens = context + group * completion
    pairs = context * (context + 1) // 2 + group * (completion * context + completion * (completion + 1) // 2)
    layers, mixed = config.num_layers, config.num_heads * config.head_dim
    return Operations(
        linear=2 * layers * tokens * sum(size_in * size_out for size_in, size_out in shapes),
        adapter=2 * layers * tokens * rank * sum(size_in + size_out for size_in, size_out in shapes),
        attention=2 * layers * pairs * 2 * mixed,
        head=2 * group * completion * config.vocab_size * config.width,
    )
