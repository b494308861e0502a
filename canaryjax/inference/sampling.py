"""The law that tokens are drawn from, and the log-prob under exactly that law."""

from dataclasses import dataclass
from numbers import Integral, Real

import jax
import jax.numpy as jnp

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig

EXCLUDED = -1e30  # finite: no NaN, and no noise lifts it
# Below this, logits that float32 can tell apart leave nothing to chance; further down their quotient would pass the
# excluded rows' value, and end at infinity or NaN.
GREEDY_BELOW = 1e-6
HIGHEST_TEMPERATURE = 1e6  # uniform long before; float32 ends at 3e38


@dataclass(frozen=True)
class SamplingSettings:
    """How continuations are drawn; hashable, so that a jitted program can hold it as a static argument.

    Attributes:
      num_samples: Continuations of each context (g).
      max_new_tokens: Length of the buffers (t); an end-of-sequence token counts.
      temperature: 0, and what is below `GREEDY_BELOW`, takes the most probable token; otherwise logits are divided by
        it.
      top_p: Keep the most probable tokens that together reach this mass (Holtzman et al. 2020); 1 keeps all. Of tokens
        equally probable at the boundary all are kept.
      eos_ids: Tokens that end a continuation; they are part of it.
    """

    num_samples: int
    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self):
        for name in ("num_samples", "max_new_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise UserError(f"expected {name} to be a whole number, found {value!r}; pass an int")
            if value < 1:
                raise UserError(f"expected {name} of at least 1, found {value}; raise it")
        for name in ("temperature", "top_p"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise UserError(f"expected {name} to be a number, found {value!r}; pass a float")
        if not 0 <= self.temperature <= HIGHEST_TEMPERATURE:
            raise UserError(
                f"expected a temperature of 0 or more, found {self.temperature}; 0 is greedy, 1 the model's, "
                f"{HIGHEST_TEMPERATURE:g} the highest"
            )
        if not 0 < self.top_p <= 1:
            raise UserError(f"expected top_p in (0, 1], found {self.top_p}; 1 keeps every token")

    @property
    def greedy(self) -> bool:
        """Whether there is no choice."""
        return self.temperature < GREEDY_BELOW


def sampling_logits(logits: jax.Array, settings: SamplingSettings, config: ModelConfig) -> jax.Array:
    """Logits of the sampled law: divided by the temperature, padded vocabulary rows and the tail beyond top-p out.

    Args:
      logits: float32 `[..., v]`, the model's own.
      settings: Not greedy.
      config: Says which rows are padding.

    Returns:
      float32 `[..., v]`; -1e30 where excluded. Not normalised.
    """
    logits = logits / settings.temperature
    if config.real_vocab_size < config.vocab_size:
        logits = jnp.where(jnp.arange(config.vocab_size) < config.real_vocab_size, logits, EXCLUDED)
    if settings.top_p < 1:
        falling = -jnp.sort(-jax.nn.softmax(logits, axis=-1), axis=-1)
        before = jnp.cumsum(falling, axis=-1) - falling  # mass of the more probable ones
        least = jnp.where(before < settings.top_p, falling, jnp.inf).min(axis=-1, keepdims=True)
        least = jnp.minimum(least, falling[..., :1])  # the first is kept, also where float32 takes top_p for 0
        logits = jnp.where(jax.nn.softmax(logits, axis=-1) >= least, logits, EXCLUDED)
    return logits


def _argmax(x: jax.Array) -> jax.Array:
    """First index of the largest entry, in two passes that vectorise; the pair reduction of `jnp.argmax` does not."""
    entry = jnp.arange(x.shape[-1], dtype=jnp.int32)
    best = jnp.where(x >= x.max(axis=-1, keepdims=True), entry, x.shape[-1] - 1)
    return best.min(axis=-1)


def sample_tokens(
    keys: jax.Array, logits: jax.Array, settings: SamplingSettings, config: ModelConfig
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draws one token for each continuation (Gumbel's maximum), or takes the best one where the law is greedy.

    Args:
      keys: `[b]`, one key a context: what a row draws depends on no other row.
      logits: float32 `[b, g, v]`, the model's own.
      settings: How to draw.
      config: The model's configuration.

    Returns:
      ids int32, log-probs under the sampled law (0 where it is greedy: there is no other choice), and log-probs under
      the model's own law, each `[b, g]`.
    """
    raw = jax.nn.log_softmax(logits, axis=-1)

    def of_chosen(logps, ids):
        return jnp.take_along_axis(logps, ids[..., None], axis=-1)[..., 0]

    if settings.greedy:
        ids = _argmax(logits[..., : config.real_vocab_size])
        return ids, jnp.zeros(ids.shape, jnp.float32), of_chosen(raw, ids)
    plain = settings.temperature == 1 and settings.top_p == 1 and config.real_vocab_size == config.vocab_size
    law = raw if plain else jax.nn.log_softmax(sampling_logits(logits, settings, config), axis=-1)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, logits.shape[1:], jnp.float32))(keys)
    ids = _argmax(law + noise)
    return ids, of_chosen(law, ids), of_chosen(raw, ids)
