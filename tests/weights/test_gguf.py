"""GGUF: tiny files of every architecture, written by the `gguf` package as llama.cpp's converter would."""

import dataclasses
import sys

import jax.numpy as jnp
import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from canaryjax.errors import UserError  # noqa: E402
from canaryjax.models.config import Llama3RopeScaling  # noqa: E402
from canaryjax.models.transformer import parameter_arrays  # noqa: E402
from canaryjax.weights.checkpoint import load_model, load_tokenizer  # noqa: E402

NAMES = {
    **{"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up"},
    **{"down": "ffn_down", "pre_attn_norm": "attn_norm", "pre_mlp_norm": "ffn_norm"},
    **{"post_attn_norm": "post_attention_norm", "post_mlp_norm": "post_ffw_norm"},
    **{"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"},
}
FAMILIES = ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3"]


def pairs(x: np.ndarray, heads: int) -> np.ndarray:
    """Row 2i of a head from row i, row 2i + 1 from row i + h/2: written out, not reshaped as the product does."""
    rows = x.reshape(heads, -1, *x.shape[1:])
    half = rows.shape[1] // 2
    out = np.empty_like(rows)
    for i in range(half):
        out[:, 2 * i], out[:, 2 * i + 1] = rows[:, i], rows[:, half + i]
    return out.reshape(x.shape)


def write(file, model, *, extra=(), skip=(), kinds=None):
    """Writes a model's arrays and metadata; `extra` are (method, key, value), `skip` names of metadata left out."""
    config, arrays = model.config, {k: np.asarray(x, np.float32) for k, x in parameter_arrays(model).items()}
    writer = gguf.GGUFWriter(file, config.family)
    numbers = {
        "block_count": config.num_layers,
        "context_length": 99,
        "embedding_length": config.width,
        "feed_forward_length": config.ff_dim,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
    }
    if config.family in ("gemma2", "gemma3"):
        numbers["attention.sliding_window"] = 5
    for name, value in numbers.items():
        if name not in skip:
            writer.add_uint32(f"{config.family}.{name}", value)
    writer.add_float32(f"{config.family}.attention.layer_norm_rms_epsilon", config.norm_eps)
    writer.add_float32(f"{config.family}.rope.freq_base", config.rope_theta)
    if config.family == "gemma2":
        writer.add_float32("gemma2.attn_logit_softcapping", config.attn_softcap)
        writer.add_float32("gemma2.final_logit_softcapping", config.final_softcap)
    for method, key, value in extra:
        getattr(writer, method)(key, value)
    shift = 1.0 if config.unit_offset_norm else 0.0
    tensors = {"token_embd.weight": arrays["embedding"], "output_norm.weight": arrays["final_norm"] + shift}
    if not config.tied:
        tensors["output.weight"] = arrays["head"]
    for path, stacked in arrays.items():
        if "blocks." not in path:
            continue
        part = path.removeprefix("blocks.")
        name = NAMES[part.removesuffix("_bias")]
        for layer, x in enumerate(stacked):
            x = x + shift if part.endswith("norm") else x.T
            if config.family == "llama" and part.split("_")[0] in ("q", "k") and "norm" not in part:
                x = pairs(x, config.num_heads if part[0] == "q" else config.num_kv_heads)
            tensors[f"blk.{layer}.{name}.{'bias' if part.endswith('bias') else 'weight'}"] = np.ascontiguousarray(x)
    for name, x in (kinds or (lambda t: t))(tensors).items():
        writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def as_gguf_can_say(config):
    """The configuration without what the format does not hold (attention scales, other activations)."""
    changes = {"attn_scale": config.head_dim**-0.5, "activation": "gelu_tanh" if "gemma" in config.family else "silu"}
    if config.family == "qwen2":
        changes["windows"] = (None, None, None)
    if config.family == "gemma3":
        changes |= {"windows": (5, 5, 5), "rope_theta_local": 10000.0}  # the sixth layer would be full
    if config.family == "llama":
        changes["rope_scaling"] = None
    return dataclasses.replace(config, **changes)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_architecture_loads_exactly(family, tools, tmp_path):
    config = as_gguf_can_say(tools.configs[family])
    model = tools.random_model(config)
    loaded = load_model(write(tmp_path / "m.gguf", model))
    assert loaded.config == config
    assert load_tokenizer(tmp_path / "m.gguf") == (loaded.tokenizer, config.vocab_size)
    ours, theirs = parameter_arrays(loaded.params), parameter_arrays(model)
    for path in theirs:
        # Norms went through +1 and -1 in float32, which rounds; all else is bit for bit.
        tolerance = 2e-7 if path.endswith("norm") and config.unit_offset_norm else 0.0
        np.testing.assert_allclose(ours[path], theirs[path], atol=tolerance, rtol=0, err_msg=path)


def test_llama3_factors_are_recovered(tools, tmp_path):
    scaling = Llama3RopeScaling(8.0, 1.0, 4.0, 8192)
    config = as_gguf_can_say(dataclasses.replace(tools.configs["llama"], head_dim=64, rope_theta=500000.0))
    config = dataclasses.replace(config, rope_theta_local=500000.0, rope_scaling=scaling, attn_scale=0.125)
    # The converter's own formula: a divisor for each frequency.
    divisors = []
    for frequency in 1.0 / 500000.0 ** (np.arange(0, 64, 2) / 64):
        wavelength = 2 * np.pi / frequency
        if wavelength < 8192 / 4:
            divisors.append(1.0)
        elif wavelength > 8192 / 1:
            divisors.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / 8 + smooth))
    assert len(set(divisors)) > 3  # the ramp is not empty

    def add(tensors):
        return {**tensors, "rope_freqs.weight": np.array(divisors, np.float32)}

    assert load_model(write(tmp_path / "m.gguf", tools.random_model(config), kinds=add)).config == config


def test_other_rope_factors_are_refused(tools, tmp_path):
    config = as_gguf_can_say(tools.configs["llama"])

    def add(tensors):
        return {**tensors, "rope_freqs.weight": np.array([1.0, 3.0, 2.0, 5.0, 4.0], np.float32)}

    with pytest.raises(UserError, match="rope factors"):
        load_model(write(tmp_path / "m.gguf", tools.random_model(config), kinds=add))


def test_quantised_tensors_equal_the_packages_own(tools, tmp_path):
    config = as_gguf_can_say(dataclasses.replace(tools.configs["qwen3"], width=32, ff_dim=64))
    model = tools.random_model(config)
    file = tmp_path / "m.gguf"
    kind = gguf.GGMLQuantizationType.Q8_0
    embedding = np.asarray(model.embedding[...])
    packed = gguf.quantize(embedding, kind)

    def quantise(tensors):
        return {**tensors, "token_embd.weight": tensors["token_embd.weight"].astype(np.float16)}

    loaded = load_model(write(file, model, kinds=quantise))
    np.testing.assert_array_equal(loaded.params.embedding[...], embedding.astype(np.float16).astype(np.float32))
    # Joined rows, as the loader reads them, dequantise to what single rows do.
    joined = gguf.dequantize(packed.reshape(1, -1), kind).reshape(embedding.shape)
    np.testing.assert_array_equal(joined, gguf.dequantize(packed, kind))


def test_bfloat16_norms_are_shifted_before_they_are_rounded(tools, tmp_path):
    config = as_gguf_can_say(tools.configs["gemma"])
    model = tools.random_model(config)
    loaded = load_model(write(tmp_path / "m.gguf", model), dtype="bfloat16")
    stored = np.asarray(model.final_norm[...], np.float32) + np.float32(1.0)
    expected = jnp.asarray(stored - np.float32(1.0)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(loaded.params.final_norm[...].astype(jnp.float32), expected.astype(jnp.float32))


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (("add_string", "llama.rope.scaling.type", "linear"), "rope.scaling.type"),
        (("add_string", "llama.rope.scaling.type", "yarn"), "yarn"),
        (("add_uint32", "llama.rope.dimension_count", 8), "rope.dimension_count"),
        (("add_uint32", "llama.expert_count", 8), "expert_count"),
        (("add_uint32", "llama.attention.sliding_window", 8), "sliding_window"),
        (("add_bool", "llama.attention.causal", False), "causal"),
        (("add_uint16", "split.count", 2), "part of 2"),
        (("add_string", "split.count", "two"), "part of two"),
        (("add_string", "tokenizer.ggml.eos_token_id", "end"), "eos_token_id to be a token's id, found 'end'"),
        (("add_float32", "tokenizer.ggml.bos_token_id", 1.5), "bos_token_id to be a token's id"),
        (("add_float32", "llama.rope.freq_base_swa", 1.0), "freq_base_swa"),
    ],
)
def test_metadata_that_changes_the_arithmetic_is_refused(extra, named, tools, tmp_path):
    config = as_gguf_can_say(tools.configs["llama"])
    with pytest.raises(UserError, match=named):
        load_model(write(tmp_path / "m.gguf", tools.random_model(config), extra=[extra]))


def test_missing_metadata_and_tensors_are_named(tools, tmp_path):
    model = tools.random_model(as_gguf_can_say(tools.configs["llama"]))
    with pytest.raises(UserError, match="feed_forward_length"):
        load_model(write(tmp_path / "a.gguf", model, skip=["feed_forward_length"]))

    def drop(tensors):
        return {name: x for name, x in tensors.items() if name != "blk.1.ffn_up.weight"}

    with pytest.raises(UserError, match=r"blk\.1\.ffn_up\.weight"):
        load_model(write(tmp_path / "b.gguf", model, kinds=drop))


@pytest.mark.parametrize(
    ("name", "method", "value"),
    [
        ("block_count", "add_uint32", 10**7),  # a window each, and nine names each, took all memory
        ("feed_forward_length", "add_float32", 2.5),
        ("attention.head_count", "add_float32", float("nan")),
        ("embedding_length", "add_float32", float("inf")),
        ("attention.sliding_window_pattern", "add_uint32", 0),
        ("attention.sliding_window_pattern", "add_string", "x"),
    ],
)
def test_sizes_that_no_model_has_are_refused(name, method, value, tools, tmp_path):
    model = tools.random_model(as_gguf_can_say(tools.configs["gemma2"]))
    with pytest.raises(UserError, match=name):
        load_model(write(tmp_path / "m.gguf", model, skip=[name], extra=[(method, f"gemma2.{name}", value)]))


def test_a_directory_by_that_name_is_called_one(tmp_path):
    (tmp_path / "m.gguf").mkdir()
    with pytest.raises(UserError, match="expected a GGUF file, found a directory at"):
        load_model(tmp_path / "m.gguf")


def test_unknown_architecture_is_named(tools, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UserError, match="mamba"):
        load_model(tmp_path / "m.gguf")


def test_truncation_is_an_error(tools, tmp_path):
    file = write(tmp_path / "m.gguf", tools.random_model(as_gguf_can_say(tools.configs["llama"])))
    data = file.read_bytes()
    for size in [0, 3, 4, 20, *np.random.default_rng(0).integers(24, len(data) - 64, 25)]:
        file.write_bytes(data[:size])
        with pytest.raises(UserError, match=r"m\.gguf"):
            load_model(file)


def test_absent_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[gguf\]'"):
        load_model(tmp_path / "m.gguf")


def test_unknown_tokenizer_takes_ids_only_and_says_so(tools, tmp_path):
    model = tools.random_model(as_gguf_can_say(tools.configs["llama"]))
    extra = [
        ("add_string", "tokenizer.ggml.model", "rwkv"),
        ("add_array", "tokenizer.ggml.tokens", [f"t{i}" for i in range(37)]),
        ("add_array", "tokenizer.ggml.token_type", [1] * 37),
        ("add_uint32", "tokenizer.ggml.bos_token_id", 1),
        ("add_uint32", "tokenizer.ggml.eos_token_id", 2),
        ("add_uint32", "tokenizer.ggml.eot_token_id", 3),
    ]
    with pytest.warns(UserWarning, match="rwkv"):
        loaded = load_model(write(tmp_path / "m.gguf", model, extra=extra))
    assert (loaded.tokenizer, loaded.bos_id, loaded.eos_ids) == (None, 1, (2, 3))
