"""Supervised warm start."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import InvalidScore, UserError
from canaryjax.inference.logprobs import score_shared
from canaryjax.rl.optimizer import learning_rate_schedule
from canaryjax.rl.settings import AdapterSettings, OptimizerSettings, SupervisedSettings
from canaryjax.rl.sft import SupervisedRows, train_adapters, train_supervised

SETTINGS = SupervisedSettings(
    batch_size=4, epochs=20, adapter=AdapterSettings(rank=3, alpha=6.0), optimizer=OptimizerSettings(2e-2)
)


@pytest.fixture(scope="module")
def rows(tiny):
    prompts = tiny.prompts()
    ids = jnp.tile(jnp.array([9, 4, tiny.eos]), (13, 1, 1))
    return SupervisedRows(prompts.context_ids[0], prompts.context_mask[0], ids, jnp.ones(ids.shape, bool))


def test_answers_become_likely(tiny, rows):
    records = []
    adapter = train_supervised(tiny.model, rows, SETTINGS, jax.random.key(0), records.append)
    parts = (rows.context_ids, rows.context_mask, rows.answer_ids, rows.answer_mask)
    before, after = (float(jax.jit(score_shared)(tiny.model, a, *parts).mean()) for a in (None, adapter))
    assert before < -2.0
    assert after > -1.0
    assert records[0]["loss"] > records[-1]["loss"]
    assert len(records) == 65  # 13 * 20 / 4


def test_resumed_equals_uninterrupted_bit_for_bit(tiny, rows):
    settings = dataclasses.replace(
        SETTINGS, epochs=2, adapter=AdapterSettings(3, 6.0, dropout=0.3), optimizer=OptimizerSettings(2e-2, "cosine")
    )  # fmt: skip

    def train(**options):
        records = []
        adapter = train_supervised(tiny.model, rows, settings, jax.random.key(0), records.append, **options)
        return adapter, [record["loss"] for record in records]

    kept = tiny.kept(5)
    alone, saved = train(), train(checkpoints=kept)
    assert sorted(kept.saved) == [5, 7]  # 13 rows twice in fours
    resumed = train(checkpoints=tiny.kept(5, kept.saved[5]))
    for other in (alone, saved):
        assert tiny.largest_difference(other[0], resumed[0]) == 0
        assert resumed[1] == other[1][5:]


def test_adapters_trained_together_equal_those_trained_alone(tiny, rows):
    settings = dataclasses.replace(SETTINGS, steps=5, adapter=AdapterSettings(3, 6.0, dropout=0.3))
    settings = dataclasses.replace(settings, optimizer=OptimizerSettings(5e-4))
    short = jax.tree.map(lambda x: jnp.zeros_like(x).at[:7].set(x[:7]), rows)  # 7 rows and 6 of padding
    other = dataclasses.replace(rows, answer_ids=jnp.flip(rows.answer_ids, axis=-1))
    keys = jnp.stack([jax.random.key(seed) for seed in (3, 4, 5)])
    stacked = jax.tree.map(lambda *x: jnp.stack(x), rows, other, short)
    together = train_adapters(tiny.model, stacked, settings, keys)
    for place, own in enumerate((rows, other, jax.tree.map(lambda x: x[:7], rows))):
        alone = train_supervised(tiny.model, own, settings, keys[place])
        found = jax.tree.map(lambda x, place=place: x[place], together)
        assert tiny.largest_difference(alone, found) < 2e-6
        # Another policy's rows or key would give another adapter, farther away than rounding.
        next_one = jax.tree.map(lambda x, place=place: x[(place + 1) % 3], together)
        assert tiny.largest_difference(alone, next_one) > 1e-4


def test_passes_of_an_update_equal_one_large_pass(tiny, rows):
    # Answers of unlike lengths: means of means would weigh their tokens differently.
    mask = rows.answer_mask.at[::2, :, 1:].set(False)
    rows = dataclasses.replace(rows, answer_mask=mask)
    own = dataclasses.replace(SETTINGS, epochs=1, optimizer=OptimizerSettings(5e-4))
    one = train_supervised(tiny.model, rows, own, jax.random.key(1))
    passes = dataclasses.replace(own, batch_size=1, grad_accumulation=4)
    assert tiny.largest_difference(one, train_supervised(tiny.model, rows, passes, jax.random.key(1))) < 2e-6


def test_the_loss_is_a_mean_over_answer_tokens(tiny, rows):
    mask = rows.answer_mask.at[::2, :, 1:].set(False)  # 7 answers of one token, 6 of three
    rows, records = dataclasses.replace(rows, answer_mask=mask), []
    settings = dataclasses.replace(SETTINGS, batch_size=13, epochs=1)
    train_supervised(tiny.model, rows, settings, jax.random.key(1), records.append)
    parts = (rows.context_ids, rows.context_mask, rows.answer_ids, rows.answer_mask)
    logps = jax.jit(score_shared)(tiny.model, None, *parts)
    assert records[0]["loss"] == pytest.approx(-float(logps.sum()) / 25, rel=1e-5)


def test_steps_take_their_share_of_the_epochs(tiny, rows):
    records = []
    train_supervised(tiny.model, rows, dataclasses.replace(SETTINGS, steps=5), jax.random.key(0), records.append)
    assert [record["step"] for record in records] == [0, 1, 2, 3, 4]  # 20 epochs would be 65


def test_unlike_numbers_of_rows_need_steps(tiny, rows):
    short = jax.tree.map(lambda x: jnp.zeros_like(x).at[:7].set(x[:7]), rows)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), rows, short)
    with pytest.raises(UserError, match=r"found \[13, 7\]; set steps"):
        train_adapters(tiny.model, stacked, SETTINGS, jnp.stack([jax.random.key(0)] * 2))


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_an_error(tiny, rows):
    settings = dataclasses.replace(SETTINGS, optimizer=OptimizerSettings(1e30, "constant"))
    with pytest.raises(InvalidScore, match="learning rate"):
        train_supervised(tiny.model, rows, settings, jax.random.key(0))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1.0, 1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_schedules(schedule, expected):
    rate = learning_rate_schedule(OptimizerSettings(1.0, schedule, warmup_fraction=1 / 3), updates=6)
    np.testing.assert_allclose([float(rate(i)) for i in range(6)], expected, atol=1e-6)
