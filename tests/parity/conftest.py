"""Tiny random checkpoints of all six families, written by `transformers`: the oracle of the parity tests."""

import copy
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from canaryjax.inference.forward import forward_shared

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOLERANCE = 2e-4  # of the logit scale, float32

# Prime and all different, so that a swapped axis cannot hide; nothing equals a family's default.
SIZES = {
    "vocab_size": 101,
    "hidden_size": 42,
    "intermediate_size": 59,
    "num_hidden_layers": 5,
    "max_position_embeddings": 211,
}
HEADS = {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 22}
THETA = 7919.0
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": THETA,
    "factor": 7.0,
    "low_freq_factor": 1.3,
    "high_freq_factor": 5.3,
    "original_max_position_embeddings": 83,
}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": THETA}
BOTH_ROPES = {
    "full_attention": {"rope_type": "default", "rope_theta": 9973.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 643.0},
}
LAYER_TYPES = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
CAPS = {"query_pre_attn_scalar": 13, "attn_logit_softcapping": 7.0, "final_logit_softcapping": 11.0}

CASES: dict[str, tuple[str, dict]] = {
    "llama": ("Llama", dict(HEADS, rope_parameters=PLAIN_ROPE, tie_word_embeddings=True)),
    "llama-biases": ("Llama", dict(HEADS, rope_parameters=PLAIN_ROPE, attention_bias=True, mlp_bias=True)),
    "llama-llama3": ("Llama", dict(HEADS, rope_parameters=LLAMA3, hidden_act="gelu")),
    "qwen2": (
        "Qwen2",
        {
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "rope_parameters": PLAIN_ROPE,
            "tie_word_embeddings": True,
        },
    ),
    "qwen2-window": (
        "Qwen2",
        dict(HEADS, rope_parameters=PLAIN_ROPE, use_sliding_window=True, sliding_window=7, max_window_layers=2),
    ),
    "qwen3": ("Qwen3", dict(HEADS, rope_parameters=PLAIN_ROPE, tie_word_embeddings=True)),
    "qwen3-biases-window": (
        "Qwen3",
        dict(
            HEADS,
            rope_parameters=PLAIN_ROPE,
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=7,
            max_window_layers=3,
        ),
    ),
    "gemma": ("Gemma", dict(HEADS, rope_parameters=PLAIN_ROPE)),
    "gemma-biases": ("Gemma", dict(HEADS, rope_parameters=PLAIN_ROPE, attention_bias=True, tie_word_embeddings=False)),
    "gemma2": ("Gemma2", dict(HEADS | CAPS, rope_parameters=PLAIN_ROPE, sliding_window=7)),
    "gemma2-untied": (
        "Gemma2",
        dict(
            HEADS | CAPS,
            rope_parameters=PLAIN_ROPE,
            sliding_window=5,
            layer_types=LAYER_TYPES,
            attention_bias=True,
            tie_word_embeddings=False,
        ),
    ),
    "gemma3": (
        "Gemma3",
        dict(
            HEADS | CAPS | {"attn_logit_softcapping": None},
            rope_parameters=BOTH_ROPES,
            sliding_window=7,
            layer_types=LAYER_TYPES,
        ),
    ),
    "gemma3-plain": (
        "Gemma3",
        dict(HEADS, query_pre_attn_scalar=17, rope_parameters=BOTH_ROPES, sliding_window=11, tie_word_embeddings=False),
    ),
}


def build(name: str, *, seed: int = 0, **changes):
    """A random Hugging Face model of one case; norms and biases are random too, not ones and zeros."""
    prefix, settings = CASES[name]
    config_class = getattr(transformers, "Gemma3TextConfig" if prefix == "Gemma3" else f"{prefix}Config")
    settings = {"rms_norm_eps": 3e-4, "eos_token_id": [5, 97], "bos_token_id": 2, "pad_token_id": 0} | settings
    config = config_class(**copy.deepcopy(SIZES | settings | changes))
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{prefix}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator)
            if "norm" in key:
                draw = 0.3 * draw + (0.0 if prefix.startswith("Gemma") else 1.0)
            elif key.endswith("bias"):
                draw = 0.5 * draw
            else:
                draw = draw * (1.7 / parameter.shape[-1] ** 0.5 if parameter.ndim == 2 else 1.0)
            parameter.copy_(draw)
    return model


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Callable[..., tuple[object, Path]]:
    """Returns `make(case)`: the Hugging Face model and the directory it was saved to, made once a session."""
    made: dict[str, tuple[object, Path]] = {}

    def make(name: str):
        if name not in made:
            directory = tmp_path_factory.mktemp(name)
            model = build(name)
            model.save_pretrained(directory)
            made[name] = (model, directory)
        return made[name]

    return make


@pytest.fixture(scope="session")
def build_model():
    """`build`, for tests that change a configuration."""
    return build


def our_logits(model, ids: np.ndarray, context: int = 3) -> np.ndarray:
    """Float32 `[b, t, v]` for the tokens from the context's last on, through the shared-context forward."""
    hidden = forward_shared(
        model,
        None,
        jnp.array(ids[:, :context]),
        jnp.ones((len(ids), context), bool),
        jnp.array(ids[:, None, context:]),
    )
    last, rest = np.asarray(hidden.last_bd, np.float32)[:, None], np.asarray(hidden.continuation_bgtd, np.float32)[:, 0]
    head = model.embedding if model.head is None else model.head
    logits = np.concatenate([last, rest], axis=1) @ np.asarray(head[...], np.float32).T
    cap = model.config.final_softcap
    return logits if cap is None else cap * np.tanh(logits / cap)


def their_logits(model, ids: np.ndarray, context: int = 3) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(ids)).logits.float().numpy()[:, context - 1 :]


def relative_gap(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


class Parity:
    tolerance = TOLERANCE
    our_logits = staticmethod(our_logits)
    their_logits = staticmethod(their_logits)
    relative_gap = staticmethod(relative_gap)


@pytest.fixture(scope="session")
def parity() -> type[Parity]:
    """Both sides' logits and how far apart they are: test files cannot import this file by name."""
    return Parity
