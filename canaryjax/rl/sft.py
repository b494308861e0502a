"""Supervised training of adapters on reference answers: a warm start, planted secrets, what is tuned on top of them."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from canaryjax.errors import InvalidScore
from canaryjax.inference.logprobs import score_shared
from canaryjax.models.lora import Adapter
from canaryjax.models.sharding import fetch, place_policies, place_rows
from canaryjax.models.transformer import Transformer
from canaryjax.rl.accumulation import sum_passes
from canaryjax.rl.checkpoint import Checkpoints, restored, save_due
from canaryjax.rl.dropout import drop_inputs
from canaryjax.rl.metrics import Log, MetricLog
from canaryjax.rl.optimizer import apply_gradients, init_state, make_optimizer
from canaryjax.rl.order import padded_batches, row_order, take_rows
from canaryjax.rl.programs import once
from canaryjax.rl.reward_model import new_adapter
from canaryjax.rl.settings import SupervisedSettings, require

INIT, DROPOUT = 0, 1  # purposes of the key


@struct.dataclass
class SupervisedRows:
    """Contexts and the answers to learn, EOS included; a context may have several.

    Attributes:
      context_ids: int32 `[n, s]`, right-padded, at least one real token a row.
      context_mask: bool `[n, s]`.
      answer_ids: int32 `[n, g, t]`, right-padded.
      answer_mask: bool `[n, g, t]`; an answer without a real token is padding.
    """

    context_ids: jax.Array
    context_mask: jax.Array
    answer_ids: jax.Array
    answer_mask: jax.Array


def train_supervised(
    model: Transformer,
    rows: SupervisedRows,
    settings: SupervisedSettings,
    key: jax.Array,
    log: Log | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    log_every: int = 10,
) -> Adapter:
    """Trains one adapter to give the reference answers: `train_adapters` of one, on rows without a policy axis.

    Returns:
      The adapter: merge it, or start policies from it and name it their reference.
    """
    alone = jax.tree.map(lambda x: x[None], rows)
    trained = train_adapters(model, alone, settings, key[None], log, checkpoints=checkpoints, log_every=log_every)
    return jax.tree.map(lambda x: x[0], trained)


def train_adapters(
    model: Transformer,
    rows: SupervisedRows,
    settings: SupervisedSettings,
    keys_p: jax.Array,
    log: Log | None = None,
    *,
    stage: str = "warm_start",
    checkpoints: Checkpoints | None = None,
    log_every: int = 10,
) -> Adapter:
    """Trains one adapter a key to give the reference answers, all in one program.

    The loss of an update is the mean over its answer tokens. Each adapter's result depends on its own rows and key
    alone, to float32 rounding. Rows are seen in one permutation an epoch.

    Args:
      model: The base, never changed.
      rows: What to learn, every array with policies in front: `[p, n, ...]`. A policy with fewer rows than others has
        rows without a real token after them; then `settings.steps` says how many updates all make.
      settings: How to train.
      keys_p: Typed keys `[p]`: initial values, order and dropout.
      log: Called with one record a logged update and adapter.
      stage: Names the training in those records.
      checkpoints: Keeps the state now and then, as in `train_policies`.
      log_every: Updates between transfers of metrics from the device.

    Returns:
      Adapters stacked over policies.

    Raises:
      UserError: Unlike numbers of rows without `settings.steps`.
      InvalidScore: A loss or gradient that is not finite.
    """
    counts = np.asarray(rows.context_mask).any(axis=2).sum(axis=1).tolist()
    alike = settings.steps is not None or len(set(counts)) == 1
    require(alike, "equally many rows for every adapter", counts, "set steps")
    rows = jax.tree.map(jnp.asarray, rows)
    size = settings.batch_size * settings.grad_accumulation
    updates = settings.steps or math.ceil(counts[0] * settings.epochs / size)
    drawn = [_batches(key, n, settings, updates, size) for key, n in zip(keys_p, counts, strict=True)]
    batches = np.stack(drawn, axis=1)
    optimizer = make_optimizer(settings.optimizer, updates)
    fresh = jax.vmap(lambda key: new_adapter(jax.random.fold_in(key, INIT), model.config, settings.adapter))(keys_p)
    state = place_policies(model, restored(checkpoints, init_state(optimizer, fresh), updates))
    rows, keys_p = place_policies(model, (rows, keys_p))
    step = _step_program(settings, updates)
    metrics = MetricLog(log, stage, log_every)
    for update in range(int(fetch(state.step)[0]), updates):
        state, out = step(model, state, rows, place_rows(model, batches[update]), keys_p)
        metrics.add(update, out)
        save_due(checkpoints, metrics, state, update + 1, updates)
    metrics.flush()
    if not fetch(state.valid).all():
        what = stage.replace("_", " ")
        raise InvalidScore(f"expected finite losses in the {what}; found one that is not; lower its learning rate")
    return state.params


def _batches(key: jax.Array, rows: int, settings: SupervisedSettings, updates: int, size: int) -> np.ndarray:
    """Row numbers of every update, int32 `[updates, size]`; -1 where the last epoch leaves room."""
    epochs = math.ceil(updates * size / rows) if settings.steps else settings.epochs
    return padded_batches(row_order(key, np.arange(rows), epochs)[: updates * size], size, updates)


@once
def _step_program(settings: SupervisedSettings, updates: int):
    optimizer = make_optimizer(settings.optimizer, updates)

    @functools.partial(jax.jit, donate_argnums=(1,))
    def step(model, state, rows, index_pb, keys_p):
        def one(state, rows, index, key):
            key_now = jax.random.fold_in(jax.random.fold_in(key, DROPOUT), state.step)
            batch = take_rows(rows, index)
            batch = dataclasses.replace(batch, answer_mask=batch.answer_mask & (index >= 0)[:, None, None])

            def loss(adapter):
                adapter = drop_inputs(adapter, key_now, settings.adapter.dropout)

                def summed(part):
                    logps = score_shared(
                        model,
                        adapter,
                        part.context_ids,
                        part.context_mask,
                        part.answer_ids,
                        part.answer_mask,
                        remat=settings.remat,
                    )
                    return logps.sum(), part.answer_mask.sum()

                total, tokens = sum_passes(summed, batch, settings.grad_accumulation)
                return -total / jnp.maximum(tokens, 1)

            value, gradients = jax.value_and_grad(loss)(state.params)
            state, norm = apply_gradients(optimizer, state, value, gradients)
            metrics = {"loss": value, "grad_norm": norm, "valid": state.valid}
            return dataclasses.replace(state, step=state.step + 1), metrics

        return jax.vmap(one)(state, rows, index_pb, keys_p)

    return step
