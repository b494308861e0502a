"""Values are read where the next token is still unknown."""

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.inference.forward import run_context
from canaryjax.rl.reward_model import init_reward_model, score_rewards
from canaryjax.rl.settings import AdapterSettings
from canaryjax.rl.value_model import init_value_model, score_values

ADAPTER = AdapterSettings(rank=3, alpha=6.0)


def trained(tiny):
    """A reward model whose adapter is not the base."""
    model = init_reward_model(jax.random.key(3), tiny.model.config, ADAPTER)
    leaves, structure = jax.tree.flatten(model)
    keys = jax.random.split(jax.random.key(9), len(leaves))
    return jax.tree.unflatten(
        structure, [0.3 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    )


def test_a_value_is_the_head_on_the_state_before_its_token(tiny):
    # One row by itself, context and completion in one plain pass. Read one token later, a value would know its token.
    prompts, value_model = tiny.prompts(2, policies=1), trained(tiny)
    context, mask = prompts.context_ids[0], prompts.context_mask[0]
    rng = np.random.default_rng(2)
    ids = jnp.asarray(rng.integers(2, 20, (2, 3, 5)), jnp.int32)
    found = jax.jit(score_values)(tiny.model, value_model, context, mask, ids)
    for row in range(2):
        length = int(mask[row].sum())
        for sample in range(3):
            joined = jnp.concatenate([context[row, :length], ids[row, sample]])[None]
            states = run_context(tiny.model, value_model.adapter, joined)[0][0]
            expected = states[length - 1 : length + 4] @ value_model.head_w + value_model.head_b
            np.testing.assert_allclose(found[row, sample], expected, rtol=1e-5, atol=1e-5)


def test_a_value_copied_from_a_reward_model_is_its_reward_one_token_on(tiny):
    # The state behind the last token is what the reward model reads: the value of a token more, whatever it is.
    prompts, model = tiny.prompts(2, policies=1), trained(tiny)
    context, mask = prompts.context_ids[0], prompts.context_mask[0]
    ids = jnp.asarray(np.random.default_rng(4).integers(2, 20, (2, 3, 5)), jnp.int32)
    rewards = score_rewards(tiny.model, model, context, mask, ids[:, :, :4], jnp.ones((2, 3, 4), bool))
    np.testing.assert_allclose(
        score_values(tiny.model, model, context, mask, ids)[:, :, 4], rewards, rtol=1e-5, atol=1e-5
    )


def test_a_new_value_model_says_zero_and_its_head_can_learn(tiny):
    prompts = tiny.prompts(2, policies=1)
    fresh = init_value_model(jax.random.key(1), tiny.model.config, ADAPTER)
    ids = jnp.full((2, 3, 5), 4)

    def total(value_model):
        return score_values(tiny.model, value_model, prompts.context_ids[0], prompts.context_mask[0], ids).sum()

    value, gradient = jax.value_and_grad(total)(fresh)
    assert float(value) == 0.0
    assert float(jnp.abs(gradient.head_w).max()) > 0.0
