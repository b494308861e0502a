"""Floating-point operations that the log-probs of continuations, and their gradient, ask for."""

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

    Of the last layer nobody reads a context's tokens but their keys and values and the last one's state: what a pass
    may leave out there is not counted.

    Args:
      config: The model.
      context, completion: Tokens.
      group: Continuations.
      rank: Of an adapter on all seven projections; 0 is none.
    """
    tokens, read = context + group * completion, 1 + group * completion
    own_pairs = group * (completion * context + completion * (completion + 1) // 2)
    pairs, read_pairs = context * (context + 1) // 2 + own_pairs, context + own_pairs
    before, mixed = config.num_layers - 1, config.num_heads * config.head_dim
    linear = adapter = 0
    for name, (size_in, size_out) in projection_shapes(config).items():
        rows = before * tokens + (tokens if name in ("k", "v") else read)
        linear += 2 * rows * size_in * size_out
        adapter += 2 * rows * rank * (size_in + size_out)
    return Operations(
        linear=linear,
        adapter=adapter,
        attention=2 * (before * pairs + read_pairs) * 2 * mixed,
        head=2 * group * completion * config.vocab_size * config.width,
    )
