"""The low-rank update `scale * x @ a @ b`, with its backward products in the order that moves least memory."""

from functools import partial

import jax
import jax.numpy as jnp


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def low_rank(x: jax.Array, a: jax.Array, b: jax.Array, scale: float) -> jax.Array:
    """`scale * (x @ a) @ b` in float32: x `[..., in]`, a `[in, r]`, b `[r, out]` -> float32 `[..., out]`.

    Autodiff's products for a and b make the compiler turn x and the cotangent over, which on a CPU takes longer than
    multiplying them: here only the arrays with r columns are turned.
    """
    return _forward(x, a, b, scale)[0]


def _forward(x, a, b, scale):
    inner = scale * (x.astype(jnp.float32) @ a)
    return inner @ b, (x, a, b, inner)


def _backward(scale, kept, of_y):
    x, a, b, inner = kept
    of_inner = scale * (of_y @ b.T)
    of_a = jnp.einsum("...r,...i->ri", of_inner, x.astype(jnp.float32))
    of_b = jnp.einsum("...r,...o->ro", inner, of_y)
    # Without the barrier the compiler folds the turn into the product and turns x instead.
    return (of_inner @ a.T).astype(x.dtype), jax.lax.optimization_barrier(of_a).T, of_b


low_rank.defvjp(_forward, _backward)
