"""Generalised advantage estimation: by hand, against a plain loop, and at its limits."""

import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.rl.advantages import whiten
from canaryjax.rl.gae import estimate_gae


def by_loop(rewards, values, length, gamma, gae_lambda):
    """One completion, in Python floats."""
    advantages, later = [0.0] * len(rewards), 0.0
    for t in reversed(range(length)):
        next_value = float(values[t + 1]) if t + 1 < length else 0.0
        delta = float(rewards[t]) + gamma * next_value - float(values[t])
        later = delta + gamma * gae_lambda * later
        advantages[t] = later
    return advantages


def test_the_scan_equals_a_plain_loop_over_rows_of_all_lengths():
    rng = np.random.default_rng(1)
    lengths = np.array([[7, 1, 4], [0, 6, 2]])
    mask = np.arange(7) < lengths[..., None]
    rewards, values = rng.normal(size=(2, 2, 3, 7)).astype(np.float32)
    # Padding holds NaN: a recursion that reads it, or a value behind the end, shows at once.
    found = estimate_gae(
        *(jnp.where(mask, x, jnp.nan) for x in (rewards, values)), jnp.asarray(mask), gamma=0.9, gae_lambda=0.7
    )
    expected = np.array(
        [
            [by_loop(rewards[i, j], values[i, j], lengths[i, j], 0.9, 0.7) for j in range(3)]
            for i in range(2)
        ]
    )  # fmt: skip
    np.testing.assert_allclose(found.advantages, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.returns, np.where(mask, expected + values, 0.0), rtol=1e-5, atol=1e-6)


def test_a_score_at_eos_reaches_every_real_token_and_no_other():
    # Paid one slot later, it would be lost to padding or stand on a token that was never sampled.
    mask = jnp.array([True, True, True, False])
    found = estimate_gae(jnp.array([0.0, 0.0, 1.0, 0.0]), jnp.zeros(4), mask, gamma=1.0, gae_lambda=1.0)
    assert found.returns.tolist() == [1.0, 1.0, 1.0, 0.0]


def test_lambda_zero_is_the_one_step_error_and_lambda_one_the_return_minus_the_value():
    rewards, values, mask = jnp.array([1.0, 2.0, 4.0]), jnp.array([0.5, 3.0, 1.0]), jnp.ones(3, bool)
    one_step = estimate_gae(rewards, values, mask, gamma=0.5, gae_lambda=0.0)
    assert one_step.advantages.tolist() == [1 + 1.5 - 0.5, 2 + 0.5 - 3, 4 - 1]
    whole = estimate_gae(rewards, values, mask, gamma=0.5, gae_lambda=1.0)
    assert whole.returns.tolist() == [1 + 1 + 1, 2 + 2, 4]
    assert whole.advantages.tolist() == [2.5, 1.0, 3.0]


def test_rewards_keep_their_fraction_and_integers_are_refused():
    found = estimate_gae(jnp.array([0.7]), jnp.zeros(1), jnp.ones(1, bool), gamma=1.0, gae_lambda=0.95)
    assert found.advantages.tolist() == [np.float32(0.7)]
    with pytest.raises(UserError, match="floating rewards"):
        estimate_gae(jnp.array([1]), jnp.zeros(1), jnp.ones(1, bool), gamma=1.0, gae_lambda=0.95)


def test_whitened_advantages_of_one_token_are_finite():
    # n - 1 would divide by 0.
    mask = jnp.array([[True, False], [False, False]])
    found = estimate_gae(jnp.full((2, 2), 3.0), jnp.zeros((2, 2)), mask, gamma=1.0, gae_lambda=0.95)
    assert whiten(found.advantages, mask).tolist() == [[0.0, 0.0], [0.0, 0.0]]
