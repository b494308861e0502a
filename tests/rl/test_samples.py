"""What steps wrote is shown now and then, and a few of them are profiled; training does not notice."""

import gzip
import json

import jax
import numpy as np
import pytest

from canaryjax.rl.reward_model import init_reward_model
from canaryjax.rl.samples import Sampling
from canaryjax.rl.settings import AdapterSettings, GRPOSettings, OptimizerSettings
from canaryjax.rl.step_profile import StepProfile
from canaryjax.rl.train_step import model_reward_step
from canaryjax.rl.trainer import train_policies

SETTINGS = GRPOSettings(
    generation_batch_size=10,
    train_batch_size=10,
    num_generations=5,
    max_completion_length=3,
    missing_eos_penalty=2.0,
    adapter=AdapterSettings(rank=3, alpha=6.0),
    optimizer=OptimizerSettings(5e-4, "constant"),
)
KEYS = jax.random.split(jax.random.key(4), 3)


def train(tiny, rewards, **options):
    return train_policies(tiny.model, rewards, tiny.prompts(), SETTINGS, KEYS, eos_ids=(tiny.eos,), **options)


class Host:
    """Rewards that tell completions apart, and all that was seen for them."""

    def __init__(self):
        self.seen = []

    def __call__(self, step, index, ids, mask):
        rewards = (ids * mask).sum(axis=-1).astype(np.float32)
        self.seen.append((index, ids, mask, rewards))
        return rewards


def test_samples_are_the_completions_that_the_step_was_made_of(tiny):
    shown, told, host = [], [], Host()
    adapters, _ = train(tiny, host, sampling=Sampling(shown.append, 4), log=told.append)
    assert [sample.step for sample in shown] == [0, 4, 5]  # the first, every fourth, and the last of six
    for sample in shown:
        index, ids, mask, rewards = host.seen[sample.step]
        np.testing.assert_array_equal(sample.prompts_p, index[:, 0])
        np.testing.assert_array_equal(sample.ids_pgt, ids[:, 0])
        np.testing.assert_array_equal(sample.mask_pgt, mask[:, 0])
        np.testing.assert_array_equal(sample.rewards_pg, rewards[:, 0])  # the penalty is not in them
    assert sample.ids_pgt.shape == (3, 5, 3)
    unwatched, plain = [], Host()
    same, _ = train(tiny, plain, log=unwatched.append)
    assert tiny.largest_difference(same, adapters) == 0
    assert [row["loss"] for row in unwatched] == [row["loss"] for row in told]


@pytest.mark.slow
def test_with_reward_models_samples_come_out_of_the_one_program(tiny):
    models = jax.vmap(lambda key: init_reward_model(key, tiny.model.config, SETTINGS.adapter))(KEYS)
    model_reward_step.__wrapped__.cache_clear()
    shown, told = [], []
    adapters, _ = train(tiny, models, sampling=Sampling(shown.append, 1), log=told.append)
    same, _ = train(tiny, models)
    assert tiny.largest_difference(same, adapters) == 0
    assert [sample.step for sample in shown] == list(range(6))
    from canaryjax.rl.rollout import Recipe

    assert model_reward_step(Recipe(SETTINGS, (tiny.eos,), 6))._cache_size() == 1
    for sample in shown:
        assert sample.mask_pgt[..., 0].all()
        assert np.isfinite(sample.rewards_pg).all()
        assert not (sample.ids_pgt * ~sample.mask_pgt).any()
    # Prompts of a step: two, of which the first is shown; its rewards lie in the spread that the metrics tell.
    assert len({sample.rewards_pg.tobytes() for sample in shown}) == 6


@pytest.mark.slow
def test_three_warm_steps_are_traced_and_compilation_is_not(tiny, tmp_path):
    said = []
    profile = StepProfile(tmp_path / "trace", said.append)
    for _ in range(2):  # the second training is not traced again
        adapters, _ = train(tiny, Host(), profile=profile)
    assert profile.written
    (file,) = (tmp_path / "trace").glob("plugins/profile/*/perfetto_trace.json.gz")
    names = [event.get("name", "") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]]
    assert sum(name.startswith("policy step") for name in names) == 3
    assert not [name for name in names if "compile_or_get_cached" in name]  # JAX's own frame around a compilation
    assert len(said) == 1
    assert said[0].startswith(f"profile of policy steps 2 to 4 in {tmp_path / 'trace'}: ")
    same, _ = train(tiny, Host())
    assert tiny.largest_difference(same, adapters) == 0


def test_too_few_steps_leave_no_trace(tmp_path):
    profile = StepProfile(tmp_path / "trace", pytest.fail)
    assert list(profile.follow(range(4, 6), pytest.fail)) == [4, 5]
    assert not profile.written
    assert not (tmp_path / "trace").exists()


def test_a_training_that_breaks_off_ends_its_trace(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda *_, **__: calls.append("start"))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: calls.append("stop"))
    steps = StepProfile(tmp_path, pytest.fail).follow(range(7), lambda: calls.append("wait"))
    assert [next(steps) for _ in range(4)] == [0, 1, 2, 3]
    steps.close()
    assert calls == ["wait", "start", "stop"]
    calls.clear()
    assert list(StepProfile(tmp_path, calls.append).follow(range(7), lambda: calls.append("wait"))) == list(range(7))
    assert calls[:4] == ["wait", "start", "wait", "stop"]  # steps are dispatched ahead: their work is waited for
    assert calls[4].startswith("profile of policy steps 2 to 4 in ")


@pytest.mark.parametrize("broken", ["start_trace", "stop_trace"])
def test_a_trace_that_cannot_be_written_costs_no_step(tmp_path, monkeypatch, broken):
    def refuse(*_, **__):
        raise RuntimeError("no space left\non device")  # what JAX raises is no OSError

    monkeypatch.setattr(jax.profiler, "start_trace", lambda *_, **__: None)
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: None)
    monkeypatch.setattr(jax.profiler, broken, refuse)
    said = []
    assert list(StepProfile(tmp_path, said.append).follow(range(7), lambda: None)) == list(range(7))
    assert said == ["no profile was written (RuntimeError: no space left on device); training goes on"]
