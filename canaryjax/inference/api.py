"""The Python interface: text or ids in, NumPy and text out; batches, buckets and checks are made here."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.errors import InvalidScore, UserError
from canaryjax.inference.batch import sample as _sample
from canaryjax.inference.forward import run_context
from canaryjax.inference.logprobs import head_logits, score_shared
from canaryjax.inference.packing import FEWEST_TOKENS, batches, cut, filled, pad, round_up
from canaryjax.inference.records import Completion, TokenScores
from canaryjax.inference.request import (
    Ids,
    Pair,
    as_entries,
    check_ids,
    encode_pairs,
    encode_prompts,
    plain,
    read_request,
)
from canaryjax.inference.sampling import SamplingSettings
from canaryjax.keys import device_key
from canaryjax.models.lora import Adapter, check_adapter
from canaryjax.weights.checkpoint import LoadedModel, check_model

MOST_LOGITS = 2**26  # floats of full logits that one batch of `logits` may hold: 256 MiB

_score = jax.jit(score_shared)


@jax.jit
def _logits(model, ids_bs):
    return head_logits(model, None, run_context(model, None, ids_bs)[0])


def logits(model: LoadedModel, ids: Sequence[Ids]) -> list[np.ndarray]:
    """The model's own logits at every token.

    Args:
      model: From `load_model`.
      ids: Token ids of each row, any lengths; a beginning-of-sequence token is not added.

    Returns:
      Per row float32 `(tokens, vocabulary)`, padded vocabulary rows included; entry t predicts token t + 1.

    Raises:
      UserError: No loaded model, anything but rows of whole numbers, an empty row, or an id outside the vocabulary.
    """
    check_model(model)
    given = as_entries(ids, "ids", "a list of lists of ids")
    rows = [check_ids(row, model.config.vocab_size, f"row {i}") for i, row in enumerate(given)]
    # Full logits outweigh everything else here, so a batch is bounded by them.
    weight = max(1, model.config.vocab_size * 8192 // MOST_LOGITS)
    lengths = [round_up(len(row), FEWEST_TOKENS) for row in rows]
    found: list[Any] = [None] * len(rows)
    for part, size in batches([(length, length * weight) for length in lengths]):
        padded, _ = pad([rows[i] for i in filled(part, size)], lengths[part[0]])
        out = np.asarray(_logits(model.params, padded))
        for place, i in enumerate(part):
            found[i] = out[place, : len(rows[i])].copy()
    return found


def score(
    model: LoadedModel,
    prompts: Sequence[str] | Sequence[Ids] | str,
    continuations: Sequence[Any] | str,
    adapter: Adapter | None = None,
) -> list[Any]:
    """Log-probs of continuations after their prompts, under the model's own law at temperature 1.

    Text is tokenised as one string, prompt and continuation, and cut afterwards. Continuations of one prompt share its
    forward pass.

    Args:
      model: From `load_model`.
      prompts: Texts, or lists of ids, one a prompt. A single text is a list of one.
      continuations: Per prompt one continuation, or a list of them; of the same kind as the prompts.
      adapter: From `load_adapter` with this model, or None for the base.

    Returns:
      Per prompt its `TokenScores`, or a list of them where a list was given.

    Raises:
      UserError: No loaded model, lists that do not match, an empty prompt or continuation, text without a tokenizer, an
        id outside the vocabulary, an adapter of another base.
      InvalidScore: A log-prob that is not finite.
    """
    check_model(model)
    check_adapter(adapter, model.config)
    asked = read_request(prompts, continuations)
    pairs = encode_pairs(model, asked)
    scores: list[Any] = [[] for _ in asked.prompts]
    for pair, logps in zip(pairs, score_pairs(model, pairs, adapter), strict=True):
        _refuse_nonfinite(logps, f"a continuation of prompt {pair.prompt}")
        scores[pair.prompt].append(TokenScores(pair.continuation, logps, pair.text, pair.straddles))
    return [s[0] if one else s for s, one in zip(scores, asked.single, strict=True)]


def score_pairs(model: LoadedModel, pairs: Sequence[Pair], adapter: Adapter | None = None) -> list[np.ndarray]:
    """Log-probs of each pair's continuation, float32 `(tokens,)`, finite or not.

    Pairs of one context share its pass, as many as a batch may hold.
    """
    groups: dict[bytes, list[int]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault(pair.context.tobytes(), []).append(index)
    rows: list[Sequence[int]] = []
    shapes = []
    for group in groups.values():
        s = round_up(len(pairs[group[0]].context), FEWEST_TOKENS)
        t = round_up(max(len(pairs[i].continuation) for i in group), FEWEST_TOKENS)
        for members in cut(group, s, t):
            g = round_up(len(members))
            rows.append(members)
            shapes.append(((s, g, t), s + g * t))
    found: list[Any] = [None] * len(pairs)
    for part, size in batches(shapes):
        (s, g, t), _ = shapes[part[0]]
        chosen = [filled(list(rows[r]), g) for r in filled(part, size)]
        context = pad([pairs[members[0]].context for members in chosen], s)
        ids, mask = pad([pairs[i].continuation for members in chosen for i in members], t)
        out = np.asarray(_score(model.params, adapter, *context, ids.reshape(size, g, t), mask.reshape(size, g, t)))
        for place, r in enumerate(part):
            for own, i in enumerate(rows[r]):
                found[i] = out[place, own, : len(pairs[i].continuation)].copy()
    return found


def generate(
    model: LoadedModel,
    prompts: Sequence[str] | Sequence[Ids] | str,
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    top_p: float = 1.0,
    num_samples: int = 1,
    seed: int = 0,
    adapter: Adapter | None = None,
) -> list[list[Completion]]:
    """Continues prompts until an end-of-sequence token or `max_new_tokens`.

    What a prompt yields depends on the seed and its index in the list, not on the other prompts.

    Args:
      model: From `load_model`.
      prompts: Texts, or lists of ids. A single text is a list of one.
      max_new_tokens: At most so many tokens, the end-of-sequence token included.
      temperature: 0, and anything below 1e-6, takes the most probable token each time; at most 1e6.
      top_p: Samples from the most probable tokens that together reach this mass.
      num_samples: Completions a prompt.
      seed: Any integer.
      adapter: From `load_adapter` with this model, or None for the base.

    Returns:
      Per prompt a list of `num_samples` completions.

    Raises:
      UserError: No loaded model, a setting out of range, an empty prompt, text without a tokenizer, an id outside the
        vocabulary, an adapter of another base.
      InvalidScore: A log-prob that is not finite: what was sampled then means nothing either.
    """
    check_model(model)
    check_adapter(adapter, model.config)
    num_samples, max_new_tokens, temperature, top_p, seed = map(
        plain, (num_samples, max_new_tokens, temperature, top_p, seed)
    )
    settings = SamplingSettings(num_samples, max_new_tokens, temperature, top_p, tuple(model.eos_ids))
    if type(seed) is not int:
        raise UserError(f"expected seed to be a whole number, found {seed!r}; pass an int")
    rows = encode_prompts(model, prompts)
    keys = jax.vmap(partial(jax.random.fold_in, device_key(seed, "generate")))(jnp.arange(max(len(rows), 1)))
    lengths = [round_up(len(row), FEWEST_TOKENS) for row in rows]
    found: list[Any] = [None] * len(rows)
    for part, size in batches([(length, length + num_samples * max_new_tokens) for length in lengths]):
        chosen = filled(part, size)
        context = pad([rows[i] for i in chosen], lengths[part[0]])
        rollout = jax.tree.map(
            np.asarray, _sample(model.params, adapter, *context, keys[np.array(chosen)], settings=settings)
        )
        for place, i in enumerate(part):
            found[i] = [_completion(model, rollout, place, g) for g in range(num_samples)]
            for completion in found[i]:
                _refuse_nonfinite(completion.logps, f"a completion of prompt {i}")
    return found


def _refuse_nonfinite(logps: np.ndarray, what: str) -> None:
    if not np.isfinite(logps).all():
        raise InvalidScore(
            f"expected finite log-probs, found {logps.tolist()} for {what}: the weights or the adapter hold values "
            "that are not numbers; check them"
        )


def _completion(model, rollout, b, g):
    length = int(rollout.completion_mask_pbgt[b, g].sum())
    ids = rollout.ids_pbgt[b, g, :length].copy()
    text = model.tokenizer.decode(ids) if model.tokenizer else None
    return Completion(ids, text, rollout.raw_logps_pbgt[b, g, :length].copy(), bool(rollout.finished_pbg[b, g]))
