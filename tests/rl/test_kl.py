"""KL estimators against enumeration of a 3-way categorical."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.rl.kl import estimate_kl

LOGITS = jnp.array([0.3, -0.7, 0.9])
REF = jax.nn.log_softmax(jnp.array([-0.2, 0.5, 0.1]))


def true_kl(logits):
    logps = jax.nn.log_softmax(logits)
    return (jnp.exp(logps) * (logps - REF)).sum()


def expected_gradient(estimator):
    """Mean over samples of the gradient of the sampled estimate, as training computes it: the sampler is constant."""
    weights = jax.lax.stop_gradient(jax.nn.softmax(LOGITS))
    return jax.grad(lambda x: (weights * estimate_kl(estimator, jax.nn.log_softmax(x), REF)).sum())(LOGITS)


def test_the_mean_of_every_estimator_but_k2_is_the_divergence():
    exact = float(true_kl(LOGITS))
    means = {
        name: float((jax.nn.softmax(LOGITS) * estimate_kl(name, jax.nn.log_softmax(LOGITS), REF)).sum())
        for name in ("k1", "k2", "k3", "k3_weighted")
    }
    for name in ("k1", "k3", "k3_weighted"):
        assert means[name] == pytest.approx(exact, rel=1e-5)
    assert abs(means["k2"] - exact) > 0.01 * exact


def test_gradients_are_what_the_table_says():
    exact = jax.grad(true_kl)(LOGITS)
    np.testing.assert_allclose(expected_gradient("k1"), 0.0, atol=1e-7)
    np.testing.assert_allclose(expected_gradient("k2"), exact, rtol=1e-4)
    np.testing.assert_allclose(expected_gradient("k3_weighted"), exact, rtol=1e-4)
    # k3's is that of the other direction, KL(reference || policy): p - p_ref in the logits.
    np.testing.assert_allclose(expected_gradient("k3"), jax.nn.softmax(LOGITS) - jnp.exp(REF), atol=1e-6)
    assert np.abs(expected_gradient("k3") - exact).max() > 0.01


def test_the_weighted_estimator_corrects_for_an_old_sampler():
    old = jax.nn.log_softmax(jnp.array([1.0, 0.0, -1.0]))

    def mean(x):
        return (jnp.exp(old) * estimate_kl("k3_weighted", jax.nn.log_softmax(x), REF, old)).sum()

    assert float(mean(LOGITS)) == pytest.approx(float(true_kl(LOGITS)), rel=1e-5)
    np.testing.assert_allclose(jax.grad(mean)(LOGITS), jax.grad(true_kl)(LOGITS), rtol=1e-4)


def test_k3_is_never_negative_and_zero_for_equal_inputs():
    # exp(d) - 1 - d in float32 cancels to about -6e-8 for small d.
    d = jnp.concatenate([jnp.logspace(-9, 0.5, 400), -jnp.logspace(-9, 0.5, 400), jnp.zeros(1)])
    k3 = jax.jit(lambda d: estimate_kl("k3", -5.0 * jnp.ones_like(d), -5.0 + d))(d)
    assert float(k3.min()) >= 0.0
    assert float(k3[-1]) == 0.0
    exact = np.expm1(np.float64(0.02)) - np.float64(0.02)
    assert float(estimate_kl("k3", jnp.float32(0.0), jnp.float32(0.02))) == pytest.approx(exact, rel=1e-4)


def test_an_unknown_estimator_is_named():
    with pytest.raises(UserError, match="k4"):
        estimate_kl("k4", LOGITS, REF)
