"""What stays float32 in training while the base computes in bfloat16, from the programs' own types: nothing is run."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from canaryjax.models.transformer import Transformer, parameter_arrays
from canaryjax.rl.ppo_settings import PPOSettings
from canaryjax.rl.reward_model import init_reward_model, score_rewards
from canaryjax.rl.rollout import Recipe
from canaryjax.rl.settings import AdapterSettings, GRPOSettings
from canaryjax.rl.train_step import model_reward_step
from canaryjax.rl.trainer import _new_state
from canaryjax.rl.value_model import init_value_model, score_values

ADAPTER = AdapterSettings(rank=3, alpha=6.0, targets=("q", "down", "head"))
GRPO = GRPOSettings(
    generation_batch_size=6, train_batch_size=6, num_generations=2, max_completion_length=5, adapter=ADAPTER
)
PPO = PPOSettings(
    train_batch_size=3, grad_accumulation=1, mini_batches=1, rollout_forward_batch_size=3, max_completion_length=5,
    adapter=ADAPTER,
)  # fmt: skip


@pytest.fixture
def rounded(tiny):
    arrays = {path: x.astype(jnp.bfloat16) for path, x in parameter_arrays(tiny.model).items()}
    return Transformer(dataclasses.replace(tiny.model.config, dtype="bfloat16"), arrays)


def kinds(tree):
    """Types of the floating-point leaves."""
    return {x.dtype.name for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)}


@pytest.mark.parametrize("settings", [GRPO, PPO], ids=["grpo", "ppo"])
def test_adapters_optimiser_losses_and_metrics_are_float32(tiny, rounded, settings):
    # Taken in the base's dtype, an Adam moment or an adapter keeps 8 bits, and small updates are lost.
    recipe, keys = Recipe(settings, (tiny.eos,), 4), jax.random.split(jax.random.key(0), tiny.policies)
    scorers = jax.eval_shape(
        jax.vmap(lambda key: init_reward_model(key, rounded.config, AdapterSettings(rank=3, alpha=6.0))), keys
    )
    learned = scorers if settings is PPO else None
    state = jax.eval_shape(lambda model, learned: _new_state(recipe, model, None, learned, keys), rounded, learned)
    index = jnp.zeros((tiny.policies, settings.prompts_per_step), jnp.int32)
    step = model_reward_step(recipe)
    new, metrics, written = jax.eval_shape(step, rounded, None, scorers, state, tiny.prompts(), index, keys)
    assert kinds(state) == kinds(new) == {"float32"}
    assert kinds(metrics) == kinds(written) == {"float32"}
    assert kinds(rounded) == {"bfloat16"}


def test_rewards_and_values_are_read_in_float32(tiny, rounded):
    # 256 + 1 is 256 in bfloat16: a scalar head that summed there would give every such reward alike.
    prompts = jax.tree.map(lambda x: x[0], tiny.prompts(3))
    ids, mask = jnp.ones((3, 2, 5), jnp.int32), jnp.ones((3, 2, 5), bool)
    context = prompts.context_ids, prompts.context_mask

    def scalars(model):
        reward = init_reward_model(jax.random.key(1), model.config, AdapterSettings(rank=3, alpha=6.0))
        value = init_value_model(jax.random.key(2), model.config, ADAPTER)
        shifted = dataclasses.replace(reward, head_b=reward.head_b + 256.0)
        return (
            score_rewards(model, shifted, *context, ids, mask) - 256.0,
            score_rewards(model, reward, *context, ids, mask),
            score_values(model, value, *context, ids),
        )

    found, plain, values = jax.jit(scalars)(rounded)
    assert kinds((found, plain, values)) == {"float32"}
    assert float(jnp.abs(plain).max()) > 1e-3
    assert float(jnp.abs(found - plain).max()) < 1e-4
    assert not values.any()  # a new value model says 0, whatever the policy adapts


def test_a_value_model_takes_the_projections_and_no_head(tiny):
    for targets, wanted in ((("q", "head"), {"q"}), (("head",), {"q", "k", "v", "o", "gate", "up", "down"})):
        settings = dataclasses.replace(ADAPTER, targets=targets)
        adapter = jax.eval_shape(
            lambda key, own=settings: init_value_model(key, tiny.model.config, own), jax.random.key(0)
        ).adapter
        assert adapter.head is None
        assert set(adapter.layers) == wanted
