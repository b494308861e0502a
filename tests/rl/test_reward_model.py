"""The scalar reward model: where it reads, what its loss is, and training over policies."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.rl.early_stopping import HELDOUT, after_evaluation, new_stopping
from canaryjax.rl.optimizer import init_state, make_optimizer
from canaryjax.rl.reward_model import append_eos, balance_weights, init_reward_model, reward_loss, score_rewards
from canaryjax.rl.reward_training import _step_program, train_reward_models
from canaryjax.rl.settings import AdapterSettings, OptimizerSettings, RewardModelSettings

SETTINGS = RewardModelSettings(
    train_batch_size=4,
    eval_batch_size=6,
    grad_accumulation=2,
    epochs=1,
    early_stopping_patience=None,
    remat=False,
    adapter=AdapterSettings(rank=3, alpha=6.0),
    optimizer=OptimizerSettings(5e-4, "linear", warmup_fraction=0.25),
)
SCORE = jax.jit(score_rewards)
KEYS = jax.random.split(jax.random.key(3), 3)


def test_padding_that_looks_like_eos_does_not_move_the_scalar(tiny):
    # [a, eos, b, eos] padded with the EOS id: "first EOS" reads index 1, "last id that is not padding" reads index 2.
    reward_model = init_reward_model(jax.random.key(1), tiny.model.config, SETTINGS.adapter)
    a, b, eos = 5, 6, tiny.eos
    context, mask = jnp.array([[2, 3, 4]]), jnp.ones((1, 3), bool)

    def score(ids, real, context=context, mask=mask):
        ids, real = jnp.array(ids)[None, None], jnp.arange(len(ids))[None, None] < real
        return float(SCORE(tiny.model, reward_model, context, mask, ids, real)[0, 0])

    alone = score([a, eos, b, eos], 4)
    assert score([a, eos, b, eos, eos, eos, eos], 4) == pytest.approx(alone, abs=1e-6)
    padded_context = jnp.pad(context, ((0, 0), (0, 2)), constant_values=eos)
    assert score([a, eos, b, eos, 0], 4, padded_context, jnp.arange(5)[None] < 3) == pytest.approx(alone, abs=1e-6)
    assert abs(score([a, eos, b, eos], 2) - alone) > 1e-4
    assert abs(score([a, eos, b, eos], 3) - alone) > 1e-4


def test_scores_do_not_depend_on_the_batch(tiny):
    rows = tiny.rows()
    reward_model = init_reward_model(jax.random.key(1), tiny.model.config, SETTINGS.adapter)
    parts = (rows.context_ids[0], rows.context_mask[0], rows.response_ids[0], rows.response_mask[0])
    whole = SCORE(tiny.model, reward_model, *(x[:8] for x in parts))
    order = jnp.array([5, 0, 7, 2, 1, 6, 3, 4])
    permuted = SCORE(tiny.model, reward_model, *(x[:8][order] for x in parts))
    alone = jnp.concatenate([SCORE(tiny.model, reward_model, *(x[i : i + 1] for x in parts)) for i in range(8)])
    np.testing.assert_allclose(permuted, whole[order], atol=1e-5)
    np.testing.assert_allclose(alone, whole, atol=1e-5)
    assert whole.dtype == jnp.float32


def test_eos_is_appended_to_unfinished_responses_only():
    ids, mask = jnp.array([[[4, 1, 0], [4, 5, 6]]]), jnp.array([[[True, True, False], [True] * 3]])
    ids, mask = append_eos(ids, mask, jnp.array([[True, False]]), eos_id=1)
    assert ids.tolist() == [[[4, 1, 0, 0], [4, 5, 6, 1]]]
    assert mask.tolist() == [[[True, True, False, False], [True] * 4]]


def test_the_loss_by_hand():
    # Row 3 is padding and must count nowhere, not even as NaN.
    rewards, labels = jnp.array([2.0, -1.0, jnp.nan]), jnp.array([1, 1, 0])
    weights = jnp.array([1.0, 3.0, 0.0])
    entropy = (np.log1p(np.exp(-2.0)) + 3 * np.log1p(np.exp(1.0))) / 4
    loss, metrics = reward_loss(rewards, labels, weights, center_coefficient=0.5)
    assert float(loss) == pytest.approx(entropy + 0.5 * (-0.25) ** 2, rel=1e-6)
    assert float(metrics["accuracy"]) == pytest.approx(0.25)
    gradient = jax.grad(lambda r: reward_loss(r, labels, weights, center_coefficient=0.0)[0])(rewards)
    np.testing.assert_allclose(
        gradient[:2], [(1 / (1 + np.exp(-2.0)) - 1) / 4, (1 / (1 + np.exp(1.0)) - 1) * 0.75], rtol=1e-5
    )


def test_balancing_gives_both_labels_half():
    weights = balance_weights(np.array([[1, 1], [1, 0]]), np.array([[1.0, 1.0], [0.0, 1.0]]))
    np.testing.assert_allclose(weights, [[0.75, 0.75], [0.0, 1.5]])
    assert balance_weights(np.ones(3), np.ones(3)).tolist() == [1, 1, 1]


@pytest.mark.slow
def test_policies_together_equal_policies_alone_and_learn(tiny):
    rows = tiny.rows()
    together, result = train_reward_models(tiny.model, rows, SETTINGS, KEYS)
    for policy in range(tiny.policies):
        alone, _ = train_reward_models(tiny.model, tiny.policy_slice(rows, policy), SETTINGS, KEYS[policy : policy + 1])
        # A shared key, or a gradient norm over all policies, would differ by the learning rate, 5e-4.
        assert tiny.largest_difference(alone, tiny.policy_slice(together, policy)) < 1e-5
    assert result["updates"].tolist() == [4, 4, 4]  # 16 training rows, 2 rows a pass, 2 passes
    assert float(jnp.abs(together.adapter.layers["v"].b).max()) > 0


@pytest.mark.slow
def test_training_finds_what_feedback_likes(tiny):
    records = []
    settings = dataclasses.replace(
        SETTINGS, epochs=8, early_stopping_patience=99, eval_every=40, optimizer=OptimizerSettings(1e-2, "constant")
    )
    _, result = train_reward_models(tiny.model, tiny.rows(300, heldout=60), settings, KEYS, records.append)
    assert (result["heldout_auc"] > 0.8).all()
    assert result["heldout_loss"].max() < 0.6  # chance is log 2 = 0.69
    losses = [r["loss"] for r in records if r["stage"] == "reward_model" and r["policy"] == 0]
    assert np.mean(losses[-50:]) < np.mean(losses[:50])
    assert all(isinstance(r["loss"], float) for r in records if r["stage"] == "reward_model")


@pytest.mark.slow
def test_one_pass_of_two_equals_two_passes_of_one(tiny):
    # c * mean(r)^2 is not linear: a sum of per-pass losses would penalise each pass's own mean.
    rows = tiny.rows()
    rows = rows.replace(weights=rows.weights * jnp.arange(1, 21, dtype=jnp.float32)[None, :, None])
    results = []
    for size, passes in ((8, 1), (4, 2)):
        settings = dataclasses.replace(
            SETTINGS, train_batch_size=size, grad_accumulation=passes, center_coefficient=2.0, balance=False
        )
        results.append(train_reward_models(tiny.model, rows, settings, KEYS)[0])
    assert tiny.largest_difference(*results) < 1e-6


def test_early_stopping_returns_each_policy_to_its_own_best(tiny):
    # One patience for all would stop or keep the wrong ones; a NaN loss must count as a miss, not as the lowest.
    fresh = jax.vmap(lambda key: init_reward_model(key, tiny.model.config, SETTINGS.adapter))(KEYS)
    stopping = new_stopping(fresh)
    state = init_state(make_optimizer(SETTINGS.optimizer, 8), fresh)
    losses = [[3.0, 3.0, np.nan], [2.0, 2.0, np.nan], [2.5, 1.0, 1.0], [2.0, 0.5, 0.5]]
    for evaluation, loss in enumerate(losses):
        # Parameters that say after which evaluation they were taken.
        marked = dataclasses.replace(state.params, head_b=jnp.full(3, float(evaluation)))
        state = dataclasses.replace(state, params=marked)
        heldout = {name: np.array(loss) for name in HELDOUT}
        stopping, state = after_evaluation(stopping, state, heldout, 10 * (evaluation + 1), patience=2)
    assert stopping.best.head_b.tolist() == [1.0, 3.0, 0.0]  # equal is no gain; stopped ones stay
    assert stopping.stopped_at.tolist() == [40, -1, 20]
    assert state.active.tolist() == [False, True, False]
    np.testing.assert_array_equal(stopping.heldout["heldout_loss"], [2.0, 0.5, np.nan])


@pytest.mark.slow
@pytest.mark.parametrize("patience", [None, 1])
def test_resumed_equals_uninterrupted_bit_for_bit(tiny, patience):
    # At 0.3 held-out losses rise soon: with patience 1 all policies stop before the end, at different evaluations.
    settings = dataclasses.replace(
        SETTINGS, epochs=3, early_stopping_patience=patience, eval_every=2,
        adapter=AdapterSettings(3, 6.0, dropout=0.3), optimizer=OptimizerSettings(0.3, "cosine"),
    )  # fmt: skip

    def train(**options):
        records = []
        reward_models, result = train_reward_models(tiny.model, tiny.rows(), settings, KEYS, records.append, **options)
        plain = [{name: value for name, value in record.items() if name != "seconds"} for record in records]
        return reward_models, {name: x.tolist() for name, x in result.items() if name != "seconds"}, plain

    kept = tiny.kept(3)
    alone, saved = train(), train(checkpoints=kept)
    stopped = saved[1]["updates"]
    assert stopped == [12, 12, 12] if patience is None else len(set(stopped)) > 1 and max(stopped) < 12
    assert sorted(kept.saved) == [*range(3, max(stopped), 3), 12]
    for start in kept.saved.values():
        resumed = train(checkpoints=tiny.kept(3, start))
        done = int(start.state.step[0])
        for other in (alone, saved):
            assert tiny.largest_difference(other[0], resumed[0]) == 0
            np.testing.assert_equal(resumed[1], other[1])  # in float64: the lowest loss decides who stops
            assert resumed[2] == other[2][3 * done :]


@pytest.mark.slow
def test_dropout_acts_in_training_only(tiny):
    rows = tiny.rows()
    results = {}
    for rate in (0.0, 0.5):
        settings = dataclasses.replace(SETTINGS, adapter=AdapterSettings(rank=3, alpha=6.0, dropout=rate))
        results[rate], _ = train_reward_models(tiny.model, rows, settings, KEYS)
    assert tiny.largest_difference(results[0.0], results[0.5]) > 1e-5
    one = jax.tree.map(lambda x: x[0], results[0.5])
    parts = (rows.context_ids[0], rows.context_mask[0], rows.response_ids[0], rows.response_mask[0])
    assert jnp.array_equal(SCORE(tiny.model, one, *parts), SCORE(tiny.model, one, *parts))


def test_one_program_serves_every_update_and_chunk(tiny):
    _step_program.__wrapped__.cache_clear()
    for _ in range(2):
        train_reward_models(tiny.model, tiny.rows(), SETTINGS, KEYS)
    assert _step_program(SETTINGS, 4)._cache_size() == 1
    assert _step_program.__wrapped__.cache_info().currsize == 1


def test_refusals(tiny):
    with pytest.raises(UserError, match="train_batch_size a multiple of the 2"):
        train_reward_models(tiny.model, tiny.rows(), dataclasses.replace(SETTINGS, train_batch_size=3), KEYS)
    uneven = tiny.rows()
    uneven = uneven.replace(heldout_mask=uneven.heldout_mask.at[0, 4].set(True))
    # Trained all the same, the first policy would follow the others' schedule and move in updates without its rows.
    with pytest.raises(UserError, match=r"equally many training rows for every policy; found \[15, 16\]"):
        train_reward_models(tiny.model, uneven, SETTINGS, KEYS)
    patient = dataclasses.replace(SETTINGS, early_stopping_patience=1)
    with pytest.raises(UserError, match="held-out"):
        train_reward_models(tiny.model, tiny.rows(heldout=0), patient, KEYS)
