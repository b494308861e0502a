"""Sampling for many policies from lists of prompts: padding, batching and one compiled program a shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from canaryjax.data.buckets import pad_rows
from canaryjax.inference.generate import Rollout, sample_rollouts
from canaryjax.inference.sampling import SamplingSettings
from canaryjax.models.lora import Adapter
from canaryjax.models.sharding import fetch, place_rows
from canaryjax.models.transformer import Transformer

_sample = partial(jax.jit, static_argnames="settings")(sample_rollouts)


# keys [p], row numbers [b] -> keys [p, b]
_fold_rows = jax.jit(jax.vmap(jax.vmap(jax.random.fold_in, in_axes=(None, 0)), in_axes=(0, None)))


@dataclass(frozen=True, eq=False)
class Sample:
    """One sampled continuation: its ids, end-of-sequence included where `finished`."""

    ids: np.ndarray
    finished: bool


def sample_from(
    model: Transformer,
    adapters: Adapter | None,
    prompts: Sequence[Sequence[np.ndarray]],
    length: int,
    settings: SamplingSettings,
    key: jax.Array,
    batch_size: int,
) -> list[list[list[Sample]]]:
    """Continuations of each policy's prompts.

    Args:
      model: The base.
      adapters: Stacked over policies, or None for the base (then `prompts` holds one list).
      prompts: Per policy, as many prompts as any other.
      length: Prompts are padded to this many tokens.
      settings: Static.
      key: Each prompt draws from its own fold of it, whatever the batch.
      batch_size: Prompts of one policy a call.

    Returns:
      `[policy][prompt][sample]`.
    """
    count = len(prompts[0])
    batch_size = min(batch_size, count)
    found: list[list[list[Sample]]] = [[] for _ in prompts]
    for start in range(0, count, batch_size):
        # The last batch is filled up with rows already seen, so that one program serves all.
        rows = [min(start + i, count - 1) for i in range(batch_size)]
        padded = [pad_rows([own[row] for row in rows], length, 0) for own in prompts]
        ids, mask = (np.stack(arrays) for arrays in zip(*padded, strict=True))
        keys = _fold_rows(jax.random.split(key, len(prompts)), np.asarray(rows))
        ids, mask, keys = place_rows(model, (ids, mask, keys))
        rollout: Rollout = fetch(_sample(model, adapters, ids, mask, keys, settings=settings))
        for policy, own in enumerate(found):
            own.extend(_unpack(rollout, policy, min(batch_size, count - start)))
    return found


def _unpack(rollout: Rollout, policy: int, rows: int) -> list[list[Sample]]:
    ids, mask, finished = (
        np.asarray(a[policy]) for a in (rollout.ids_pbgt, rollout.completion_mask_pbgt, rollout.finished_pbg)
    )
    return [[Sample(ids[b, g][mask[b, g]], bool(finished[b, g])) for g in range(ids.shape[1])] for b in range(rows)]
