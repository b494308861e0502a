"""A start from which copying need not be discovered: one previous-token head, one matching head.

At this size and budget most of the training time goes into waiting for two heads in two layers to find each other
(Olsson et al. 2022, induction heads). The random start is therefore given a rough pair of them: a head of the first
layer that looks one token back and stores what it saw, and a head of the second that looks for a token stored under the
current one and copies the token found. Everything stays trainable, nothing is frozen or masked.
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
    """The arrays with the two heads written over head 0 of layer 0 and head 0 of layer 1.

    One embedding entry becomes the same for all tokens. Queries and keys of the first head read that entry only, so
    their product depends on distance alone and, by the keys' phase, peaks at one token back.
    """
    h, half, width = config.head_dim, config.head_dim // 2, config.width
    stddev = float(arrays["embedding"][:, 1:].std())
    angles = config.rope_theta ** (-jnp.arange(half) / half)
    keys = jax.random.split(key, 3)
    seen, kept, copied = (jax.random.orthogonal(k, width)[:, :h].at[0].set(0.0) for k in keys)
    entry = CONSTANT / (1 + CONSTANT**2 / width) ** 0.5  # the shared entry after the norm
    size = (POSITION_SCORE * config.head_dim**0.5) ** 0.5 / entry
    fast = jnp.arange(half) < FAST_PAIRS
    slow = jnp.tile(angles <= MAX_TURN, 2)
    planted = {
        ("q", 0): jnp.zeros((width, h)).at[0].set(size * jnp.concatenate([fast, jnp.zeros(half)])),
        ("k", 0): jnp.zeros((width, h))
        .at[0]
        .set(size * jnp.concatenate([fast * jnp.cos(angles), fast * jnp.sin(angles)])),
        ("v", 0): seen,
        ("o", 0): STORED * kept.T,
        ("q", 1): MATCH * seen * slow,
        ("k", 1): MATCH * kept * slow,
        ("v", 1): COPIED * copied,
        ("o", 1): COPIED * copied.T,
    }
    arrays = dict(arrays)
    arrays["embedding"] = arrays["embedding"].at[:, 0].set(CONSTANT * stddev)
    for (part, layer), kernel in planted.items():
        path = f"blocks.{part}"
        where = (layer, slice(0, h)) if part == "o" else (layer, slice(None), slice(0, h))
        arrays[path] = arrays[path].at[where].set(kernel)
    return arrays
