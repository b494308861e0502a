"""What policies write while they are trained, shown now and then."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from flax import struct

from canaryjax.models.sharding import fetch


@struct.dataclass
class Written:
    """A step's completions as its program leaves them on the device: it has made them anyway.

    Attributes:
      ids_pbgt: int32; 0 after the end.
      mask_pbgt: bool; True at sampled tokens.
      rewards_pbg: float32, as the source gave them: before penalties.
    """

    ids_pbgt: jax.Array
    mask_pbgt: jax.Array
    rewards_pbg: jax.Array | np.ndarray


class Sample(NamedTuple):
    """The completions of the first prompt of a step, policies in front.

    Attributes:
      step: Which step.
      prompts_p: int32, the number of each policy's prompt.
      ids_pgt: int32; 0 after the end.
      mask_pgt: bool; True at sampled tokens.
      rewards_pg: float32.
    """

    step: int
    prompts_p: np.ndarray
    ids_pgt: np.ndarray
    mask_pgt: np.ndarray
    rewards_pg: np.ndarray


class Sampling(NamedTuple):
    """Who sees samples, and how often.

    Attributes:
      take: Called with each.
      every: Of steps; the first and the last are shown besides.
    """

    take: Callable[[Sample], None]
    every: int

    def show(self, step: int, steps: int, index_pb: np.ndarray, written: Written) -> None:
        """Hands on what was written in a step of `steps`, where it is one of those to be shown."""
        if step % self.every and step != steps - 1:
            return
        first = (x[:, 0] for x in fetch((written.ids_pbgt, written.mask_pbgt, written.rewards_pbg)))
        self.take(Sample(step, index_pb[:, 0], *map(np.asarray, first)))
