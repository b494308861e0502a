"""Supervised training of one adapter on reference answers: a warm start before any reinforcement."""

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
from canaryjax.models.sharding import fetch, place_policies
from canaryjax.models.transformer import Transformer
from canaryjax.rl.checkpoint import Checkpoints, restored, save_due
from canaryjax.rl.dropout import drop_inputs
from canaryjax.rl.metrics import Log, MetricLog
from canaryjax.rl.optimizer import apply_gradients, init_state, make_optimizer
from canaryjax.rl.order import padded_batches, row_order, take_rows
from canaryjax.rl.programs import once
from canaryjax.rl.reward_model import new_adapter
from canaryjax.rl.settings import SupervisedSettings

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
    """Trains one adapter to give the reference answers; the loss is the mean over an update's answer tokens.

    Args:
      model: The base, never changed.
      rows: What to learn.
      settings: How to train.
      key: Typed key: initial values, order and dropout.
      log: Called with one record a logged update.
      checkpoints: Keeps the state now and then, as in `train_policies`.
      log_every: Updates between transfers of metrics from the device.

    Returns:
      The adapter: merge it, or start policies from it and name it their reference.

    Raises:
      InvalidScore: A loss or gradient that is not finite.
    """
    rows = jax.tree.map(jnp.asarray, rows)
    n = rows.context_ids.shape[0]
    updates = math.ceil(n * settings.epochs / settings.batch_size)
    batches = padded_batches(row_order(key, np.arange(n), settings.epochs), settings.batch_size, updates)
    optimizer = make_optimizer(settings.optimizer, updates)
    fresh = new_adapter(jax.random.fold_in(key, INIT), model.config, settings.adapter)
    state = restored(checkpoints, init_state(optimizer, jax.tree.map(lambda x: x[None], fresh)), updates)
    state = place_policies(model, state)
    step = _step_program(settings, updates)
    metrics = MetricLog(log, "warm_start", log_every)
    for update in range(int(fetch(state.step)[0]), updates):
        state, out = step(model, state, rows, batches[update], key)
        metrics.add(update, out)
        save_due(checkpoints, metrics, state, update + 1, updates)
    metrics.flush()
    if not fetch(state.valid)[0]:
        raise InvalidScore("expected finite losses in the warm start; found one that is not; lower its learning rate")
    return jax.tree.map(lambda x: x[0], state.params)


@once
def _step_program(settings: SupervisedSettings, updates: int):
    optimizer = make_optimizer(settings.optimizer, updates)

    @functools.partial(jax.jit, donate_argnums=(1,))
    def step(model, state, rows, index, key):
        batch = take_rows(rows, index)
        mask = batch.answer_mask & (index >= 0)[:, None, None]

        def one(state):
            key_now = jax.random.fold_in(jax.random.fold_in(key, DROPOUT), state.step)

            def loss(adapter):
                logps = score_shared(
                    model,
                    drop_inputs(adapter, key_now, settings.adapter.dropout),
                    batch.context_ids,
                    batch.context_mask,
                    batch.answer_ids,
                    mask,
                    remat=settings.remat,
                )
                return -logps.sum() / jnp.maximum(mask.sum(), 1)

            value, gradients = jax.value_and_grad(loss)(state.params)
            state, norm = apply_gradients(optimizer, state, value, gradients)
            return dataclasses.replace(state, step=state.step + 1), {
                "loss": value,
                "grad_norm": norm,
                "valid": state.valid,
            }

        return jax.vmap(one)(state)

    return step
