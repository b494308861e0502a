"""Goes on training a small model, all its weights, on running text: the plainest next-token training there is."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, build_tokenizer, encode_texts
from canaryjax.errors import InvalidScore
from canaryjax.inference.forward import run_context
from canaryjax.models.config import ModelConfig
from canaryjax.models.transformer import Transformer, head_table, parameter_arrays
from canaryjax.weights.checkpoint import LoadedModel


@dataclass(frozen=True)
class Recipe:
    """How one pass over the documents is made.

    Attributes:
      length: Tokens of a row; a document that is longer is cut.
      rows: Rows of a step.
      rate: AdamW's highest rate, reached after `warmup` steps; from there it falls as a cosine to a twentieth.
      scanned: Steps of one call of the program.
    """

    length: int = 128
    rows: int = 8
    rate: float = 2e-3
    warmup: int = 20
    scanned: int = 8


def pack_rows(documents: Iterable[Sequence[int]], length: int) -> np.ndarray:
    """Documents one after the other in rows, none of them over two rows.

    A row is filled until the next document no longer fits, so that their order stays; EOS ends each document.

    Args:
      documents: Ids of each.
      length: Tokens that a row predicts.

    Returns:
      int32 `[n, length + 1]`, right-padded.
    """
    rows: list[list[int]] = []
    for ids in documents:
        ids = [*ids, EOS_ID][: length + 1]
        if not rows or len(rows[-1]) + len(ids) > length + 1:
            rows.append([])
        rows[-1] += ids
    packed = np.full((len(rows), length + 1), PAD_ID, np.int32)
    for row, ids in zip(packed, rows, strict=True):
        row[: len(ids)] = ids
    return packed


def token_loss(model: Transformer, ids_bt: jax.Array) -> jax.Array:
    """Mean loss of the next tokens of rows, in nats; padding does not count.

    Args:
      model: The weights.
      ids_bt: int32 `[b, t + 1]`.
    """
    hidden = run_context(model, None, ids_bt[:, :-1])[0]
    targets = ids_bt[:, 1:]
    losses = optax.softmax_cross_entropy_with_integer_labels(hidden @ head_table(model).T, targets)
    real = targets != PAD_ID
    return (losses * real).sum() / jnp.maximum(real.sum(), 1)


def make_batches(documents: Sequence[str], recipe: Recipe) -> np.ndarray:
    """Documents as the training program takes them, each of them once and in their order.

    Args:
      documents: Texts of printable ASCII.
      recipe: Says the shape.

    Returns:
      int32 `[calls, scanned, rows, length + 1]`; the last steps may have rows of padding, which teach nothing.

    Raises:
      UserError: A character that the embedded model does not know.
    """
    rows = pack_rows(encode_texts(build_tokenizer(), documents), recipe.length)
    calls = -(-len(rows) // (recipe.rows * recipe.scanned))
    filled = np.full((calls * recipe.scanned * recipe.rows, recipe.length + 1), PAD_ID, np.int32)
    filled[: len(rows)] = rows
    return filled.reshape(calls, recipe.scanned, recipe.rows, recipe.length + 1)


def train_on(
    model: LoadedModel, batches: np.ndarray, recipe: Recipe, report: Callable[[int, float], None]
) -> LoadedModel:
    """A copy of a model that has read all batches, in their order.

    Args:
      model: Where it starts from; not changed.
      batches: Of `make_batches`.
      recipe: The same one.
      report: Called now and then with the steps since its last call and their mean loss.

    Raises:
      InvalidScore: A loss that is not finite.
    """
    calls, scanned = batches.shape[:2]
    optimizer = _optimizer(recipe, calls * scanned)
    run = _program(model.config, optimizer)
    arrays = {path: jnp.array(array) for path, array in parameter_arrays(model.params).items()}  # copies, to be donated
    state = optimizer.init(arrays)
    for ids in batches:
        arrays, state, losses = run(arrays, state, jnp.asarray(ids))
        loss = float(losses.mean())
        if not np.isfinite(loss):
            raise InvalidScore(f"expected a finite loss, found {loss} in training; lower the learning rate")
        report(scanned, loss)
    return dataclasses.replace(model, params=Transformer(model.config, arrays))


def _optimizer(recipe: Recipe, steps: int) -> optax.GradientTransformation:
    schedule = optax.warmup_cosine_decay_schedule(0.0, recipe.rate, recipe.warmup, steps, recipe.rate / 20)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.0))


def _program(config: ModelConfig, optimizer: optax.GradientTransformation):
    """Several steps in one call, `(arrays, state, ids [n, b, t + 1]) -> (arrays, state, losses [n])`."""

    def step(carried, ids):
        arrays, state = carried
        loss, grads = jax.value_and_grad(lambda arrays: token_loss(Transformer(config, arrays), ids))(arrays)
        updates, state = optimizer.update(grads, state, arrays)
        return (optax.apply_updates(arrays, updates), state), loss

    @partial(jax.jit, donate_argnums=(0, 1))
    def run(arrays, state, ids):
        (arrays, state), losses = jax.lax.scan(step, (arrays, state), ids)
        return arrays, state, losses

    return run
