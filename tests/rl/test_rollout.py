"""Rollouts: their law is the policy's alone, their noise that of its key and the step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.models.lora import Adapter, LoraPair, init_adapter
from canaryjax.rl.rollout import Recipe, roll_out, take_prompts
from canaryjax.rl.settings import AdapterSettings, GRPOSettings

SETTINGS = GRPOSettings(
    generation_batch_size=10,
    train_batch_size=10,
    num_generations=5,
    max_completion_length=3,
    adapter=AdapterSettings(rank=3, alpha=6.0),
)
KEYS = jax.random.split(jax.random.key(4), 3)


@pytest.fixture(scope="module")
def run(tiny):
    """`run(step, dropout=0.0, prompts=None)`: a rollout of three policies that are all one adapter, far from zero."""
    one = init_adapter(jax.random.key(1), tiny.model.config, 3, 6.0)
    far = {k: LoraPair(a=x.a, b=0.5 * jax.random.normal(jax.random.key(2), x.b.shape)) for k, x in one.layers.items()}
    policies = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), Adapter(layers=far, scale=one.scale))
    program = jax.jit(roll_out, static_argnames="recipe")
    index = jnp.array([[0, 1], [0, 1], [0, 1]])

    def call(step, dropout=0.0, prompts=None):
        prompts = tiny.prompts() if prompts is None else prompts
        settings = dataclasses.replace(SETTINGS, adapter=dataclasses.replace(SETTINGS.adapter, dropout=dropout))
        recipe = Recipe(settings, (tiny.eos,), 2)
        chosen = take_prompts(prompts, index)
        return program(tiny.model, policies, chosen, KEYS, jnp.full(3, step, jnp.int32), recipe=recipe)

    return call


def test_steps_policies_and_completions_draw_noise_of_their_own(tiny, run):
    # One prompt for all. A key that forgets the step would sample the same texts at each, one that forgets the policy
    # the same texts for each.
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[:1, :1], x.shape), tiny.prompts())
    first, second, again = (np.asarray(run(step, prompts=same).ids_pbgt) for step in (0, 1, 0))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0, 0], first[0, 1])
    np.testing.assert_array_equal(first, again)


def test_dropout_is_off_while_sampling(run):
    # Half the inputs dropped would give other log-probs, and a ratio that is not 1 where the policy has not moved.
    for kept, dropped in zip(jax.tree.leaves(run(0)), jax.tree.leaves(run(0, dropout=0.5)), strict=True):
        np.testing.assert_array_equal(kept, dropped)
