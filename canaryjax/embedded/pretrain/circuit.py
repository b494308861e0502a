"""A start from which copying need not be discovered: two heads that look back, two that find a match.

At this size and budget most of the training time goes into waiting for two heads in two layers to find each other
(Olsson et al. 2022, induction heads). The random start is therefore given a rough copy of the pair, twice: heads of the
first layer look one and two tokens back and store what they saw; heads of the second look for a place where the current
token (and, in the second head, the one before it) came just before, and copy the token found there. The second pair
tells `aab` from `aba`. Everything stays trainable, nothing is frozen or masked.
"""

import jax
import jax.numpy as jnp

from canaryjax.models.config import ModelConfig

CONSTANT = 5.0  # the shared embedding entry, in units of the other entries' standard deviation
POSITION_SCORE = 6.0  # attention score at one token back is above its neighbours by about half of this
FAST_PAIRS = 3  # rotating pairs that tell one token back from its neighbours; more would only add to the score's spread
STORED = 0.1  # size of the stored token beside embeddings of 0.05
MATCH = 1.6  # on queries and on keys
COPIED = 1.0  # on values and on outputs
MAX_TURN = 0.02  # radians a token: faster rotating pairs lose a match within a document


def plant_induction(arrays: dict[str, jax.Array], key: jax.Array, config: ModelConfig) -> dict[str, jax.Array]:
    """The arrays with the four heads written over heads 0 and 1 of layers 0 and 1.

    One embedding entry becomes the same for all tokens. Queries and keys of the first layer's heads read that entry
    only, so their product depends on distance alone and, by the keys' phase, peaks at one or two tokens back.
    """
    h, half, width = config.head_dim, config.head_dim // 2, config.width
    stddev = float(arrays["embedding"][:, 1:].std())
    angles = config.rope_theta ** (-jnp.arange(half) / half)
    names = ("seen", "copied", "kept one", "kept two")
    bases = dict(zip(names, (_basis(k, width, h) for k in jax.random.split(key, len(names))), strict=True))
    entry = CONSTANT / (1 + CONSTANT**2 / width) ** 0.5  # the shared entry after the norm
    size = (POSITION_SCORE * h**0.5) ** 0.5 / entry
    fast = jnp.arange(half) < FAST_PAIRS
    slow = jnp.tile(angles <= MAX_TURN, 2)
    planted: dict[tuple[str, int, int], jax.Array] = {}
    for head, kept in enumerate((bases["kept one"], bases["kept two"])):
        turn = (head + 1) * angles
        still, turned = jnp.concatenate([fast, jnp.zeros(half)]), jnp.concatenate([jnp.cos(turn), jnp.sin(turn)])
        planted["q", 0, head] = jnp.zeros((width, h)).at[0].set(size * still)
        planted["k", 0, head] = jnp.zeros((width, h)).at[0].set(size * jnp.tile(fast, 2) * turned)
        planted["v", 0, head] = bases["seen"]
        planted["o", 0, head] = STORED * kept.T
        planted["q", 1, head] = MATCH * slow * (bases["seen"], bases["kept one"])[head]
        planted["k", 1, head] = MATCH * slow * kept
        planted["v", 1, head] = COPIED * bases["copied"]
        planted["o", 1, head] = COPIED * bases["copied"].T
    arrays = dict(arrays)
    arrays["embedding"] = arrays["embedding"].at[:, 0].set(CONSTANT * stddev)
    for (part, layer, head), kernel in planted.items():
        span = slice(head * h, (head + 1) * h)
        where = (layer, span) if part == "o" else (layer, slice(None), span)
        arrays[f"blocks.{part}"] = arrays[f"blocks.{part}"].at[where].set(kernel)
    return arrays


def _basis(key: jax.Array, width: int, size: int) -> jax.Array:
    """Random orthonormal columns that leave the shared embedding entry out: `[width, size]`."""
    return jax.random.orthogonal(key, width)[:, :size].at[0].set(0.0)
