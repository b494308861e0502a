"""A merged model is written only where it is one: from a base and an adapter, finite, into a new directory."""

import jax
import jax.numpy as jnp
import pytest

from canaryjax.errors import UserError
from canaryjax.models.lora import HEAD, Adapter, LoraPair, adapter_pairs, from_pairs, init_adapter
from canaryjax.weights import merged
from canaryjax.weights.checkpoint import load_model
from canaryjax.weights.merged import save_merged


@pytest.fixture
def base(saved):
    return load_model(saved)


@pytest.fixture
def adapter(base) -> Adapter:
    return init_adapter(jax.random.key(5), base.config, 3, 7.0, ("q", "down", HEAD))


# The last two are finite, and their product is not.
@pytest.mark.parametrize(("a", "b"), [(jnp.nan, 1.0), (1.0, -jnp.inf), (1e30, 1e30), (-1e20, 1e19)])
@pytest.mark.parametrize(("name", "named"), [("down", r"blocks\.down"), (HEAD, "head")])
def test_weights_that_are_not_finite_are_refused(base, adapter, tmp_path, name, named, a, b):
    # Once written, and reported as merged without any loss.
    pairs = adapter_pairs(adapter)
    pairs[name] = LoraPair(a=pairs[name].a.at[..., 5, 2].set(a), b=pairs[name].b.at[..., 2, 7].set(b))
    with pytest.raises(UserError, match=rf"expected finite merged weights; found NaN or infinity in {named}; train"):
        save_merged(base, from_pairs(pairs, 1.0), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_base_or_no_adapter_is_named(base, adapter, tmp_path):
    for wrong in (base.params, None, "embedded"):
        with pytest.raises(
            UserError, match=r"expected a model from load_model, found .*; (load the base|call load_model.*) first"
        ):
            save_merged(wrong, adapter, tmp_path / "out")
    for wrong in (None, {}, "adapter"):
        with pytest.raises(UserError, match=r"expected an adapter to merge, found .*; pass what load_adapter"):
            save_merged(base, wrong, tmp_path / "out")
    with pytest.raises(UserError, match="expected a path, found None"):
        save_merged(base, adapter, None)
    assert not (tmp_path / "out").exists()


def test_a_directory_in_use_is_refused_before_the_work(base, adapter, saved, monkeypatch):
    monkeypatch.setattr(merged, "merge_adapter", lambda *_: pytest.fail("merged, to write nothing"))
    with pytest.raises(UserError, match="in use"):
        save_merged(base, adapter, saved)
