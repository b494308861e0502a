"""Random updates as large as trained ones: what moves when weights move, whatever they learned (PA-15)."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from canaryjax.models.lora import TARGETS, Adapter, LoraPair, adapter_pairs, from_pairs

Norm = Literal["module", "global"]


def matched_noise(key: jax.Array, adapter: Adapter, norm: Norm = "module") -> Adapter:
    """A random adapter of the same rank and targets whose update has the same Frobenius norm.

    Both factors are drawn from the normal law; then `b` is scaled.

    Args:
      key: Typed key.
      adapter: The trained one, never changed.
      norm: `module`: the update of every kernel of every layer has the norm of the trained one there (PA-A10).
        `global`: all updates together have, each with its own share by chance.
    """
    drawn = {}
    for name, pair in adapter_pairs(adapter).items():
        own = jax.random.fold_in(key, TARGETS.index(name))  # a tree's order depends on where it has been
        a, b = (jax.random.normal(jax.random.fold_in(own, i), x.shape) for i, x in enumerate((pair.a, pair.b)))
        drawn[name] = LoraPair(a=a, b=b)
    noise = from_pairs(drawn, adapter.scale)
    wanted, found = update_norms(adapter), update_norms(noise)
    if norm == "global":
        ratio = _total(wanted) / _total(found)
        factors = {name: jnp.full_like(value, ratio) for name, value in found.items()}
    else:
        factors = {name: wanted[name] / found[name] for name in found}
    pairs = {name: dataclasses.replace(pair, b=factors[name][..., None, None] * pair.b) for name, pair in drawn.items()}
    return from_pairs(pairs, adapter.scale)


def update_norms(adapter: Adapter) -> dict[str, jax.Array]:
    """Frobenius norm of `scale * a @ b` by target: float32 `[l]`, of the head a scalar.

    From the r x r products of each factor with itself, |ab|^2 = sum(a'a * bb'): the update itself is never made.
    """

    def norm(pair: LoraPair) -> jax.Array:
        highest = jax.lax.Precision.HIGHEST
        left = jnp.einsum("...ir,...iq->...rq", pair.a, pair.a, precision=highest)
        right = jnp.einsum("...ro,...qo->...rq", pair.b, pair.b, precision=highest)
        return adapter.scale * jnp.sqrt(jnp.maximum((left * right).sum((-1, -2)), 0.0))

    return {name: norm(pair) for name, pair in adapter_pairs(adapter).items()}


def _total(norms: dict[str, jax.Array]) -> jax.Array:
    return jnp.sqrt(sum(jnp.square(value).sum() for value in norms.values()))
