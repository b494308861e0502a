"""Group advantages and masked whitening, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.rl.advantages import group_advantages, masked_variance, whiten


def test_advantages_are_group_relative_and_scaled_by_the_sample_deviation():
    # Means 2 and 5, sample deviations 1 and 2; a population deviation would give 1.2247, a batch mean other signs.
    out = group_advantages(jnp.array([[1.0, 2.0, 3.0], [3.0, 5.0, 7.0]]), scale=True)
    np.testing.assert_allclose(out.advantages, [[-1, 0, 1], [-1, 0, 1]], atol=2e-4)
    out = group_advantages(jnp.array([[1.0, 2.0, 3.0], [3.0, 5.0, 7.0]]), scale=False)
    np.testing.assert_allclose(out.advantages, [[-1, 0, 1], [-2, 0, 2]], atol=1e-6)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_equal_rewards_give_exactly_zero_and_are_counted(transform):
    # The float32 mean of seven times 0.1 is not 0.1: divided by 1e-4 the rounding would be an advantage.
    out = transform(lambda r: group_advantages(r, scale=True))(jnp.full((2, 7), 0.1).at[1, 0].set(0.3))
    assert out.advantages[0].tolist() == [0.0] * 7
    assert out.zero_variance.tolist() == [True, False]


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
@pytest.mark.parametrize("scale", [True, False])
def test_a_reward_that_is_not_finite_leaves_the_mean(bad, scale):
    # Counted as 0 it would pull the mean of 2 and 4 to 2; left in it would make all of them NaN.
    out = group_advantages(jnp.array([[2.0, bad, 4.0]]), scale=scale)
    unit = 1 / (2**0.5 + 1e-4) if scale else 1.0
    np.testing.assert_allclose(out.advantages, [[-unit, 0, unit]], rtol=1e-6)
    assert out.usable.tolist() == [[True, False, True]]


def test_a_group_with_one_or_no_finite_reward_gives_zero():
    # n - 1 = 0 degrees of freedom: an unguarded sample deviation is NaN.
    out = group_advantages(jnp.array([[jnp.nan, 3.0], [jnp.nan, jnp.nan]]), scale=True)
    assert out.advantages.tolist() == [[0, 0], [0, 0]]
    assert out.zero_variance.tolist() == [True, True]


def test_refusals():
    with pytest.raises(UserError, match="at least 2"):
        group_advantages(jnp.ones((3, 1)), scale=True)
    # An integer buffer has already turned 0.7 into 0.
    with pytest.raises(UserError, match="floating"):
        group_advantages(jnp.ones((3, 2), jnp.int32), scale=True)


def test_whitening_reads_real_positions_only():
    values, mask = jnp.array([1.0, 3.0, 100.0]), jnp.array([True, True, False])
    np.testing.assert_allclose(whiten(values, mask), [-1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(whiten(values, mask, shift_mean=False), [1, 3, 0], atol=1e-6)
    # One valid token: n - 1 would give NaN.
    assert float(masked_variance(jnp.array([5.0, 9.0]), jnp.array([True, False]))) == 0.0
