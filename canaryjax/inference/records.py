"""What the Python interface returns."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Log-probs of one continuation after its prompt.

    Attributes:
      ids: int32 `(tokens,)`, what was scored.
      logps: float32 `(tokens,)`, nats, under the model's own law at temperature 1.
      text: The continuation as it was given; decoded where ids were given, None without a tokenizer.
      straddles: The first token also covers the end of the prompt: prompt and text do not meet at a token boundary,
        so scoring began at the boundary before.
    """

    ids: np.ndarray
    logps: np.ndarray
    text: str | None
    straddles: bool


@dataclass(frozen=True, eq=False)
class Completion:
    """One generated continuation.

    Attributes:
      ids: int32 `(tokens,)`; the end-of-sequence token, where there is one, is the last.
      text: Decoded, special tokens left out; None without a tokenizer.
      logps: float32 `(tokens,)`, nats, under the model's own law at temperature 1, whatever the law sampled from: what
        `score` gives for the same ids.
      finished: Ended by an end-of-sequence token rather than by `max_new_tokens`.
    """

    ids: np.ndarray
    text: str | None
    logps: np.ndarray
    finished: bool
