"""The PPO losses, the token rewards and the KL controller, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.rl.accumulation import sum_passes
from canaryjax.rl.ppo import (
    PPOTargets,
    adapt_coefficient,
    explained_variance,
    finish_ppo,
    ppo_loss,
    ppo_sums,
    sequence_divergence,
    token_rewards,
)
from canaryjax.rl.ppo_settings import AdaptiveKL, PPOSettings
from canaryjax.rl.settings import AdapterSettings

PLAIN = PPOSettings(max_completion_length=5, value_coefficient=0.1)
MASK = jnp.array([[[True, True, True, True]], [[True, False, False, False]]])


def with_settings(**changes):
    return dataclasses.replace(PLAIN, **changes)


def targets(old=None, advantages=None, old_values=None, returns=None, shape=MASK.shape):
    zero = jnp.zeros(shape)
    others = [
        zero if x is None else jnp.asarray(x, jnp.float32).reshape(shape) for x in (advantages, old_values, returns)
    ]
    return PPOTargets(old if old is None else jnp.asarray(old, jnp.float32).reshape(shape), *others)


def test_on_policy_ratio_is_one_and_its_gradient_that_of_the_log_prob():
    logps = jnp.array([[[-1.0, -2.0, -0.5, -0.1]], [[-3.0, jnp.nan, jnp.nan, jnp.nan]]])
    advantages = [1.0, -2.0, 3.0, 0.5, 4.0, jnp.nan, jnp.inf, 7.0]  # padding may hold anything

    def loss(logps, values):
        given = targets(None, advantages, [2.0] * 4 + [5.0] + [jnp.nan] * 3, [2.0] * 8)
        return ppo_loss(logps, values, given, MASK, PLAIN)

    values = jnp.array([[[2.0] * 4], [[5.0, jnp.nan, jnp.nan, jnp.nan]]])
    (total, metrics), gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)(logps, values)
    assert float(metrics["policy_loss"]) == pytest.approx(-6.5 / 5)
    assert float(metrics["value_loss"]) == pytest.approx(0.5 * 9 / 5)  # the one value that is 3 off, over 5 tokens
    assert float(total) == pytest.approx(-6.5 / 5 + 0.1 * 0.9)
    np.testing.assert_allclose(gradients[0], [[[-0.2, 0.4, -0.6, -0.1]], [[-0.8, 0.0, 0.0, 0.0]]], rtol=1e-6)
    np.testing.assert_allclose(gradients[1], [[[0.0] * 4], [[0.1 * 3 / 5, 0.0, 0.0, 0.0]]], rtol=1e-6)
    assert float(metrics["clip_fraction"]) == float(metrics["approx_kl"]) == 0.0
    assert float(metrics["entropy"]) == pytest.approx(6.6 / 5)


def test_the_policy_clip_takes_the_pessimistic_side():
    # Ratios 1.5 and 0.5 with both signs; without min() the clip would also hide the two bad directions.
    mask = jnp.ones((1, 1, 4), bool)
    logps, advantages = jnp.log(jnp.array([[[1.5, 1.5, 0.5, 0.5]]])), [1.0, -1.0, 1.0, -1.0]
    given = targets([0.0] * 4, advantages, shape=(1, 1, 4))
    settings = with_settings(clip_range=0.3)

    def loss(x):
        return ppo_loss(x, jnp.zeros_like(x), given, mask, settings)

    (value, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(logps)
    assert float(value) == pytest.approx((-1.3 + 1.5 - 0.5 + 0.7) / 4)
    np.testing.assert_allclose(gradient[0, 0], [0.0, 1.5 / 4, -0.5 / 4, 0.0], rtol=1e-6)
    assert float(metrics["clip_fraction"]) == 0.5
    # k3 of KL(old || new): ratio - 1 - log ratio.
    assert float(metrics["approx_kl"]) == pytest.approx(np.mean([0.5 - np.log(1.5), -0.5 + np.log(2)]), rel=1e-5)


@pytest.mark.parametrize(
    ("value", "old", "returned", "loss", "slope", "binds"),
    [
        (1.0, 0.0, 2.0, 0.5 * 1.8**2, 0.0, True),  # ran ahead towards the return: held at 0.2, no further gradient
        (-1.0, 0.0, 2.0, 0.5 * 9.0, -3.0, False),  # ran away from it: the larger error is its own
        (0.1, 0.0, 2.0, 0.5 * 1.9**2, -1.9, False),  # within reach
        (3.0, 0.0, 0.1, 0.5 * 2.9**2, 2.9, False),  # beyond the return: min() instead of max() would give 0.005
    ],
)
def test_the_value_clip_takes_the_larger_error(value, old, returned, loss, slope, binds):
    shape = (1, 1, 1)
    given = targets(None, [0.0], [old], [returned], shape)

    def total(x):
        return ppo_loss(jnp.zeros(shape), x, given, jnp.ones(shape, bool), with_settings(value_coefficient=1.0))

    (found, metrics), gradient = jax.value_and_grad(total, has_aux=True)(jnp.full(shape, value))
    assert float(found) == pytest.approx(loss, rel=1e-5)
    assert float(gradient[0, 0, 0]) == pytest.approx(slope, rel=1e-5)
    assert float(metrics["value_clip_fraction"]) == binds
    free = ppo_loss(jnp.zeros(shape), jnp.full(shape, value), given, jnp.ones(shape, bool), with_settings(
        value_coefficient=1.0, value_clip_range=None))[0]  # fmt: skip
    assert float(free) == pytest.approx(0.5 * (value - returned) ** 2, rel=1e-5)


def test_one_pass_of_two_rows_equals_two_passes_of_one():
    # Lengths 2 and 8: a mean of means would weigh the short row's tokens four times as much as the batch does.
    rng = np.random.default_rng(0)
    shape = (2, 1, 8)
    batch = {
        "logps": jnp.asarray(-rng.random(shape), jnp.float32),
        "values": jnp.asarray(rng.random(shape), jnp.float32),
        "targets": PPOTargets(*(jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(4))),
        "mask": jnp.asarray(np.arange(8) < np.array([[[2]], [[8]]])),
    }

    def gradient(passes):
        def loss(shift):
            def body(b):
                return ppo_sums(b["logps"] * jnp.exp(shift), b["values"] + shift, b["targets"], b["mask"], PLAIN)

            return finish_ppo(sum_passes(body, batch, passes), PLAIN)[0]

        return jax.jit(jax.grad(loss))(jnp.float32(0.2))

    whole, accumulated = gradient(1), gradient(2)
    assert abs(float(whole)) > 1e-3
    assert float(accumulated) == pytest.approx(float(whole), rel=1e-6)


def test_the_score_stands_on_the_last_real_token_and_the_penalty_on_every_token():
    mask = jnp.array([[[True, True, True, False], [True, True, True, True]], [[True] + [False] * 3, [False] * 4]])
    kl = jnp.where(mask, jnp.array([0.1, -0.2, 0.3, 0.4]), jnp.nan)
    found = token_rewards(jnp.array([[0.7, -2.0], [5.0, jnp.nan]]), kl, mask, 0.5)
    # One slot after EOS the first score would be lost; an integer buffer would make 0.7 a 0.
    expected = [
        [[-0.05, 0.1, 0.7 - 0.15, 0.0], [-0.05, 0.1, -0.15, -2.0 - 0.2]],
        [[5.0 - 0.05, 0.0, 0.0, 0.0], [0.0] * 4],
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(UserError, match="floating rewards"):
        token_rewards(jnp.array([[1, 0], [0, 1]]), kl, mask, 0.5)


def test_explained_variance_by_hand():
    returns, mask = jnp.array([1.0, 3.0, 5.0, 99.0]), jnp.array([True, True, True, False])
    assert float(explained_variance(returns, returns, mask)) == 1.0
    assert float(explained_variance(jnp.full(4, 2.0), returns, mask)) == 0.0
    assert float(explained_variance(jnp.array([2.0, 3.0, 4.0, 0.0]), returns, mask)) == pytest.approx(0.75)
    assert np.isnan(explained_variance(returns, jnp.ones(4), mask))


def test_the_controller_follows_its_target():
    controller, beta = AdaptiveKL(target=4.0, horizon=100), jnp.float32(0.3)
    # Errors of 0.1, more than 0.2, and less than -0.2, over 10 completions.
    for divergence, factor in ((4.4, 1.01), (80.0, 1.02), (0.0, 0.98), (np.nan, 1.0), (np.inf, 1.02)):
        found = adapt_coefficient(beta, jnp.float32(divergence), 10, controller)
        assert float(found) == pytest.approx(0.3 * factor, rel=1e-5), divergence
    assert adapt_coefficient(beta, jnp.float32(80.0), 10, None) is beta


def test_the_divergence_is_summed_over_tokens_and_averaged_over_completions_that_count():
    kl = jnp.array([[[1.0, 2.0, jnp.nan], [jnp.nan] * 3, [0.5, 0.5, 4.0]]])
    mask = jnp.array([[[True, True, False], [False] * 3, [True] * 3]])
    assert float(sequence_divergence(kl, mask)) == 4.0


def test_the_papers_table_is_the_default():
    found = PPOSettings()
    assert (found.train_batch_size, found.grad_accumulation, found.mini_batches, found.ppo_epochs) == (1, 4, 2, 1)
    assert (found.completions_per_step, found.prompts_per_step, found.updates_per_step) == (8, 8, 2)
    assert (found.samples_per_prompt, found.epochs, found.max_completion_length) == (1, 1, 32)
    assert (found.temperature, found.kl_coefficient, found.clip_range, found.gae_lambda) == (0.7, 0.01, 0.2, 0.95)
    assert (found.rollout_forward_batch_size, found.missing_eos_penalty, found.remat) == (16, 1.0, True)
    assert found.optimizer.learning_rate == 5e-6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_batch_size": 6, "samples_per_prompt": 4}, "train_batch_size a multiple of samples_per_prompt=4"),
        ({"train_batch_size": 5, "samples_per_prompt": 5}, "rollout_forward_batch_size a multiple"),
        ({"mini_batches": 0}, "mini_batches"),
        ({"ppo_epochs": 1.5}, "ppo_epochs"),
        ({"temperature": 0.0}, "temperature"),
        ({"kl": "k3_weighted"}, "kl among"),
        ({"kl_coefficient": float("nan")}, "kl_coefficient"),
        ({"gamma": 1.1}, "gamma"),
        ({"gae_lambda": -0.1}, "gae_lambda"),
        ({"value_clip_range": 0.0}, "None to switch it off"),
        ({"kl_coefficient": 0.0, "adaptive_kl": AdaptiveKL(6.0, 10_000)}, "cannot raise 0"),
        # Dropped inputs would move the ratio off 1 on policy, and a clip would then decide by that noise.
        ({"adapter": AdapterSettings(dropout=0.1)}, "dropout 0 with PPO"),
        ({"adaptive_kl": AdaptiveKL(6.0, 7)}, "horizon of at least the 8 completions"),
    ],
)
def test_settings_refuse(changes, message):
    with pytest.raises(UserError, match=message):
        with_settings(**changes)


@pytest.mark.parametrize(("target", "horizon"), [(0.0, 10), (float("inf"), 10), (6.0, 0)])
def test_the_controller_refuses(target, horizon):
    with pytest.raises(UserError, match="adaptive_kl target" if horizon else "horizon"):
        AdaptiveKL(target, horizon)
