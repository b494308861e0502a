"""Each configuration entry that is read changes the model as it changes Hugging Face's: none is read and forgotten."""

import json

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from canaryjax.models.transformer import parameter_shapes  # noqa: E402
from canaryjax.weights.checkpoint import load_model  # noqa: E402
from canaryjax.weights.fields import HARMLESS  # noqa: E402

SIZES = {
    "vocab_size": 103,
    "hidden_size": 48,
    "intermediate_size": 61,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 0.3,
}
SLIDING, FULL = "sliding_attention", "full_attention"
PLAIN = {"rope_type": "default", "rope_theta": 7919.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 7919.0, "factor": 7.0, "low_freq_factor": 1.3, "high_freq_factor": 5.3}
LLAMA3 |= {"original_max_position_embeddings": 83}
# Case of the shared table, then each entry with another value. Dotted names are entries of the rope object.
CHANGES: dict[str, dict] = {
    "llama-llama3": SIZES
    | {"head_dim": 26, "hidden_act": "silu", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    | {
        f"rope_parameters.{name}": {**LLAMA3, name: value}
        for name, value in {
            "rope_theta": 499.0,
            "factor": 3.0,
            "low_freq_factor": 0.7,
            "high_freq_factor": 9.1,
            "original_max_position_embeddings": 41,
        }.items()
    }
    | {"rope_parameters.rope_type": PLAIN},
    "qwen2-window": SIZES
    | {
        "head_dim": 26,
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "sliding_window": 3,
    }
    | {"max_window_layers": 4, "layer_types": [SLIDING, *[FULL] * 4]}
    | {"rope_parameters.rope_theta": {**PLAIN, "rope_theta": 499.0}},
    "qwen3-biases-window": SIZES
    | {"head_dim": 26, "hidden_act": "gelu", "tie_word_embeddings": True, "use_sliding_window": False}
    | {"sliding_window": 3, "attention_bias": False, "max_window_layers": 1, "layer_types": [SLIDING, *[FULL] * 4]}
    | {"rope_parameters.rope_theta": {**PLAIN, "rope_theta": 499.0}},
    "gemma": SIZES
    | {"head_dim": 26, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": True}
    | {"rope_parameters.rope_theta": {**PLAIN, "rope_theta": 499.0}},
    "gemma2": SIZES
    | {"head_dim": 26, "hidden_activation": "silu", "tie_word_embeddings": False, "attention_bias": True}
    | {"query_pre_attn_scalar": 5, "attn_logit_softcapping": 1.1, "final_logit_softcapping": 2.3}
    | {"sliding_window": 3, "layer_types": [SLIDING, *[FULL] * 4]}
    | {"rope_parameters.rope_theta": {**PLAIN, "rope_theta": 499.0}},
    "gemma3": SIZES
    | {"head_dim": 26, "hidden_activation": "silu", "tie_word_embeddings": False, "attention_bias": True}
    | {"query_pre_attn_scalar": 5, "final_logit_softcapping": 2.3}
    | {"sliding_window": 3, "layer_types": [SLIDING, *[FULL] * 4]}
    | {
        "rope_parameters.full_attention": {
            FULL: {**PLAIN, "rope_theta": 499.0},
            SLIDING: {**PLAIN, "rope_theta": 643.0},
        },
        "rope_parameters.sliding_attention": {
            FULL: {**PLAIN, "rope_theta": 9973.0},
            SLIDING: {**PLAIN, "rope_theta": 31.0},
        },
    },
}
# Read, and tested in tests/weights: refused unless null; read where there are no layer_types.
ELSEWHERE = {"gemma3": {"attn_logit_softcapping", "_sliding_window_pattern"}}


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    return np.random.default_rng(11).integers(0, 101, (1, 23))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "field"), [(case, field) for case, fields in CHANGES.items() for field in fields])
def test_changing_an_entry_changes_the_model_as_it_should(case, field, checkpoint, build_model, ids, tmp_path, parity):
    value = CHANGES[case][field]
    changes = {field.split(".")[0]: value}
    if field == "num_attention_heads":
        changes["num_key_value_heads"] = 3
    if field == "num_key_value_heads":
        changes["num_attention_heads"] = 6
    if field == "num_hidden_layers" and case == "gemma3":
        changes["layer_types"] = [SLIDING, FULL, SLIDING, SLIDING]
    theirs = build_model(case, **changes)
    theirs.save_pretrained(tmp_path)
    changed, original = load_model(tmp_path), load_model(checkpoint(case)[1])
    with jax.disable_jit():  # each case is another program: run it, do not compile it
        ours = parity.our_logits(changed.params, ids)
        if parameter_shapes(changed.config) == parameter_shapes(original.config):
            # Same weights (same seed), so an entry that nobody reads would leave the logits as they were.
            assert parity.relative_gap(ours, parity.our_logits(original.params, ids)) > 1e-3
    assert parity.relative_gap(ours, parity.their_logits(theirs, ids)) < parity.tolerance


@pytest.mark.parametrize("case", CHANGES)
def test_every_entry_that_is_written_is_covered_above(case, checkpoint):
    _, directory = checkpoint(case)
    written = json.loads((directory / "config.json").read_text())
    covered = {field.split(".")[0] for field in CHANGES[case]} | ELSEWHERE.get(case, set())
    left = {name for name, value in written.items() if value is not None} - covered - HARMLESS
    # False everywhere: only causal attention is implemented, and true is refused.
    assert left - {"use_bidirectional_attention"} == set()
