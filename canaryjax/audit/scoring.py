"""Log-prob of a string after a context, for many (context, string) items under many policies at once.

Nearly all contexts of a study begin alike (the template), so their common beginning is the shared context and each
item's rest a continuation of it: the beginning is run once a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.data.buckets import pad_rows
from canaryjax.inference.forward import forward_shared
from canaryjax.inference.logprobs import token_logps
from canaryjax.models.lora import Adapter
from canaryjax.models.mesh import axis_size
from canaryjax.models.sharding import fetch, place_rows
from canaryjax.models.transformer import Transformer

LONGEST_REST = 512  # tokens; a longer rest is its own context, whose attention skips what causality masks
LENGTH_STEP = 16
Row = TypeVar("Row")


@dataclass(frozen=True, eq=False)
class Item:
    """A string and where it stands.

    Attributes:
      context: int32 ids before the string, at least one.
      string: int32 ids scored.
    """

    context: np.ndarray
    string: np.ndarray


def filled(rows: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Each policy's rows, its last one repeated until all have as many as the longest; what is repeated counts nowhere.

    >>> filled([[1, 2, 3], [4]])
    [[1, 2, 3], [4, 4, 4]]
    """
    count = max(map(len, rows))
    return [[own[min(i, len(own) - 1)] for i in range(count)] for own in rows]


def score_items(
    model: Transformer,
    adapters: Adapter | None,
    items: Sequence[Sequence[Item]],
    batch_size: int,
    *,
    share: bool = True,
    extra_padding: int = 0,
) -> np.ndarray:
    """Summed log-prob of each string under the raw model law at temperature 1.

    Args:
      model: The base.
      adapters: Stacked over policies, or None for the base itself on every policy's items.
      items: Per policy, as many as any other.
      batch_size: Items of one policy a call.
      share: Run the items' common beginning once a batch; False runs each context by itself, which is the same number
        to rounding and is how the noise floor is measured.
      extra_padding: More padding than needed, for the same purpose.

    Returns:
      float64 `[policies, items]`, nats; not finite where the model's is not.
    """
    flat = [item for own in items for item in own]
    prefix = _common_prefix([item.context for item in flat]) if share else 0
    width = max(len(item.context) + len(item.string) for item in flat) - prefix
    if width > LONGEST_REST:
        prefix = 0
    width = -(-(width + extra_padding) // LENGTH_STEP) * LENGTH_STEP if prefix else 0
    span = max(len(item.string) for item in flat)
    longest = max(len(item.context) for item in flat)
    longest = -(-(longest + extra_padding) // LENGTH_STEP) * LENGTH_STEP
    count = len(items[0])
    batch_size = min(batch_size, count)
    groups = axis_size(model, "data")
    groups = groups if batch_size % groups == 0 else 1
    scores = np.zeros((len(items), count))
    for start in range(0, count, batch_size):
        rows = [min(start + i, count - 1) for i in range(batch_size)]
        used = min(batch_size, count - start)
        batch = [[own[row] for row in rows] for own in items]
        if prefix:
            arrays = place_rows(model, _pack_shared(batch, prefix, width, span, groups))
            found = _score_shared(model, adapters, *arrays)
        else:
            found = _score_alone(model, adapters, *place_rows(model, _pack_alone(batch, longest, span)))
        scores[:, start : start + used] = np.asarray(fetch(found), np.float64)[:, :used]
    return scores


def _common_prefix(contexts: Sequence[np.ndarray]) -> int:
    """How many leading ids all contexts share, at most all but one of the shortest's."""
    shortest = min(len(ids) for ids in contexts)
    stacked = np.stack([ids[:shortest] for ids in contexts])
    same = (stacked == stacked[0]).all(axis=0)
    shared = int(np.argmin(same)) if not same.all() else shortest
    return min(shared, shortest - 1)


def _pack_shared(batch, prefix: int, width: int, span: int, groups: int):
    """Arrays for `_score_shared`: beginnings `[p, c, s]`, rests `[p, b, t]`, where each string starts, the strings.

    There are c groups of items, each with a copy of the beginning: one for each device along the mesh's data axis.
    """
    shape = (len(batch), len(batch[0]))
    rest = np.zeros((*shape, width), np.int32)
    start = np.zeros(shape, np.int32)
    for p, own in enumerate(batch):
        for b, item in enumerate(own):
            ids = np.concatenate([item.context[prefix:], item.string])
            rest[p, b, : len(ids)] = ids
            start[p, b] = len(item.context) - prefix
    head = np.broadcast_to(batch[0][0].context[:prefix], (len(batch), groups, prefix))
    return (head, rest, start, *_strings(batch, span))


def _pack_alone(batch, longest: int, span: int):
    """Arrays for `_score_alone`: contexts `[p, b, s]` with masks, strings `[p, b, k]` with masks."""
    return (*_stacked([[item.context for item in own] for own in batch], longest), *_strings(batch, span))


def _strings(batch, span: int):
    return _stacked([[item.string for item in own] for own in batch], span)


def _stacked(rows, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and masks `[p, b, length]` of each policy's rows."""
    ids, mask = zip(*(pad_rows(own, length, 0) for own in rows), strict=True)
    return np.stack(ids), np.stack(mask)


@jax.jit
def _score_shared(model, adapters, head_pcs, rest_pbt, start_pb, string_pbk, mask_pbk):
    def one(adapter, head, rest, start, string, mask):
        rest, start, string, mask = (x.reshape(len(head), -1, *x.shape[1:]) for x in (rest, start, string, mask))
        states = forward_shared(model, adapter, head, jnp.ones(head.shape, bool), rest)
        # The state that predicts string token i stands at index start + i; the head runs on those alone.
        where = jnp.minimum(start[..., None] + jnp.arange(string.shape[-1]), rest.shape[-1] - 1)
        hidden = jnp.take_along_axis(states.predictors(), where[..., None], axis=2)
        return token_logps(model, adapter, hidden, string, mask).sum(axis=-1).reshape(-1)

    return jax.vmap(one)(adapters, head_pcs, rest_pbt, start_pb, string_pbk, mask_pbk)


@jax.jit
def _score_alone(model, adapters, context_pbs, context_mask_pbs, string_pbk, mask_pbk):
    def one(adapter, context, context_mask, string, mask):
        states = forward_shared(model, adapter, context, context_mask, string[:, None])
        return token_logps(model, adapter, states.predictors()[:, 0], string, mask).sum(axis=-1)

    return jax.vmap(one)(adapters, context_pbs, context_mask_pbs, string_pbk, mask_pbk)
