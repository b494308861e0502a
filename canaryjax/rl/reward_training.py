"""Trains the reward models of several policies in one program."""

import dataclasses
import functools
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from canaryjax.models.sharding import fetch, place_policies, place_rows
from canaryjax.models.transformer import Transformer
from canaryjax.rl.accumulation import sum_passes
from canaryjax.rl.checkpoint import Checkpoints, restored, save_due
from canaryjax.rl.dropout import drop_inputs
from canaryjax.rl.early_stopping import HELDOUT, Stopping, after_evaluation, new_stopping
from canaryjax.rl.metrics import Log, MetricLog, plain_number
from canaryjax.rl.optimizer import TrainState, apply_gradients, init_state, make_optimizer
from canaryjax.rl.order import padded_batches, row_order, take_rows
from canaryjax.rl.programs import once
from canaryjax.rl.reward_model import (
    RewardModel,
    RewardRows,
    balance_weights,
    finish_reward,
    init_reward_model,
    reward_loss,
    reward_sums,
    score_rewards,
)
from canaryjax.rl.settings import RewardModelSettings, require
from canaryjax.stats.detection import auroc

INIT, DROPOUT = 0, 1  # purposes of a policy's key


@struct.dataclass
class RewardTraining:
    """What is carried from update to update.

    Attributes:
      state: The reward models in training, policies in front.
      stopping: None without early stopping.
      ended: Whether no update is left to make, bool scalar: all are made, or every policy has stopped.
    """

    state: TrainState
    stopping: Stopping | None
    ended: np.ndarray


def train_reward_models(
    model: Transformer,
    rows: RewardRows,
    settings: RewardModelSettings,
    keys_p: jax.Array,
    log: Log | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    log_every: int = 10,
) -> tuple[RewardModel, dict]:
    """Trains one reward model a policy on that policy's rows, all in one program.

    Each policy's result depends on its own rows and key alone, to float32 rounding: with equally many rows to train on,
    all make equally many updates.

    Args:
      model: The base, never changed.
      rows: Labelled responses; g must divide both batch sizes.
      settings: How to train.
      keys_p: Typed keys `[p]`: initial values, order and dropout.
      log: Called with one record a logged update and policy; see `MetricLog`.
      checkpoints: Keeps a `RewardTraining` now and then; a run that goes on from what it kept ends bit for bit as one
        that was never stopped.
      log_every: Updates between transfers of metrics from the device.

    Returns:
      Reward models stacked over policies, and per-policy NumPy arrays `[p]`: `valid`, `heldout_loss`,
      `heldout_accuracy`, `heldout_auc` (NaN where undefined), `updates` (done before stopping); and `seconds`.

    Raises:
      UserError: Batch sizes that split a row, no training row, more of them for one policy than for another, or
        patience without held-out rows.
    """
    started = time.perf_counter()
    plan = _plan(rows, settings, keys_p)
    rows = _balanced(rows) if settings.balance else rows
    fresh = _new_training(settings, len(plan.batches), model, keys_p)
    training = _placed(model, restored(checkpoints, fresh, len(plan.batches)))
    del fresh  # as large as the training's state
    rows, keys_p = place_policies(model, (rows, keys_p))
    if not training.ended:
        training = _train(model, rows, plan, settings, keys_p, training, log, checkpoints, log_every)
    state, stopping = training.state, training.stopping
    trained = state.params if stopping is None else stopping.best
    updates = np.asarray(fetch(state.step))
    if stopping is not None:
        updates = np.where(stopping.stopped_at < 0, updates, stopping.stopped_at)
    result: dict[str, Any] = {"valid": fetch(state.valid), "updates": updates}
    result |= _evaluate(model, trained, rows, plan, settings) if stopping is None else stopping.heldout
    result["seconds"] = time.perf_counter() - started
    if log:
        for policy in range(len(updates)):
            values = {name: plain_number(x[policy]) for name, x in result.items() if name != "seconds"}
            log({"stage": "reward_model_heldout", "policy": policy, **values})
    return trained, result


def _train(
    model: Transformer,
    rows: RewardRows,
    plan: "_Plan",
    settings: RewardModelSettings,
    keys_p: jax.Array,
    training: RewardTraining,
    log: Log | None,
    checkpoints: Checkpoints | None,
    log_every: int,
) -> RewardTraining:
    """All updates that are left, until every policy has stopped."""
    updates = len(plan.batches)
    step, metrics = _step_program(settings, updates), MetricLog(log, "reward_model", log_every)
    state, stopping = training.state, training.stopping
    patience = settings.early_stopping_patience
    for update in range(int(fetch(state.step)[0]), updates):
        state, out = step(model, state, rows, place_rows(model, plan.batches[update]), keys_p)
        metrics.add(update, out)
        done = update + 1
        ended = done == updates
        if stopping is not None and patience is not None and (ended or done % settings.eval_every == 0):
            heldout = _evaluate(model, state.params, rows, plan, settings)
            stopping, state = after_evaluation(stopping, state, heldout, done, patience)
            state = place_policies(model, state)
            ended = ended or not fetch(state.active & state.valid).any()
        training = RewardTraining(state, stopping, np.array(ended))
        save_due(checkpoints, metrics, training, updates if ended else done, updates)
        if ended:
            break
    metrics.flush()
    return training


class _Plan:
    """Which rows each update and evaluation takes: int32 `[updates, p, rows]` and `[p, chunks, rows]`, -1 for none."""

    def __init__(self, batches, heldout):
        self.batches, self.heldout = batches, heldout


def _plan(rows: RewardRows, settings: RewardModelSettings, keys_p) -> _Plan:
    g = rows.response_ids.shape[2]
    for name in ("train_batch_size", "eval_batch_size"):
        size = getattr(settings, name)
        require(size % g == 0, f"{name} a multiple of the {g} responses of a row", size, "a row is never split")
    heldout = np.asarray(rows.heldout_mask)
    require(bool((~heldout).any(axis=1).all()), "training rows for every policy", 0, "hold fewer rows out")
    counts = sorted(set((~heldout).sum(axis=1).tolist()))
    # Else the learning rate of one would follow another's schedule, and Adam would move it on without a row.
    require(len(counts) == 1, "equally many training rows for every policy", counts, "leave rows out")
    patience = settings.early_stopping_patience
    some = bool(heldout.any(axis=1).all())
    require(some or patience is None, "held-out rows for early stopping", 0, "hold rows out, or set patience to None")
    per_update = settings.train_batch_size // g * settings.grad_accumulation
    orders = [row_order(key, np.flatnonzero(~held), settings.epochs) for key, held in zip(keys_p, heldout, strict=True)]
    updates = math.ceil(len(orders[0]) / per_update)
    per_chunk = settings.eval_batch_size // g
    chunks = math.ceil(heldout.sum(axis=1).max() / per_chunk)
    return _Plan(
        batches=np.stack([padded_batches(order, per_update, updates) for order in orders], axis=1),
        heldout=np.stack([padded_batches(np.flatnonzero(held), per_chunk, chunks) for held in heldout]),
    )


def _balanced(rows: RewardRows) -> RewardRows:
    """Balances the labels of each policy's training rows; held-out rows keep their weights."""
    labels, weights = np.asarray(rows.labels), np.array(rows.weights, np.float32)
    for policy, training in enumerate(~np.asarray(rows.heldout_mask)):
        weights[policy, training] = balance_weights(labels[policy, training], weights[policy, training])
    return dataclasses.replace(rows, weights=jnp.asarray(weights))


def _new_training(settings: RewardModelSettings, updates: int, model: Transformer, keys_p: jax.Array) -> RewardTraining:
    state = _new_state(settings, updates, model, keys_p)
    stopping = None if settings.early_stopping_patience is None else new_stopping(state.params)
    return RewardTraining(state, stopping, np.array(False))


def _placed(model: Transformer, training: RewardTraining) -> RewardTraining:
    """What lies on devices in its place; what early stopping remembers beside its best parameters stays on the host."""
    stopping = training.stopping
    if stopping is not None:
        stopping = dataclasses.replace(stopping, best=place_policies(model, stopping.best))
    return dataclasses.replace(training, state=place_policies(model, training.state), stopping=stopping)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _new_state(settings: RewardModelSettings, updates: int, model: Transformer, keys_p: jax.Array) -> TrainState:
    def one(key):
        return init_reward_model(jax.random.fold_in(key, INIT), model.config, settings.adapter)

    return init_state(make_optimizer(settings.optimizer, updates), jax.vmap(one)(keys_p))


@once  # one compiled program for all chunks of a study
def _step_program(settings: RewardModelSettings, updates: int):
    optimizer = make_optimizer(settings.optimizer, updates)

    @functools.partial(jax.jit, donate_argnums=(1,))
    def step(model, state, rows, index_pb, keys_p):
        def one(state, rows, index, key):
            batch = take_rows(rows, index)
            batch = dataclasses.replace(batch, weights=jnp.where(index[:, None] >= 0, batch.weights, 0.0))
            key = jax.random.fold_in(jax.random.fold_in(key, DROPOUT), state.step)

            def loss(params):
                adapter = drop_inputs(params.adapter, key, settings.adapter.dropout)
                scorer = dataclasses.replace(params, adapter=adapter)
                return finish_reward(
                    sum_passes(lambda part: _sums(model, scorer, part, settings), batch, settings.grad_accumulation),
                    settings.center_coefficient,
                )

            (value, metrics), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
            state, norm = apply_gradients(optimizer, state, value, gradients)
            return dataclasses.replace(state, step=state.step + 1), metrics | {"grad_norm": norm, "valid": state.valid}

        return jax.vmap(one)(state, rows, index_pb, keys_p)

    return step


def _sums(model, scorer, part: RewardRows, settings: RewardModelSettings):
    rewards = score_rewards(
        model,
        scorer,
        part.context_ids,
        part.context_mask,
        part.response_ids,
        part.response_mask,
        remat=settings.remat,
    )
    return reward_sums(rewards, part.labels, part.weights)


@jax.jit
def _score_chunks(model, params, rows, index_pcb):
    """Rewards of rows by number, chunk after chunk: float32 `[p, chunks, rows, g]`."""

    def one(params, rows, index_cb):
        def chunk(index):
            part = take_rows(rows, index)
            return score_rewards(
                model, params, part.context_ids, part.context_mask, part.response_ids, part.response_mask
            )

        return jax.lax.map(chunk, index_cb)

    return jax.vmap(one)(params, rows, index_pcb)


def _evaluate(model, params, rows: RewardRows, plan: _Plan, settings: RewardModelSettings) -> dict[str, np.ndarray]:
    """Held-out loss, accuracy and AUC of each policy, NaN where there is nothing to measure."""
    policies, chunks = plan.heldout.shape[:2]
    result = {name: np.full(policies, np.nan) for name in HELDOUT}
    if chunks == 0:
        return result
    rewards_p = _score_chunks(model, params, rows, place_policies(model, plan.heldout))
    rewards_p, labels_p, weights_p = fetch((rewards_p, rows.labels, rows.weights))
    for policy in range(policies):
        index = plan.heldout[policy].ravel()
        real = index >= 0
        index, rewards = index[real], rewards_p[policy].reshape(len(real), -1)[real]
        labels, weights = labels_p[policy][index], weights_p[policy][index]
        weighed = weights > 0
        if not weighed.any() or not np.isfinite(rewards[weighed]).all():
            continue
        loss, metrics = reward_loss(
            jnp.asarray(rewards), labels, weights, center_coefficient=settings.center_coefficient
        )
        area = auroc(rewards[weighed & (labels < 0.5)], rewards[weighed & (labels > 0.5)])
        values = (float(loss), float(metrics["accuracy"]), np.nan if area is None else area)
        for name, value in zip(HELDOUT, values, strict=True):
            result[name][policy] = value
    return result
