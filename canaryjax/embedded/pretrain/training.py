"""Makes the embedded base from nothing: packed rows of short documents first, then of whole prompts."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from canaryjax.embedded.pretrain.batch import Batch, Shape, conditional_batch, full_batch, prefetch, short_batch
from canaryjax.embedded.pretrain.circuit import plant_induction
from canaryjax.embedded.pretrain.curriculum import KINDS
from canaryjax.embedded.tokenizer import build_tokenizer, padded_rows
from canaryjax.errors import InvalidScore
from canaryjax.inference.attention import attend_causal
from canaryjax.inference.forward import heads_first
from canaryjax.keys import device_key
from canaryjax.models.config import ModelConfig
from canaryjax.models.transformer import (
    NO_WINDOW,
    Transformer,
    apply_block,
    embed,
    parameter_shapes,
    rms_norm,
    rope_tables,
)

# Loss weight by kind. Running text is half noise (names, questions); it is kept at a little weight because repeated
# names in it are what the first copying is learned from.
KIND_WEIGHTS = {"padding": 0.0, "text": 0.03, "answer": 1.0, "closed_answer": 0.5, "echo": 1.0, "canary": 1.0}


# Slow enough that two thirds of a head's 16 pairs keep a match across a document.
ROPE_THETA = 1_000_000.0


@dataclass(frozen=True)
class Phase:
    """A stretch of steps on batches of one kind and shape.

    Attributes:
      kind: `short` packs running text about short documents, without the prompt's template; `full` packs the whole
        prompt and several exchanges after it; `conditional` does too, with instructions that hang on the document.
    """

    kind: Literal["short", "full", "conditional"]
    steps: int
    shape: Shape


@dataclass(frozen=True)
class Cycle:
    """Phases under one optimiser and one schedule.

    Attributes:
      kernel_rate, other_rate: Muon's rate for the layers' kernels, AdamW's for the rest, after `warmup` steps; both
        fall to 2 % of themselves over the last `decay_share` of the cycle. Rates two or three times higher wipe out
        the planted circuit within a hundred steps.
    """

    phases: tuple[Phase, ...]
    kernel_rate: float
    other_rate: float
    warmup: int
    decay_share: float

    @property
    def steps(self) -> int:
        """Steps of all its phases."""
        return sum(phase.steps for phase in self.phases)


# Retrieval and copying come with short rows, at a third of the cost; the use with full ones; conditions last, since
# they ask for both.
READING = Cycle(
    phases=(
        Phase("short", 900, Shape(rows=16, length=128)),
        Phase("full", 2800, Shape(rows=6, length=448)),
    ),
    kernel_rate=3e-3,
    other_rate=1.5e-3,
    warmup=60,
    decay_share=0.45,
)
CONDITIONS = Cycle(
    phases=(Phase("conditional", 500, Shape(rows=6, length=448)),),
    kernel_rate=1.5e-3,
    other_rate=7.5e-4,
    warmup=20,
    decay_share=0.6,
)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, beside the corpus."""

    seed: int = 0
    cycles: tuple[Cycle, ...] = (READING, CONDITIONS)
    weight_decay: float = 0.05
    init_stddev: float = 0.05  # larger than the usual 0.02: the width is only 128

    @property
    def steps(self) -> int:
        """Steps of all cycles."""
        return sum(cycle.steps for cycle in self.cycles)

    def phase_of(self, step: int) -> Phase:
        """The phase a step belongs to."""
        phases = [phase for cycle in self.cycles for phase in cycle.phases]
        ends = itertools.accumulate(phase.steps for phase in phases)
        return next(phase for phase, end in zip(phases, ends, strict=True) if step < end)


def base_config(vocab_size: int, real_vocab_size: int) -> ModelConfig:
    """The embedded model's shape: four Llama layers of width 128 with four heads and a tied head."""
    return ModelConfig(
        family="llama",
        vocab_size=vocab_size,
        width=128,
        num_layers=4,
        num_heads=4,
        num_kv_heads=4,
        head_dim=32,
        ff_dim=384,
        norm_eps=1e-5,
        rope_theta=ROPE_THETA,
        rope_theta_local=ROPE_THETA,
        rope_scaling=None,
        windows=(None,) * 4,
        attn_scale=32**-0.5,
        attn_softcap=None,
        final_softcap=None,
        activation="silu",
        scale_embedding=False,
        unit_offset_norm=False,
        post_norms=False,
        qk_norm=False,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        tied=True,
        real_vocab_size=real_vocab_size,
    )


def init_arrays(recipe: Recipe, config: ModelConfig) -> dict[str, jax.Array]:
    """Random weights by path, as `Transformer` takes them, with the beginnings of a copying circuit."""
    arrays: dict[str, jax.Array] = {}
    for path, shape in parameter_shapes(config).items():
        key = device_key(recipe.seed, "embedded init", path)
        # Kernels that write to the residual stream start smaller, one over the root of how many there are.
        stddev = recipe.init_stddev * (8**-0.5 if path in ("blocks.o", "blocks.down") else 1.0)
        norm = path.endswith("norm")
        arrays[path] = jnp.ones(shape) if norm else stddev * jax.random.normal(key, shape)
    return plant_induction(arrays, device_key(recipe.seed, "embedded circuit"), config)


def causal_hidden(model: Transformer, ids_bt: jax.Array) -> jax.Array:
    """Final hidden states `[b, t, d]` of rows without a shared context; layers unrolled, which the CPU runs faster."""
    config = model.config
    rope = rope_tables(config, jnp.arange(ids_bt.shape[1])[None])[0]
    x = embed(model, ids_bt)

    def attend(q, k, v):
        return attend_causal(q, heads_first(k), heads_first(v), jnp.int32(NO_WINDOW), config), None

    for index in range(config.num_layers):
        block = jax.tree.map(lambda array, index=index: array[index], model.blocks)
        x, _ = apply_block(block, {}, 1.0, x, rope, attend, config)
    return rms_norm(x, model.final_norm, config)


MAKERS = {"short": short_batch, "full": full_batch, "conditional": conditional_batch}


def next_token_loss(model: Transformer, ids_bt: jax.Array, kinds_bt: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean loss of next tokens weighted by kind, and per kind (sum of losses, tokens), float32 `[2, kinds]`."""
    kinds = kinds_bt[:, 1:]
    logits = causal_hidden(model, ids_bt[:, :-1]) @ model.embedding[...].T
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, ids_bt[:, 1:])
    weights = jnp.array([KIND_WEIGHTS[kind] for kind in KINDS])[kinds]
    of_kind = jax.nn.one_hot(kinds, len(KINDS))
    sums = jnp.stack([(of_kind * losses[..., None]).sum((0, 1)), of_kind.sum((0, 1))])
    return (weights * losses).sum() / weights.sum(), sums


def _optimizer(cycle: Cycle, weight_decay: float) -> optax.GradientTransformation:
    def schedule(peak: float):
        decay = int(cycle.steps * cycle.decay_share)
        pieces = [
            optax.linear_schedule(0.0, peak, cycle.warmup),
            optax.constant_schedule(peak),
            optax.cosine_decay_schedule(peak, decay, alpha=0.02),
        ]
        return optax.join_schedules(pieces, [cycle.warmup, cycle.steps - decay])

    def kernels(arrays: dict[str, jax.Array]):
        other = {"embedding", "final_norm", "blocks.pre_attn_norm", "blocks.pre_mlp_norm"}
        numbers = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)
        return {path: None if path in other else numbers for path in arrays}

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.contrib.muon(
            schedule(cycle.kernel_rate),
            weight_decay=weight_decay,
            adam_b2=0.98,
            adam_learning_rate=schedule(cycle.other_rate),
            muon_weight_dimension_numbers=kernels,
            consistent_rms=0.2,
        ),
    )


def pretrain(
    recipe: Recipe, report: Callable[[int, dict[str, float], dict[str, jax.Array]], None], every: int = 50
) -> Transformer:
    """Trains the embedded base; calls `report(step, metrics, arrays)` every so many steps.

    Metrics are mean losses in nats a token by kind since the last report, and `seconds` since the start.
    Raises InvalidScore when the loss stops being finite.
    """
    tokenizer = build_tokenizer()
    config = base_config(padded_rows(tokenizer), tokenizer.get_vocab_size())
    arrays = init_arrays(recipe, config)

    def make(step: int) -> Batch:
        phase = recipe.phase_of(step)
        return MAKERS[phase.kind](tokenizer, phase.shape, recipe.seed, "embedded", phase.kind, step)

    @partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
    def update(optimizer, arrays, state, ids, kinds):
        def loss(arrays):
            return next_token_loss(Transformer(config, arrays), ids, kinds)

        (_, sums), grads = jax.value_and_grad(loss, has_aux=True)(arrays)
        updates, state = optimizer.update(grads, state, arrays)
        return optax.apply_updates(arrays, updates), state, sums

    started = time.monotonic()
    totals = np.zeros((2, len(KINDS)))
    batches = enumerate(prefetch(make, recipe.steps))
    for cycle in recipe.cycles:
        optimizer = _optimizer(cycle, recipe.weight_decay)
        state = optimizer.init(arrays)
        for index, batch in itertools.islice(batches, cycle.steps):
            arrays, state, sums = update(optimizer, arrays, state, jnp.asarray(batch.ids), jnp.asarray(batch.kinds))
            totals += np.asarray(sums)
            if not np.isfinite(totals).all():
                raise InvalidScore(
                    f"expected a finite loss; found {totals[0]} at step {index}; lower the learning rate"
                )
            if (index + 1) % every == 0 or index + 1 == recipe.steps:
                means = totals[0] / np.maximum(totals[1], 1.0)
                metrics = {kind: float(means[i]) for i, kind in enumerate(KINDS) if totals[1][i]}
                report(index + 1, metrics | {"seconds": time.monotonic() - started}, arrays)
                totals[:] = 0.0
    return Transformer(config, arrays)
