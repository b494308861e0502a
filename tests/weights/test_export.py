"""Loading inverts saving for every family, and nothing is ever overwritten."""

import dataclasses
import json

import pytest

from canaryjax.errors import UserError
from canaryjax.weights.checkpoint import load_model
from canaryjax.weights.export import save_model

FAMILIES = ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3"]


@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip_is_exact(family, tools, tmp_path):
    config = tools.configs[family]
    model = tools.random_model(config)
    save_model(model, tmp_path / "out", bos_id=1, eos_ids=[2])
    loaded = load_model(tmp_path / "out")
    # Random norms and biases: two parts under each other's name would differ.
    assert tools.same_arrays(loaded.params, model)
    assert _close(loaded.config, config)


def _close(left, right) -> bool:
    """Equal in every field; the attention scale goes through its inverse square, which rounds."""
    scales = left.attn_scale, right.attn_scale
    return abs(scales[0] - scales[1]) < 1e-12 and dataclasses.replace(left, attn_scale=right.attn_scale) == right


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_bfloat16_round_trip_is_exact(family, tools, tmp_path):
    model = tools.random_model(dataclasses.replace(tools.configs[family], dtype="bfloat16"))
    save_model(model, tmp_path / "out")
    assert tools.same_arrays(load_model(tmp_path / "out", dtype="bfloat16").params, model)


@pytest.mark.parametrize("lacking", ["qkv_bias", "o_bias"])
def test_biases_that_no_configuration_names_are_refused(lacking, tools, tmp_path):
    # As a GGUF file may hold them: `attention_bias` says all four or none, and the directory would not load.
    model = tools.random_model(dataclasses.replace(tools.configs["llama"], **{lacking: False}))
    with pytest.raises(UserError, match="biases on all four projections"):
        save_model(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_in_use_is_refused(tools, tmp_path):
    model = tools.random_model(tools.configs["llama"])
    save_model(model, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match="in use"):  # also when it is the very directory the weights came from
        save_model(load_model(tmp_path / "out").params, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before


def test_a_failed_save_leaves_nothing(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(json, "dumps", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(UserError, match="found: disk full; free some") as caught:
        save_model(tools.random_model(tools.configs["llama"]), tmp_path / "out")
    assert isinstance(caught.value.__cause__, OSError)  # which a run takes to say how it goes on
    assert list(tmp_path.iterdir()) == []
