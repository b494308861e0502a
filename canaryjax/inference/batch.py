"""Batches of few, coarse shapes, for services: each shape is a program, and a program can take a minute to compile.

`generate` and `score` cut what they are given into batches that waste little; a service cannot know what comes next, so
it pads to steps of four and always runs a full batch.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.errors import InvalidScore
from canaryjax.inference.forward import run_context
from canaryjax.inference.generate import Rollout, sample_rollouts
from canaryjax.inference.logprobs import head_logits
from canaryjax.inference.packing import pad
from canaryjax.inference.records import Completion
from canaryjax.inference.sampling import SamplingSettings
from canaryjax.keys import device_key
from canaryjax.models.lora import Adapter
from canaryjax.weights.checkpoint import LoadedModel

LEAST_CONTEXT, LEAST_ANSWER = 64, 16  # tokens
MOST_RANKED = 20  # tokens named at each place, as many as OpenAI's interface may ask for


def step(n: int, least: int) -> int:
    """The smallest of least, 4 least, 16 least, ... that is at least n.

    >>> [step(n, 16) for n in (1, 16, 17, 64, 65)]
    [16, 16, 64, 64, 256]
    """
    while least < n:
        least *= 4
    return least


@partial(jax.jit, static_argnames="settings")
def sample(model, adapter, ids_bs, mask_bs, keys_b, settings) -> Rollout:
    """`sample_rollouts` of one policy, without its axis."""
    stacked = jax.tree.map(lambda a: a[None], adapter)
    rollout = sample_rollouts(model, stacked, ids_bs[None], mask_bs[None], keys_b[None], settings)
    return jax.tree.map(lambda a: a[0], rollout)


@jax.jit
def _rank(model, adapter, ids_bs):
    # No product with the whole vocabulary is kept beyond this one text: a service scores one at a time.
    logps = jax.nn.log_softmax(head_logits(model, adapter, run_context(model, adapter, ids_bs)[0])[0, :-1], axis=-1)
    chosen = jnp.take_along_axis(logps, ids_bs[0, 1:, None], axis=-1)[:, 0]
    real = jnp.where(jnp.arange(logps.shape[-1]) < model.config.real_vocab_size, logps, -jnp.inf)
    return chosen, *jax.lax.top_k(real, min(MOST_RANKED, model.config.real_vocab_size))


def continue_rows(
    model: LoadedModel,
    rows: Sequence[np.ndarray],
    seeds: Sequence[int],
    size: int,
    most: Sequence[int],
    temperature: float,
    top_p: float = 1.0,
    adapter: Adapter | None = None,
) -> list[Completion]:
    """One completion of each row; what a row yields depends on its seed alone, not on the other rows.

    Args:
      model: From `load_model`.
      rows: int32 ids, 1 to `size` rows, none empty.
      seeds: One a row, any integers.
      size: Rows of the batch; the last row is repeated to fill it.
      most: Per row its longest completion in tokens, at least 1; they share the program of the longest.
      temperature, top_p: As in `generate`; each value is a program.
      adapter: As in `generate`.

    Raises:
      UserError: A setting out of range.
      InvalidScore: A log-prob that is not finite.
    """
    given = [*rows, *[rows[-1]] * (size - len(rows))]
    keys = jnp.stack([device_key(seed, "generate", "row") for seed in [*seeds, *[seeds[-1]] * (size - len(rows))]])
    settings = SamplingSettings(1, step(max(most), LEAST_ANSWER), temperature, top_p, tuple(model.eos_ids))
    context = pad(given, step(max(map(len, given)), LEAST_CONTEXT))
    rollout = jax.tree.map(np.asarray, sample(model.params, adapter, *context, keys, settings=settings))
    return [_completion(model, rollout, b, most[b]) for b in range(len(rows))]


def _completion(model: LoadedModel, rollout: Rollout, b: int, most: int) -> Completion:
    drawn = int(rollout.completion_mask_pbgt[b, 0].sum())
    length = min(drawn, most)  # the buffer is longer than what was asked for
    ids, logps = np.array(rollout.ids_pbgt[b, 0, :length]), np.array(rollout.raw_logps_pbgt[b, 0, :length])
    if not np.isfinite(logps).all():
        raise InvalidScore("expected finite log-probs, found others: check the weights and the adapter")
    text = model.tokenizer.decode(ids) if model.tokenizer else None
    return Completion(ids, text, logps, bool(rollout.finished_pbg[b, 0]) and drawn <= most)


def rank_row(
    model: LoadedModel, ids: np.ndarray, adapter: Adapter | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probs of a text's tokens after the first, and the most likely tokens in each of those places.

    Args:
      model: From `load_model`.
      ids: int32 `(t,)`, at least one.
      adapter: As in `score`.

    Returns:
      float32 `(t - 1,)`, nats, at temperature 1, finite or not; ids and log-probs of the most likely tokens, falling,
      each `(t - 1, k)` with k up to 20.
    """
    padded, _ = pad([ids], step(len(ids), LEAST_CONTEXT))  # padding stands behind, where no real token sees it
    chosen, logps, ranked = map(np.asarray, _rank(model.params, adapter, padded))
    n = len(ids) - 1
    return chosen[:n], ranked[:n], logps[:n]
