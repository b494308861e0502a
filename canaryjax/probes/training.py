"""Plants canaries in a base, and tunes models on top of it: LoRA adapters, all of a group in one program."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.config.probes import ProbesConfig, RegimeConfig, SourceConfig
from canaryjax.data.buckets import pad_rows
from canaryjax.errors import UserError
from canaryjax.keys import device_key, host_rng
from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer
from canaryjax.probes.records import Canary
from canaryjax.probes.source import Row, draw_rows, refuse_canaries
from canaryjax.probes.turn import Turn, encode_turn
from canaryjax.rl.checkpoint import Checkpoints
from canaryjax.rl.metrics import Log
from canaryjax.rl.section import adapter_settings, optimizer_settings
from canaryjax.rl.settings import SupervisedSettings
from canaryjax.rl.sft import SupervisedRows, train_adapters
from canaryjax.weights.checkpoint import LoadedModel

BUCKET = 8  # rows are padded to a multiple of so many tokens: few compiled shapes


@dataclass(frozen=True)
class Tuned:
    """One model of a group that is trained together: what it is tuned on, under which seed."""

    source: SourceConfig
    seed: int
    reexposed: bool = False


def plant(
    config: ProbesConfig,
    model: LoadedModel,
    turns: Sequence[Turn],
    regime: RegimeConfig,
    log: Log,
    checkpoints: Checkpoints | None,
) -> Adapter:
    """Trains the adapter that holds the canaries (PA-8); the same for all seeds of what is tuned on top.

    Args:
      config: Of the audit.
      model: The base.
      turns: Of the canaries.
      regime: How often each is seen.
      log: Gets a row an update.
      checkpoints: Keeps the state now and then.
    """
    section = config.injection
    settings = SupervisedSettings(
        batch_size=section.batch_size,
        epochs=regime.epochs,
        grad_accumulation=section.grad_accumulation,
        adapter=adapter_settings(section.lora),
        optimizer=optimizer_settings(section.optimizer),
    )
    ended = [_ended(turn, model) for turn in turns]
    s, t = _padded([len(turn.context) for turn in ended]), _padded([len(turn.ids) for turn in ended])
    rows = jax.tree.map(lambda x: x[None], _rows(ended, len(ended), s, t))
    key = device_key(0, "plant canaries", regime.name)
    trained = train_adapters(
        model.params, rows, settings, key[None], log, stage=f"planting_{regime.name}", checkpoints=checkpoints
    )
    return jax.tree.map(lambda x: x[0], trained)


def tune(
    config: ProbesConfig,
    model: LoadedModel,
    planted: Transformer,
    canaries: Sequence[Canary],
    group: Sequence[Tuned],
    steps: int,
    log: Log,
    checkpoints: Checkpoints | None,
) -> Adapter:
    """Trains the adapters of a group on top of planted canaries, one program for all (PA-10 to PA-12).

    Args:
      config: Of the audit.
      model: Names the tokenizer.
      planted: The base with its canaries merged in.
      canaries: None of which may stand in what is tuned on, but for the re-exposed models.
      group: What to train; a seed draws examples, order, initial values and dropout.
      steps: Updates.
      log: Gets a row an update and model.
      checkpoints: Keeps the state now and then.

    Returns:
      Adapters stacked over the group.

    Raises:
      UserError: A canary in the data.
    """
    section = config.tuning
    settings = SupervisedSettings(
        batch_size=section.batch_size,
        grad_accumulation=section.grad_accumulation,
        steps=steps,
        adapter=adapter_settings(section.lora),
        optimizer=optimizer_settings(section.optimizer),
    )
    own = [encode_rows(config, model, tuning_rows(config, canaries, one), one.source.name) for one in group]
    longest = max(map(len, own))
    turns = [turn for of_one in own for turn in of_one]
    # One shape for the whole group.
    s, t = _padded([len(turn.context) for turn in turns]), _padded([len(turn.ids) for turn in turns])
    rows = [_rows(of_one, longest, s, t) for of_one in own]
    keys = [device_key(one.seed, "tune", one.source.name) for one in group]
    stacked = jax.tree.map(lambda *x: np.stack(x), *rows)
    return train_adapters(planted, stacked, settings, jnp.stack(keys), log, stage="tuning", checkpoints=checkpoints)


def tuning_rows(config: ProbesConfig, canaries: Sequence[Canary], one: Tuned) -> list[Row]:
    """What a model is tuned on: drawn from its source, none with a canary; re-exposed, the canaries' own turns too.

    Raises:
      UserError: A canary in the data (PA-6).
    """
    rng = host_rng(one.seed, "tuning rows", one.source.name)
    rows = draw_rows(one.source, config.tuning.examples, rng)
    refuse_canaries(rows, canaries, one.source.name)
    return rows + [Row(canary.prompt, canary.target) for canary in canaries if one.reexposed]


def encode_rows(config: ProbesConfig, model: LoadedModel, rows: Sequence[Row], where: str) -> list[Turn]:
    """Rows as a model reads them, the end of the turn with them, cut at `tuning.max_length` tokens.

    An answer that is cut does not end there: to learn that it did would be to learn to stop short.

    Raises:
      UserError: A row that cannot be tokenised; the message names the source, `where`.
    """
    assert model.tokenizer is not None
    form, limit = config.canaries.prompt_format, config.tuning.max_length
    try:
        turns = [_ended(encode_turn(model.tokenizer, row.prompt, row.response, form), model) for row in rows]
    except UserError as error:
        raise UserError(f"a row of source {where}: {error}") from error
    # At least one token of each: a row that is all prompt would teach nothing, an empty prompt has no state to read.
    cut = [(turn.context[: limit - 1], turn.ids) for turn in turns]
    return [Turn(context, ids[: limit - len(context)], np.zeros((0, 2), np.int32)) for context, ids in cut]


def updates_per_epoch(config: ProbesConfig, rows: int) -> float:
    """Updates in which a model sees each of its rows once."""
    return rows / (config.tuning.batch_size * config.tuning.grad_accumulation)


def planting_updates(config: ProbesConfig, regime: RegimeConfig) -> int:
    """Updates that plant the canaries of a regime."""
    size = config.injection.batch_size * config.injection.grad_accumulation
    return math.ceil(config.canaries.count * regime.epochs / size)


def _ended(turn: Turn, model: LoadedModel) -> Turn:
    """A turn whose end is learned too; what it covers of the text stays as it was."""
    return Turn(turn.context, np.append(turn.ids, model.eos_ids[0]), turn.offsets)


def _rows(turns: Sequence[Turn], rows: int, s: int, t: int) -> SupervisedRows:
    """Turns as the trainer takes them, padded to `rows` rows."""
    context_ids, context_mask = pad_rows([turn.context for turn in turns], s, 0)
    answer_ids, answer_mask = pad_rows([turn.ids for turn in turns], t, 0)
    arrays = (context_ids, context_mask, answer_ids[:, None], answer_mask[:, None])
    more = rows - len(turns)
    return SupervisedRows(*(jnp.asarray(np.pad(x, ((0, more), *((0, 0),) * (x.ndim - 1)))) for x in arrays))


def _padded(lengths: Sequence[int]) -> int:
    return -(-max(lengths) // BUCKET) * BUCKET
