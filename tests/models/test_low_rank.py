"""The low-rank product equals its formula, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.models.low_rank import low_rank


def test_equals_the_formula_values_and_gradients():
    # Catches a scale that is applied twice or not at all on one of the three gradients, and a turned factor.
    rng = np.random.default_rng(0)
    x, a, b, weights = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((2, 7, 5), (5, 3), (3, 11), (2, 7, 11)))

    def found(x, a, b):
        return (weights * low_rank(x, a, b, 1.7)).sum(), low_rank(x, a, b, 1.7)

    def wanted(x, a, b):
        return (weights * (x @ (1.7 * a @ b))).sum(), x @ (1.7 * a @ b)

    (ours, y), grads = jax.jit(jax.value_and_grad(found, (0, 1, 2), has_aux=True))(x, a, b)
    (plain, plain_y), plain_grads = jax.jit(jax.value_and_grad(wanted, (0, 1, 2), has_aux=True))(x, a, b)
    np.testing.assert_allclose(ours, plain, rtol=1e-5)
    np.testing.assert_allclose(y, plain_y, rtol=1e-5, atol=1e-5)
    for ours, plain in zip(grads, plain_grads, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)


def test_bfloat16_input_keeps_a_float32_product():
    x = jnp.full((1, 3), 1 + 2**-7, jnp.bfloat16)
    y = low_rank(x, jnp.full((3, 1), 1 + 2**-12), jnp.ones((1, 2)), 1.0)
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(y, 3 * (1 + 2**-7) * (1 + 2**-12), rtol=1e-6)
