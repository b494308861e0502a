"""Random updates of the same size as trained ones (PA-15, PA-A10)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.models.lora import LoraPair, from_pairs
from canaryjax.probes.noise import matched_noise, update_norms


def trained():
    rng = np.random.default_rng(0)
    shapes = {"q": (7, 5), "down": (11, 13)}
    pairs = {
        name: LoraPair(
            a=jnp.asarray(rng.normal(size=(2, size_in, 3)), jnp.float32),
            b=jnp.asarray(rng.normal(size=(2, 3, size_out)) * 0.01, jnp.float32),
        )
        for name, (size_in, size_out) in shapes.items()
    }
    return from_pairs(pairs, 1.7)


def update(adapter, name):
    pair = adapter.layers[name]
    return adapter.scale * np.asarray(pair.a, np.float64) @ np.asarray(pair.b, np.float64)


def norms(adapter, name):
    return np.linalg.norm(update(adapter, name), axis=(-2, -1))


def test_norms_are_those_of_the_updates_themselves():
    adapter = trained()
    for name, found in update_norms(adapter).items():
        np.testing.assert_allclose(found, norms(adapter, name), rtol=1e-5)


def test_each_kernels_norm_is_matched_and_its_direction_is_not():
    adapter = trained()
    noise = matched_noise(jax.random.key(3), adapter)
    for name in adapter.layers:
        np.testing.assert_allclose(norms(noise, name), norms(adapter, name), rtol=1e-5)
        cosine = (update(noise, name) * update(adapter, name)).sum() / (norms(noise, name) * norms(adapter, name)).sum()
        assert abs(cosine) < 0.4
    other = matched_noise(jax.random.key(4), adapter)
    assert not np.allclose(update(other, "q"), update(noise, "q"))


def test_the_whole_norm_alone_is_matched_by_choice():
    adapter = trained()
    noise = matched_noise(jax.random.key(3), adapter, "global")
    total = [np.sqrt(sum((norms(one, name) ** 2).sum() for name in one.layers)) for one in (adapter, noise)]
    assert total[1] == pytest.approx(total[0], rel=1e-5)
    assert not np.allclose(norms(noise, "q"), norms(adapter, "q"), rtol=0.01)


def test_an_adapter_that_learned_nothing_gives_no_noise():
    adapter = jax.tree.map(jnp.zeros_like, trained())
    noise = matched_noise(jax.random.key(3), adapter)
    assert all(np.asarray(x).max() == 0 for x in (noise.layers["q"].b, noise.layers["down"].b))
