"""Policy training end to end on a tiny model."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.errors import UserError
from canaryjax.inference.logprobs import score_shared
from canaryjax.models.lora import Adapter, LoraPair
from canaryjax.rl.reward_model import init_reward_model
from canaryjax.rl.rollout import Recipe
from canaryjax.rl.settings import AdapterSettings, GRPOSettings, OptimizerSettings
from canaryjax.rl.train_step import model_reward_step, update_policies
from canaryjax.rl.trainer import _new_state, train_policies

LIKED = 7
SETTINGS = GRPOSettings(
    generation_batch_size=10,
    train_batch_size=10,
    num_generations=5,
    max_completion_length=3,
    kl_coefficient=0.04,
    adapter=AdapterSettings(rank=3, alpha=6.0),
    optimizer=OptimizerSettings(5e-4, "constant"),
)
KEYS = jax.random.split(jax.random.key(4), 3)


def with_settings(**changes):
    return dataclasses.replace(SETTINGS, **changes)


def likes_token(step, index, ids, mask):
    """Reward 1 for a completion that holds token 7."""
    return ((ids == LIKED) & mask).any(axis=-1).astype(np.float32)


def train(tiny, settings=SETTINGS, rewards=likes_token, prompts=None, keys=KEYS, **options):
    prompts = tiny.prompts() if prompts is None else prompts
    return train_policies(tiny.model, rewards, prompts, settings, keys, eos_ids=(tiny.eos,), **options)


def reward_models(tiny):
    return jax.vmap(lambda key: init_reward_model(key, tiny.model.config, SETTINGS.adapter))(KEYS)


def random_adapter(tiny, seed=8):
    fresh = _new_state(Recipe(SETTINGS, (tiny.eos,), 1), tiny.model, None, None, KEYS[:1]).params
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: x[0], fresh))
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    drawn = [0.3 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def test_the_base_stays_and_the_adapter_moves_at_beta_zero(tiny):
    # A silent no-op (gradients of a copy, a detached loss) leaves every b at 0.
    before = jax.tree.map(np.array, tiny.model)
    adapters, result = train(tiny, with_settings(kl_coefficient=0.0), prompts=tiny.prompts(6))
    assert result["steps"] == 3
    assert all(float(jnp.abs(pair.b[p]).max()) > 0 for pair in adapters.layers.values() for p in range(3))
    assert all(map(np.array_equal, jax.tree.leaves(before), jax.tree.leaves(tiny.model)))
    assert result["valid"].all()


@pytest.mark.slow
def test_reward_rises_when_a_token_is_liked(tiny):
    records = []
    settings = with_settings(
        generation_batch_size=20, train_batch_size=20, epochs=12, kl_coefficient=0.001,
        optimizer=OptimizerSettings(2e-2, "constant"),
    )  # fmt: skip
    train(tiny, settings, log=records.append)
    for policy in range(3):
        rewards = [r["reward_mean"] for r in records if r["policy"] == policy]
        assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.3  # chance: about 3/21


def test_the_divergence_is_zero_at_step_zero_and_grows(tiny):
    records = []
    train(tiny, with_settings(kl_coefficient=0.04), log=records.append)
    assert [r["kl"] for r in records if r["step"] == 0] == [0.0, 0.0, 0.0]
    assert all(r["clip_fraction"] == 0.0 for r in records)
    assert all(r["kl"] > 0 for r in records if r["step"] == 5)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_the_sampler_and_the_loss_use_one_law(tiny, temperature):
    # Several updates a rollout compare with the sampler's log-probs: another law there would give ratios that clip at
    # once. The first update starts on policy, so at a vanishing rate nothing clips and the divergence stays 0.
    records = []
    settings = with_settings(
        train_batch_size=5, updates_per_rollout=2, temperature=temperature, clip_low=1e-3, clip_high=1e-3,
        optimizer=OptimizerSettings(1e-9, "constant"),
    )  # fmt: skip
    train(tiny, settings, log=records.append)
    assert max(r["clip_fraction"] for r in records) == 0.0
    assert max(r["kl"] for r in records) < 1e-6


@pytest.mark.slow
def test_a_start_from_an_adapter_has_divergence_zero_from_that_adapter_only(tiny):
    start = random_adapter(tiny)
    for reference, zero in ((start, True), (None, False)):
        records = []
        train(tiny, log=records.append, initial_adapter=start, reference_adapter=reference)
        first = [r["kl"] for r in records if r["step"] == 0]
        # Policy and reference run as products of other shapes: log-probs differ by 1e-6, the divergence by its square.
        assert (max(first) < 1e-10) == zero


@pytest.mark.slow
def test_the_reference_does_not_drift(tiny):
    prompts = tiny.prompts()
    reference = random_adapter(tiny)
    ids = jnp.full((13, 2, 3), 5)

    def logps():
        context = (prompts.context_ids[0], prompts.context_mask[0])
        return np.array(jax.jit(score_shared)(tiny.model, reference, *context, ids, jnp.ones(ids.shape, bool)))

    before = logps()
    train(tiny, initial_adapter=reference, reference_adapter=reference)
    assert np.array_equal(before, logps())


@pytest.mark.slow
def test_policies_together_equal_policies_alone_on_stored_rollouts(tiny):
    recipe = Recipe(SETTINGS, (tiny.eos,), 5)
    update = jax.jit(functools.partial(update_policies, recipe=recipe))
    stored = []

    def keep(step, index, ids, mask):
        rewards = likes_token(step, index, ids, mask) + 0.1 * ids[..., 0]
        stored.append((index, ids, mask, rewards))
        return rewards

    together, _ = train(tiny, rewards=keep, prompts=tiny.prompts(10))
    assert len(stored) == 5
    rollouts = [_rollout(*record[1:3], tiny.eos) for record in stored]
    for policy in range(3):
        prompts = tiny.policy_slice(tiny.prompts(10), policy)
        keys = KEYS[policy : policy + 1]
        state = _new_state(recipe, tiny.model, None, None, keys)
        for rollout, (index, *_, rewards) in zip(rollouts, stored, strict=True):
            chosen = jax.tree.map(lambda x, i=index[policy]: x[:, i], prompts)
            given = jnp.asarray(rewards[policy : policy + 1])
            state, _ = update(tiny.model, None, state, chosen, tiny.policy_slice(rollout, policy), given, keys)
        assert tiny.largest_difference(state.params, tiny.policy_slice(together, policy)) < 1e-5


def _rollout(ids, mask, eos):
    from canaryjax.inference.generate import Rollout

    zeros = jnp.zeros(ids.shape, jnp.float32)
    return Rollout(jnp.asarray(ids), jnp.asarray(mask), zeros, zeros, jnp.asarray(((ids == eos) & mask).any(axis=-1)))


@pytest.mark.slow
def test_each_step_samples_anew_and_policies_differ(tiny):
    # A constant key would give the same noise to each step of one prompt; one shared key the same to each policy.
    seen = []
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[:1, :1], (3, 4, *x.shape[2:])), tiny.prompts())
    settings = with_settings(optimizer=OptimizerSettings(1e-9, "constant"))
    train(tiny, settings, lambda s, i, ids, mask: seen.append(ids) or likes_token(s, i, ids, mask), same)
    assert not np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0][0], seen[0][1])
    assert not np.array_equal(seen[0][0, 0], seen[0][0, 1])


def test_one_nan_reward_takes_its_completion_out_and_all_nan_stops_the_policy(tiny):
    records = []

    def rewards(step, index, ids, mask):
        out = likes_token(step, index, ids, mask) + 0.1 * ids[..., 1]
        out[0, 0, 0] = np.nan
        if step >= 2:
            out[2] = np.inf
        return out

    adapters, result = train(tiny, rewards=rewards, log=records.append)
    assert result["valid"].tolist() == [True, True, False]
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(adapters))
    assert [r["unusable_rewards"] for r in records if r["policy"] == 0] == [1] * 6
    # Frozen at the state after two steps, while the others went on.
    two, _ = train(tiny, rewards=rewards, prompts=None, checkpoints=(kept := tiny.kept(2)))
    assert tiny.largest_difference(tiny.policy_slice(kept.saved[2].params, 2), tiny.policy_slice(adapters, 2)) == 0
    assert tiny.largest_difference(tiny.policy_slice(kept.saved[2].params, 1), tiny.policy_slice(adapters, 1)) > 0
    assert tiny.largest_difference(two, adapters) == 0


def told(records):
    """Metrics without the seconds."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["model", "host"])
def test_resumed_equals_uninterrupted_bit_for_bit(tiny, source):
    # A counter that restarts repeats the prompts, the noise or the schedule.
    rewards = reward_models(tiny) if source == "model" else likes_token
    settings = with_settings(optimizer=OptimizerSettings(5e-4, "cosine"), adapter=AdapterSettings(3, 6.0, dropout=0.3))
    kept, alone, whole = tiny.kept(4), [], []
    unsaved, _ = train(tiny, settings, rewards, log=alone.append)
    saved, _ = train(tiny, settings, rewards, checkpoints=kept, log=whole.append)
    assert tiny.largest_difference(unsaved, saved) == 0
    assert told(whole) == told(alone)
    assert sorted(kept.saved) == [4, 6]  # every four, and the last
    before = jax.tree.map(np.array, kept.saved[4])
    rest = []
    resumed, result = train(tiny, settings, rewards, checkpoints=tiny.kept(4, kept.saved[4]), log=rest.append)
    assert tiny.largest_difference(saved, resumed) == 0
    assert told(rest) == told(whole)[4 * 3 :]  # each step once, and what was logged before a save is not logged again
    assert result["steps"] == 6
    same = map(np.array_equal, jax.tree.leaves(before), jax.tree.leaves(kept.saved[4]))
    assert all(same)  # the caller's copy is not the donated one
    again, result = train(tiny, settings, rewards, checkpoints=tiny.kept(4, kept.saved[6]), log=pytest.fail)
    assert tiny.largest_difference(saved, again) == 0
    assert result["valid"].all()


@pytest.mark.slow
def test_the_missing_eos_penalty_is_taken_once(tiny):
    records, plain = [], []
    train(tiny, log=plain.append)
    train(tiny, with_settings(missing_eos_penalty=2.0), log=records.append)
    for a, b in zip(plain[:3], records[:3], strict=True):
        assert b["reward_mean"] == pytest.approx(a["reward_mean"] - 2.0 * (1 - a["finished_fraction"]), abs=1e-5)


@pytest.mark.slow
def test_two_passes_equal_one(tiny):
    # Rewards that tell every completion apart: where a policy's groups are all alike, its gradient is rounding alone
    # (3e-8 against 0), which Adam's division turns into steps of the learning rate's size.
    def sums(step, index, ids, mask):
        return (ids * mask).sum(axis=-1).astype(np.float32)

    one, _ = train(tiny, with_settings(num_generations=5), sums)
    two, _ = train(tiny, with_settings(train_batch_size=5, grad_accumulation=2), sums)
    assert tiny.largest_difference(one, two) < 1e-5


@pytest.mark.slow
def test_one_program_serves_every_step(tiny):
    model_reward_step.__wrapped__.cache_clear()
    models, records = reward_models(tiny), []
    for _ in range(2):
        train(tiny, rewards=models, log=records.append)
    recipe = Recipe(SETTINGS, (tiny.eos,), 6)
    assert model_reward_step(recipe)._cache_size() == 1
    assert len(records) == 2 * 6 * 3
    assert {type(v) for r in records for v in r.values()} <= {str, int, float, bool}


def test_refusals(tiny):
    with pytest.raises(UserError, match="2 prompts of one step"):
        train(tiny, prompts=tiny.prompts(1))
    with pytest.raises(UserError, match="floating rewards"):
        train(tiny, rewards=lambda s, i, ids, mask: (ids == LIKED).any(axis=-1).astype(int))
    with pytest.raises(UserError, match="EOS"):
        train_policies(tiny.model, likes_token, tiny.prompts(), SETTINGS, KEYS, eos_ids=())


def test_dropping_inputs_leaves_b_and_scales_what_is_kept():
    from canaryjax.rl.dropout import drop_inputs

    adapter = Adapter(layers={"q": LoraPair(a=jnp.ones((2, 1000, 3)), b=jnp.ones((2, 3, 5)))}, scale=1.0)
    dropped = drop_inputs(adapter, jax.random.key(0), 0.2)
    a = dropped.layers["q"].a
    assert set(np.unique(a)) == {0.0, np.float32(1.25)}
    assert float((a == 0).mean()) == pytest.approx(0.2, abs=0.03)
    assert bool((a == a[..., :1]).all())  # whole rows
    assert drop_inputs(adapter, jax.random.key(0), 0.0) is adapter
    # The head's inputs are dropped as well, and change nothing in what the projections lose.
    head = LoraPair(a=jnp.ones((1009, 3)), b=jnp.ones((3, 7)))
    both = drop_inputs(Adapter(layers=adapter.layers, head=head, scale=1.0), jax.random.key(0), 0.2)
    assert float((both.head.a == 0).mean()) == pytest.approx(0.2, abs=0.04)
    assert bool((both.head.a == both.head.a[:, :1]).all())
    assert bool((both.layers["q"].a == a).all())
