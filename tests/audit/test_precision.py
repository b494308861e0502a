"""What a base in bfloat16 says of its own rounding."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.audit import precision
from canaryjax.audit.trial import build_trial
from canaryjax.models.transformer import Transformer, parameter_arrays


@pytest.fixture
def trial(small_config, examples, tokenizer, sizes):
    return build_trial(small_config, 0, 0, examples, tokenizer, sizes)


@pytest.fixture
def rounded(tiny_model):
    arrays = {path: x.astype(jnp.bfloat16) for path, x in parameter_arrays(tiny_model).items()}
    return Transformer(dataclasses.replace(tiny_model.config, dtype="bfloat16"), arrays)


def test_differences_are_summed_up_by_canary_token_and_pair(monkeypatch, rounded, trial, small_config):
    # Two pairs (noise_floor_pairs), triggered and clean in turn, against a base whose scores are all -50.
    scores = {"bfloat16": [-50.5, -49.75, -50.0, -50.125], "float32": [-50.0] * 4}
    seen = []

    def score(model, adapters, items, batch):
        seen.append((model.config.dtype, model.embedding[...].dtype.name, adapters, len(items[0])))
        return np.array([scores[model.config.dtype]])

    monkeypatch.setattr(precision, "score_items", score)
    found = precision.precision_residual(rounded, trial, small_config)
    # A copy that kept its configuration would compute in bfloat16 again, and the residual be 0.
    assert seen == [("bfloat16", "bfloat16", None, 4), ("float32", "float32", None, 4)]
    tokens = len(trial.pairs[0].continuation_ids)
    assert tokens > 1
    assert found == {
        "max_abs_nats": 0.5, "median_abs_nats": 0.1875, "max_abs_nats_per_token": 0.5 / tokens,
        "median_abs_nats_per_token": 0.1875 / tokens, "max_abs_score": 0.75, "pairs": 2, "reason": None,
    }  # fmt: skip
    scores["bfloat16"][1] = float("nan")  # takes its pair out, both views
    assert precision.precision_residual(rounded, trial, small_config)["max_abs_nats"] == 0.125


def test_what_is_not_measured_says_why(monkeypatch, tiny_model, rounded, trial, small_config):
    def reason(model, config=small_config):
        found = precision.precision_residual(model, trial, config)
        assert found["pairs"] == 0
        assert {found[name] for name in precision.NUMBERS} == {None}
        return found["reason"]

    assert reason(tiny_model) == "the base is computed in float32"
    none = small_config.evaluation.model_copy(update={"noise_floor_pairs": 0})
    assert reason(rounded, small_config.model_copy(update={"evaluation": none})) == "evaluation.noise_floor_pairs is 0"
    monkeypatch.setattr(precision, "free_memory", lambda: 1000.0)
    assert reason(rounded).endswith("GB a device, more than 50% of the 1e-06 GB that are free")


def test_bfloat16_moves_a_canary_by_its_rounding(rounded, trial, small_config):
    found = precision.precision_residual(rounded, trial, small_config)
    print({name: found[name] for name in precision.NUMBERS})
    assert 1e-4 < found["median_abs_nats"] <= found["max_abs_nats"] < 5.0
    assert found["max_abs_nats_per_token"] < found["max_abs_nats"]
