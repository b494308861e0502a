import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.embedded.pretrain.batch import Shape
from canaryjax.embedded.pretrain.training import (
    Cycle,
    Phase,
    Recipe,
    base_config,
    causal_hidden,
    init_arrays,
    next_token_loss,
    pretrain,
)
from canaryjax.inference.forward import forward_shared
from canaryjax.models.transformer import Transformer, parameter_shapes

CONFIG = base_config(640, 623)


@pytest.fixture(scope="module")
def fresh():
    return Transformer(CONFIG, init_arrays(Recipe(seed=3), CONFIG))


def test_the_model_stays_small():
    # 4 bytes each: under 6 MB
    assert sum(np.prod(shape) for shape in parameter_shapes(CONFIG).values()) < 1_000_000


def test_packed_rows_see_what_the_shared_forward_sees(fresh):
    # The training loss of the first phase must be the model that is audited, not a second transformer.
    ids = np.random.default_rng(0).integers(3, 623, (2, 13)).astype(np.int32)
    alone = causal_hidden(fresh, jnp.asarray(ids))
    shared = forward_shared(fresh, None, ids[:, :5], np.ones((2, 5), bool), ids[:, None, 5:])
    np.testing.assert_allclose(alone[:, 5:], shared.continuation_bgtd[:, 0], atol=2e-5)


def test_the_planted_circuit_copies_before_any_training(fresh):
    # Random tokens, twice: in the second half the token after the earlier occurrence stands out. Without the planted
    # heads both halves cost the same.
    half = np.random.default_rng(1).integers(100, 600, (4, 31))
    ids = np.concatenate([half, half], axis=1)
    logits = causal_hidden(fresh, jnp.asarray(ids)) @ fresh.embedding[...].T
    losses = -np.take_along_axis(np.asarray(jax.nn.log_softmax(logits))[:, :-1], ids[:, 1:, None], -1)[..., 0]
    assert losses[:, 31:].mean() < losses[:, :30].mean() - 0.3


def test_losses_weigh_tokens_by_kind(fresh):
    ids = np.random.default_rng(2).integers(3, 623, (1, 6)).astype(np.int32)
    # The first token has no predictor, so its kind must not count.
    loss, sums = next_token_loss(fresh, jnp.asarray(ids), np.array([[5, 1, 2, 3, 0, 4]], np.int8))
    np.testing.assert_array_equal(sums[1], [1, 1, 1, 1, 1, 0])
    # Weights of padding, text, answer, closed answer, echo: 0, 0.03, 1, 0.5, 1.
    by_hand = np.dot([0.0, 0.03, 1.0, 0.5, 1.0, 1.0], np.asarray(sums[0])) / 2.53
    assert float(loss) == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.slow
def test_all_phases_train_and_repeat():
    first = (Phase("short", 12, Shape(4, 48)), Phase("full", 5, Shape(2, 96)))
    second = (Phase("conditional", 3, Shape(2, 96)),)
    rates = {"kernel_rate": 3e-3, "other_rate": 1.5e-3, "warmup": 2, "decay_share": 0.45}
    recipe = Recipe(cycles=(Cycle(first, **rates), Cycle(second, **rates)))
    kinds = [recipe.phase_of(step).kind for step in (0, 11, 12, 16, 17, 19)]
    assert kinds == ["short", "short", "full", "full", "conditional", "conditional"]
    seen: list[dict[str, float]] = []
    models = [pretrain(recipe, lambda step, metrics, arrays: seen.append(metrics), every=5) for _ in range(2)]
    for a, b in zip(*map(jax.tree.leaves, models), strict=True):
        np.testing.assert_array_equal(a, b)
    # Four reports a run (steps 5, 10, 15, 20); the text loss falls within the first ten steps.
    assert len(seen) == 8
    assert seen[1]["text"] < seen[0]["text"]
