"""PPO end to end on a tiny model, and its one update by an independent sum."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.inference.generate import Rollout
from canaryjax.inference.logprobs import score_shared
from canaryjax.rl.ppo_settings import AdaptiveKL, PPOSettings
from canaryjax.rl.ppo_step import PPOParams, _in_parts
from canaryjax.rl.reward_model import init_reward_model
from canaryjax.rl.rollout import Recipe
from canaryjax.rl.settings import AdapterSettings, OptimizerSettings
from canaryjax.rl.train_step import host_reward_programs, model_reward_step, update_policies
from canaryjax.rl.trainer import _new_state, train_policies
from canaryjax.rl.value_model import score_values

LIKED = 7
SETTINGS = PPOSettings(
    train_batch_size=1,
    grad_accumulation=1,
    mini_batches=2,
    max_completion_length=3,
    temperature=0.7,
    kl_coefficient=0.04,
    remat=False,
    adapter=AdapterSettings(rank=3, alpha=6.0),
    optimizer=OptimizerSettings(5e-4, "constant"),
)
KEYS = jax.random.split(jax.random.key(4), 3)


def with_settings(**changes):
    return dataclasses.replace(SETTINGS, **changes)


def likes_token(step, index, ids, mask):
    """Reward 1 for a completion that holds token 7."""
    return ((ids == LIKED) & mask).any(axis=-1).astype(np.float32)


def train(tiny, settings=SETTINGS, rewards=likes_token, prompts=None, keys=KEYS, **options):
    prompts = tiny.prompts() if prompts is None else prompts
    return train_policies(tiny.model, rewards, prompts, settings, keys, eos_ids=(tiny.eos,), **options)


def reward_models(tiny):
    return jax.vmap(lambda key: init_reward_model(key, tiny.model.config, SETTINGS.adapter))(KEYS)


def test_the_policy_and_its_value_model_move_and_the_base_and_the_reward_models_stay(tiny):
    models, kept, records = reward_models(tiny), tiny.kept(3), []
    before = jax.tree.map(np.array, (tiny.model, models))
    adapters, result = train(tiny, rewards=models, prompts=tiny.prompts(6), checkpoints=kept, log=records.append)
    assert result["steps"] == 3
    assert result["valid"].all()
    assert all(float(jnp.abs(pair.b[p]).max()) > 0 for pair in adapters.layers.values() for p in range(3))
    trained = kept.saved[3].params
    assert isinstance(trained, PPOParams)
    assert tiny.largest_difference(trained.policy, adapters) == 0
    assert (np.abs(trained.value.head_w - before[1].head_w).max(axis=-1) > 1e-4).all()
    assert all((np.abs(pair.b).max(axis=(1, 2, 3)) > 0).all() for pair in trained.value.adapter.layers.values())
    assert all(map(np.array_equal, jax.tree.leaves(before), jax.tree.leaves((tiny.model, models))))
    assert {r["stage"] for r in records} == {"ppo"}
    # Sampler and scorer are different programs: they differ by rounding, 1e-6 a token, and k3 by its square.
    assert max(r["kl"] for r in records if r["step"] == 0) < 1e-10
    assert max(abs(r["sequence_kl"]) for r in records if r["step"] == 0) < 1e-5
    assert min(r["kl"] for r in records if r["step"] == 2) > 1e-9


def test_the_value_model_starts_as_the_reward_model_or_at_zero(tiny):
    recipe, models = Recipe(SETTINGS, (tiny.eos,), 5), reward_models(tiny)
    copied = _new_state(recipe, tiny.model, None, models, KEYS)
    assert tiny.largest_difference(copied.params.value, models) == 0
    fresh = _new_state(recipe, tiny.model, None, None, KEYS).params
    assert not fresh.value.head_w.any()
    # Its own noise: one key for both adapters would make them equal.
    assert tiny.largest_difference(fresh.value.adapter, fresh.policy) > 0.01
    assert copied.kl_coefficient.tolist() == [np.float32(0.04)] * 3


def _stored(tiny, recipe, prompts, rewards, steps):
    """States and rollouts of a run of all policies together."""
    roll, update = host_reward_programs(recipe)
    state = _new_state(recipe, tiny.model, None, None, KEYS)
    stored = []
    for step in range(steps):
        index = np.broadcast_to(np.arange(2) + 2 * step, (3, 2)).astype(np.int32)
        rollout = roll(tiny.model, state, prompts, index, KEYS)
        given = rewards(step, index, np.asarray(rollout.ids_pbgt), np.asarray(rollout.completion_mask_pbgt))
        stored.append((index, rollout, jnp.asarray(given)))
        state, _ = update(tiny.model, None, state, prompts, index, rollout, given, KEYS)
    return state, stored


@pytest.mark.slow
def test_policies_together_equal_policies_alone_on_stored_rollouts(tiny):
    recipe = Recipe(with_settings(ppo_epochs=2, adaptive_kl=AdaptiveKL(0.01, 50)), (tiny.eos,), 5)
    alone = jax.jit(functools.partial(update_policies, recipe=recipe))

    def rewards(step, index, ids, mask):
        return likes_token(step, index, ids, mask) + 0.1 * ids[..., 0]

    prompts = tiny.prompts(10)
    together, stored = _stored(tiny, recipe, prompts, rewards, 5)
    for policy in range(3):
        own, keys = tiny.policy_slice(prompts, policy), KEYS[policy : policy + 1]
        state = _new_state(recipe, tiny.model, None, None, keys)
        for index, rollout, given in stored:
            chosen = jax.tree.map(lambda x, i=index[policy]: x[:, i], own)
            parts = (tiny.policy_slice(rollout, policy), given[policy : policy + 1])
            state, _ = alone(tiny.model, None, state, chosen, *parts, keys)
        assert tiny.largest_difference(state.params, tiny.policy_slice(together.params, policy)) < 1e-5
        assert float(state.kl_coefficient[0]) == pytest.approx(float(together.kl_coefficient[policy]), rel=1e-6)
        assert float(state.kl_coefficient[0]) != 0.04


def _one_rollout(tiny):
    """Completions of lengths 1, 2, 3, 3 of which the last did not end, with log-probs of the base at 0.7."""
    prompts = tiny.policy_slice(tiny.prompts(4), 0)
    ids = jnp.asarray([[1, 0, 0], [9, 1, 0], [7, 5, 1], [7, 8, 9]], jnp.int32)[None, :, None]
    mask = jnp.asarray([[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]], bool)[None, :, None]
    context = (prompts.context_ids[0], prompts.context_mask[0])
    logps = score_shared(tiny.model, None, *context, ids[0], mask[0], temperature=0.7)[None]
    return prompts, Rollout(ids, mask, logps, logps, jnp.asarray([[[True], [True], [True], [False]]]))


def test_metrics_of_a_rollout_by_hand(tiny):
    # A fresh policy and value model: ratio 1, divergence 0, values 0, so that returns are the discounted scores.
    prompts, rollout = _one_rollout(tiny)
    settings = with_settings(
        train_batch_size=4, mini_batches=1, gamma=0.5, gae_lambda=1.0, whiten_advantages=False, missing_eos_penalty=2.0
    )
    recipe = Recipe(settings, (tiny.eos,), 1)
    state = _new_state(recipe, tiny.model, None, None, KEYS[:1])
    scores = jnp.asarray([[[1.0], [0.7], [-1.0], [3.0]]])
    _, metrics = jax.jit(functools.partial(update_policies, recipe=recipe))(
        tiny.model, None, state, prompts, rollout, scores, KEYS[:1]
    )
    found = {name: float(x[0]) for name, x in metrics.items()}
    # Penalised once: 1.0, 0.7, -1.0, 1.0; returns 1 | .35 .7 | -.25 -.5 -1 | .25 .5 1. Paid a slot after EOS, the
    # first would be 0; a penalty a token would make the last row negative.
    returns = np.array([1, 0.35, 0.7, -0.25, -0.5, -1, 0.25, 0.5, 1])
    assert found["return_mean"] == pytest.approx(returns.mean(), abs=1e-5)
    assert found["policy_loss"] == pytest.approx(-returns.mean(), abs=1e-5)
    # New values are 0 and old ones too: no clip.
    assert found["value_loss"] == pytest.approx(0.5 * (returns**2).mean(), rel=1e-4)
    assert found["loss"] == pytest.approx(found["policy_loss"] + 0.1 * found["value_loss"], rel=1e-5)
    assert found["explained_variance"] == pytest.approx(0.0, abs=1e-6)
    assert found["reward_mean"] == pytest.approx(1.7 / 4)
    assert found["finished_fraction"] == 0.75
    assert found["completion_length"] == 9 / 4
    assert found["clip_fraction"] == found["value_clip_fraction"] == found["approx_kl"] == 0.0
    assert found["kl_coefficient"] == pytest.approx(0.04)


@pytest.mark.slow
def test_the_penalty_on_divergence_is_in_the_reward(tiny):
    # Old log-probs 0.3 above the reference's on every token: with k1, beta 0.5 and no discount a token's return is
    # minus 0.15 for itself and each token to come.
    prompts, rollout = _one_rollout(tiny)
    shifted = dataclasses.replace(rollout, logps_pbgt=rollout.logps_pbgt + 0.3 * rollout.completion_mask_pbgt)
    for kl, cost in (("k1", 0.3), ("k2", 0.045)):
        settings = with_settings(
            train_batch_size=4, mini_batches=1, gae_lambda=1.0, whiten_advantages=False, missing_eos_penalty=0.0,
            kl_coefficient=0.5, kl=kl,
        )  # fmt: skip
        recipe = Recipe(settings, (tiny.eos,), 1)
        state = _new_state(recipe, tiny.model, None, None, KEYS[:1])
        update = jax.jit(functools.partial(update_policies, recipe=recipe))
        _, metrics = update(tiny.model, None, state, prompts, shifted, jnp.zeros((1, 4, 1)), KEYS[:1])
        # Tokens to come, themselves included: 1 | 2 1 | 3 2 1 | 3 2 1.
        assert float(metrics["return_mean"][0]) == pytest.approx(-0.5 * cost * 16 / 9, rel=1e-4)
        assert float(metrics["sequence_kl"][0]) == pytest.approx(cost * 9 / 4, rel=1e-4)
        assert float(metrics["kl"][0]) == pytest.approx(np.exp(-0.3) - 1 + 0.3, rel=1e-4)


@pytest.mark.slow
def test_one_update_follows_the_gradient_of_a_plainly_written_loss(tiny):
    # Token by token, with no shared sums, masks or scans: clip by the global norm, one Adam step from zero moments.
    prompts, rollout = _one_rollout(tiny)
    settings = with_settings(
        train_batch_size=2, grad_accumulation=2, mini_batches=1, gamma=0.9, whiten_advantages=False,
        value_coefficient=0.7, kl_coefficient=0.0, missing_eos_penalty=0.5,
    )  # fmt: skip
    recipe = Recipe(settings, (tiny.eos,), 1)
    models = tiny.policy_slice(reward_models(tiny), 0)
    state = _new_state(recipe, tiny.model, None, models, KEYS[:1])
    scores = [1.0, 0.7, -1.0, 3.0]
    update = jax.jit(functools.partial(update_policies, recipe=recipe))
    after, metrics = update(tiny.model, None, state, prompts, rollout, jnp.asarray(scores).reshape(1, 4, 1), KEYS[:1])
    start = jax.tree.map(lambda x: x[0], state.params)
    context, lengths, paid = (prompts.context_ids[0], prompts.context_mask[0]), [1, 2, 3, 3], [1.0, 0.7, -1.0, 2.5]

    def plain(params):
        ids, real = rollout.ids_pbgt[0], rollout.completion_mask_pbgt[0]
        logps = score_shared(tiny.model, params.policy, *context, ids, real, temperature=0.7)[:, 0]
        new = score_values(tiny.model, params.value, *context, ids)[:, 0]
        old, total = jax.lax.stop_gradient(new), 0.0
        for i, length in enumerate(lengths):
            later, behind = 0.0, 0.0
            for t in reversed(range(length)):
                reward = paid[i] if t + 1 == length else 0.0
                later = reward + 0.9 * behind - old[i, t] + 0.9 * 0.95 * later
                behind = old[i, t]
                total += 0.7 * 0.5 * (new[i, t] - (later + behind)) ** 2 - later * logps[i, t]
        return total / 9

    gradient = jax.jit(jax.grad(plain))(start)
    norm = np.sqrt(sum(float(jnp.square(x).sum()) for x in jax.tree.leaves(gradient)))
    assert float(metrics["grad_norm"][0]) == pytest.approx(norm, rel=1e-4)
    # Adam's first step is the rate times g / (|g| + 1e-8): its sign is compared where g is well above its rounding.
    compared = 0
    for moved, was, g in zip(*map(jax.tree.leaves, (after.params, start, gradient)), strict=True):
        moved, was, g = (np.asarray(x, np.float64) for x in (moved[0], was, g))
        large = np.abs(g) > 1e-3 * norm
        compared += large.sum()
        np.testing.assert_allclose(
            np.where(large, moved - was, 0.0), np.where(large, -5e-4 * np.sign(g), 0.0), atol=2e-7
        )
    assert compared > 300, compared


def test_one_nan_reward_takes_its_completion_out_and_all_nan_stops_the_policy(tiny):
    records, kept = [], tiny.kept(2)

    def rewards(step, index, ids, mask):
        out = likes_token(step, index, ids, mask) + 0.1 * ids[..., 1]
        out[0, 0, 0] = np.nan
        if step >= 2:
            out[2] = np.inf
        return out

    adapters, result = train(tiny, rewards=rewards, log=records.append, checkpoints=kept)
    assert result["valid"].tolist() == [True, True, False]
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(adapters))
    assert [r["unusable_rewards"] for r in records if r["policy"] == 0] == [1] * 6
    # Frozen at the state after two steps, while the others went on.
    at_two = kept.saved[2].params.policy
    assert tiny.largest_difference(tiny.policy_slice(at_two, 2), tiny.policy_slice(adapters, 2)) == 0
    assert tiny.largest_difference(tiny.policy_slice(at_two, 1), tiny.policy_slice(adapters, 1)) > 0


@pytest.mark.slow
def test_a_completion_without_a_reward_leaves_every_other_number(tiny):
    # With the third row out, the rest must be what it is without that row at all.
    prompts, rollout = _one_rollout(tiny)
    scores, keep = jnp.asarray([[[1.0], [0.7], [jnp.nan], [3.0]]]), np.array([0, 1, 3])
    few = jax.tree.map(lambda x: x[:, keep], (prompts, rollout))
    found = []
    for given, rows, size in ((scores, (prompts, rollout), 4), (scores[:, keep], few, 3)):
        recipe = Recipe(with_settings(train_batch_size=size, mini_batches=1, kl_coefficient=0.1), (tiny.eos,), 1)
        state = _new_state(recipe, tiny.model, None, tiny.policy_slice(reward_models(tiny), 0), KEYS[:1])
        update = jax.jit(functools.partial(update_policies, recipe=recipe))
        found.append(update(tiny.model, None, state, *rows, given, KEYS[:1]))
    (one, metrics), (other, fewer) = found
    assert tiny.largest_difference(one.params, other.params) < 1e-6
    for name in ("loss", "value_loss", "return_mean", "explained_variance", "reward_mean", "grad_norm"):
        assert float(metrics[name][0]) == pytest.approx(float(fewer[name][0]), rel=1e-4), name
    assert metrics["unusable_rewards"].tolist() == [1]


def test_the_reference_and_the_values_are_the_same_in_parts():
    rows = (jnp.arange(12.0).reshape(6, 2), jnp.arange(6))
    sizes = []

    def score(part):
        sizes.append(part[0].shape[0])
        return part[0].sum(axis=1) * part[1], part[1]

    for most, expected in ((6, 6), (5, 3), (4, 3), (3, 3), (2, 2), (1, 1)):
        sizes.clear()
        found = _in_parts(score, rows, most)
        assert sizes == [expected]
        np.testing.assert_array_equal(found[0], (rows[0].sum(axis=1) * rows[1]))
        np.testing.assert_array_equal(found[1], rows[1])


@pytest.mark.slow
@pytest.mark.parametrize("samples", [1, 5])
def test_reward_rises_when_a_token_is_liked(tiny, samples):
    records = []
    settings = with_settings(
        train_batch_size=10, samples_per_prompt=samples, mini_batches=2, rollout_forward_batch_size=20, epochs=12,
        temperature=1.0, kl_coefficient=0.001, missing_eos_penalty=0.0, optimizer=OptimizerSettings(1e-2, "constant"),
    )  # fmt: skip
    train(tiny, settings, log=records.append, prompts=tiny.prompts(40 if samples == 1 else 13))
    for policy in range(3):
        mine = [r for r in records if r["policy"] == policy]
        rewards = [r["reward_mean"] for r in mine]
        assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.3  # chance: about 3/21
        assert max(r["explained_variance"] or 0.0 for r in mine) > 0.1


@pytest.mark.slow
def test_the_sampler_and_the_loss_use_one_law(tiny):
    # Another law in the loss would give ratios that clip at once. At a vanishing rate all updates are on policy.
    records = []
    settings = with_settings(
        ppo_epochs=2, temperature=0.5, clip_range=1e-3, optimizer=OptimizerSettings(1e-9, "constant")
    )
    train(tiny, settings, log=records.append)
    assert max(r["clip_fraction"] for r in records) == 0.0
    assert max(r["approx_kl"] for r in records) < 1e-9
    assert max(r["kl"] for r in records) < 1e-6


@pytest.mark.slow
def test_the_adaptive_coefficient_is_logged_follows_the_divergence_and_survives_a_resume(tiny):
    settings = with_settings(
        adaptive_kl=AdaptiveKL(target=1e-4, horizon=20), optimizer=OptimizerSettings(5e-3, "constant")
    )
    records, kept = [], tiny.kept(2)
    whole, _ = train(tiny, settings, log=records.append, checkpoints=kept)
    own = [r for r in records if r["policy"] == 0]
    for now, later in itertools.pairwise(own):
        error = np.clip(now["sequence_kl"] / 1e-4 - 1, -0.2, 0.2)
        assert later["kl_coefficient"] == pytest.approx(now["kl_coefficient"] * (1 + error * 2 / 20), rel=1e-5)
    assert own[0]["kl_coefficient"] == pytest.approx(0.04)
    again = []
    resumed, _ = train(tiny, settings, log=again.append, checkpoints=tiny.kept(2, kept.saved[2]))
    assert tiny.largest_difference(whole, resumed) == 0
    assert again[0]["kl_coefficient"] == own[2]["kl_coefficient"] != own[0]["kl_coefficient"]


@pytest.mark.slow
def test_two_passes_equal_one_and_recomputation_changes_nothing(tiny):
    def sums(step, index, ids, mask):
        return (ids * mask).sum(axis=-1).astype(np.float32)

    one, _ = train(tiny, with_settings(train_batch_size=2, mini_batches=1), sums)
    two, _ = train(tiny, with_settings(train_batch_size=1, grad_accumulation=2, mini_batches=1), sums)
    parts, _ = train(
        tiny, with_settings(train_batch_size=2, mini_batches=1, rollout_forward_batch_size=1, remat=True), sums
    )
    assert tiny.largest_difference(one, two) < 1e-5
    assert tiny.largest_difference(one, parts) < 1e-5


@pytest.mark.slow
def test_each_epoch_has_its_own_order(tiny):
    # Five rows in five mini-batches twice: with one order for both epochs, losses would repeat at a vanishing rate.
    prompts, settings = tiny.prompts(5), with_settings(mini_batches=5, ppo_epochs=2, optimizer=OptimizerSettings(1e-9))
    recipe = Recipe(settings, (tiny.eos,), 1)
    state = _new_state(recipe, tiny.model, None, None, KEYS)
    index = np.broadcast_to(np.arange(5), (3, 5)).astype(np.int32)
    roll, _ = host_reward_programs(recipe)
    rollout = roll(tiny.model, state, prompts, index, KEYS)
    seen = []
    original = jax.random.permutation

    def spy(key, n):
        order = original(key, n)
        jax.debug.callback(lambda x: seen.append(tuple(np.asarray(x).tolist())), order)
        return order

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "permutation", spy)
        update = jax.jit(functools.partial(update_policies, recipe=recipe))
        out = update(tiny.model, None, state, prompts, rollout, jnp.ones((3, 5, 1)), KEYS)
        jax.block_until_ready(out)
        jax.effects_barrier()
    assert len(seen) == 3 * 10  # policies times updates
    assert len(set(seen)) == 3 * 2  # an order a policy and epoch
    assert all(sorted(order) == list(range(5)) for order in seen)


@pytest.mark.slow
def test_one_program_serves_every_step(tiny):
    model_reward_step.__wrapped__.cache_clear()
    host_reward_programs.__wrapped__.cache_clear()
    models, records = reward_models(tiny), []
    for _ in range(2):
        train(tiny, rewards=models, log=records.append)
        train(tiny, log=records.append)
    recipe = Recipe(SETTINGS, (tiny.eos,), 6)
    assert model_reward_step(recipe)._cache_size() == 1
    assert [program._cache_size() for program in host_reward_programs(recipe)] == [1, 1]
    assert len(records) == 4 * 6 * 3
    assert {type(v) for r in records for v in r.values()} <= {str, int, float, bool, type(None)}


def test_refusals(tiny):
    with pytest.raises(UserError, match="2 prompts of one step"):
        train(tiny, prompts=tiny.prompts(1))
    with pytest.raises(UserError, match="floating rewards"):
        train(tiny, rewards=lambda s, i, ids, mask: (ids == LIKED).any(axis=-1).astype(int))
