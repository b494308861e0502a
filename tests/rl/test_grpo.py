"""The GRPO loss, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.rl.accumulation import sum_passes
from canaryjax.rl.grpo import finish_grpo, grpo_loss, grpo_sums
from canaryjax.rl.settings import AdapterSettings, GRPOSettings

PLAIN = GRPOSettings(
    generation_batch_size=2, train_batch_size=2, num_generations=2, max_completion_length=5, kl_coefficient=0.0
)
MASK = jnp.array([[[True, True, True, True], [True, False, False, False]]])
ADVANTAGES = jnp.array([[1.0, -1.0]])


def with_settings(**changes):
    return dataclasses.replace(PLAIN, **changes)


def test_on_policy_ratio_is_one_and_its_gradient_is_that_of_the_log_prob():
    logps = jnp.array([[[-1.0, -2.0, -0.5, -0.1], [-3.0, jnp.nan, jnp.nan, jnp.nan]]])
    (loss, metrics), gradient = jax.value_and_grad(
        lambda x: grpo_loss(x, jnp.zeros_like(x), None, ADVANTAGES, MASK, PLAIN), has_aux=True
    )(logps)
    # Per sequence: -(1) and +(1), averaged over two completions. Padding may hold anything, NaN included.
    assert float(loss) == 0.0
    np.testing.assert_allclose(gradient, [[[-0.125] * 4, [0.5, 0, 0, 0]]])
    assert float(metrics["clip_fraction"]) == 0.0
    assert float(metrics["entropy"]) == pytest.approx(6.6 / 5)


@pytest.mark.parametrize(
    ("normalisation", "long", "short"),
    [
        ("sequence", -1 / 8, 1 / 2),  # 1 / (2 completions * 4 or 1 tokens)
        ("token", -1 / 5, 1 / 5),  # 5 tokens in all
        ("constant", -1 / 10, 1 / 10),  # 2 completions * 5 tokens at most
    ],
)
def test_normalisations(normalisation, long, short):
    settings = with_settings(loss_normalisation=normalisation)
    gradient = jax.grad(lambda x: grpo_loss(x, x, None, ADVANTAGES, MASK, settings)[0])(jnp.full(MASK.shape, -1.0))
    np.testing.assert_allclose(gradient, [[[long] * 4, [short, 0, 0, 0]]], rtol=1e-6)


def test_clipping_takes_the_pessimistic_side():
    # Ratios 1.5 and 0.5 with both signs; without min() the clip would also hide the two bad directions.
    logps = jnp.log(jnp.array([[[1.5], [1.5], [0.5], [0.5]]]))
    advantages = jnp.array([[1.0, -1.0, 1.0, -1.0]])
    mask = jnp.ones((1, 4, 1), bool)
    settings = with_settings(num_generations=4, generation_batch_size=4, train_batch_size=4, clip_high=0.3)
    old = jnp.zeros_like(logps)
    losses = [
        float(
            grpo_loss(logps[:, i : i + 1], old[:, :1], old[:, :1], advantages[:, i : i + 1], mask[:, :1], settings)[0]
        )
        for i in range(4)
    ]
    np.testing.assert_allclose(losses, [-1.3, 1.5, -0.5, 0.8], rtol=1e-6)
    gradient = jax.grad(lambda x: grpo_loss(x, old, old, advantages, mask, settings)[0])(logps)
    np.testing.assert_allclose(gradient[0, :, 0], [0.0, 1.5 / 4, -0.5 / 4, 0.0], rtol=1e-6)
    assert float(grpo_loss(logps, old, old, advantages, mask, settings)[1]["clip_fraction"]) == 0.5


def test_dual_clip_bounds_the_loss_of_a_bad_completion_that_became_likely():
    logps, old, mask = jnp.log(jnp.full((1, 1, 1), 10.0)), jnp.zeros((1, 1, 1)), jnp.ones((1, 1, 1), bool)
    for dual, expected in ((None, 10.0), (3.0, 3.0)):
        loss, _ = grpo_loss(logps, old, old, jnp.array([[-1.0]]), mask, with_settings(dual_clip=dual))
        assert float(loss) == pytest.approx(expected)


def test_the_penalty_has_its_coefficient_and_the_metric_is_k3():
    settings = with_settings(kl_coefficient=0.5, kl="k2", loss_normalisation="token")
    logps, ref = jnp.full(MASK.shape, -1.0), jnp.full(MASK.shape, -1.2)
    loss, metrics = grpo_loss(logps, ref, None, jnp.zeros((1, 2)), MASK, settings)
    assert float(loss) == pytest.approx(0.5 * 0.02, rel=1e-5)  # beta * 0.2^2 / 2
    assert float(metrics["kl"]) == pytest.approx(np.exp(-0.2) - 1 + 0.2, rel=1e-4)


def test_zero_advantages_give_no_policy_gradient():
    gradient = jax.grad(lambda x: grpo_loss(x, x, None, jnp.zeros((1, 2)), MASK, PLAIN)[0])(jnp.full(MASK.shape, -1.0))
    assert not gradient.any()


@pytest.mark.parametrize("normalisation", ["sequence", "token"])
def test_one_pass_of_two_rows_equals_two_passes_of_one(normalisation):
    # Lengths 2 and 8: a mean of means would weigh the short row's tokens four times as much as the batch does.
    settings = with_settings(kl_coefficient=0.1, loss_normalisation=normalisation, max_completion_length=8)
    rng = np.random.default_rng(0)
    batch = {
        "logps": jnp.asarray(-rng.random((2, 2, 8)), jnp.float32),
        "ref": jnp.asarray(-rng.random((2, 2, 8)), jnp.float32),
        "advantages": jnp.array([[1.0, -1.0], [0.3, -0.3]]),
        "mask": jnp.asarray(np.arange(8) < np.array([[[2], [2]], [[8], [8]]])),
    }

    def gradient(passes):
        def loss(shift):
            def body(b):
                logps = b["logps"] * jnp.exp(shift)
                return grpo_sums(logps, b["ref"], None, b["advantages"], b["mask"], settings)

            return finish_grpo(sum_passes(body, batch, passes))[0]

        return jax.jit(jax.grad(loss))(jnp.float32(0.2))

    whole, accumulated = gradient(1), gradient(2)
    assert abs(float(whole)) > 1e-3
    assert float(accumulated) == pytest.approx(float(whole), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_generations": 1, "train_batch_size": 2}, "num_generations"),
        ({"num_generations": 8, "train_batch_size": 12}, "multiple of 8"),
        ({"generation_batch_size": 7}, "generation_batch_size"),
        ({"temperature": 0.0}, "temperature"),
        ({"kl": "k4"}, "k3_weighted"),
        ({"kl_coefficient": float("nan")}, "kl_coefficient"),
        ({"dual_clip": 0.9}, "dual_clip"),
        ({"generation_batch_size": 4, "top_p": 0.9}, "top_p"),
        ({"updates_per_rollout": 2, "adapter": AdapterSettings(dropout=0.1)}, "dropout 0 with old log-probs"),
    ],
)
def test_settings_refuse(changes, message):
    with pytest.raises(UserError, match=message):
        with_settings(**changes)
