"""Configurations: Hugging Face's defaults, the places rope has lived in, and what is refused by name."""

import copy

import pytest

from canaryjax.errors import UserError
from canaryjax.weights.hf_config import DEFAULTS, read_config

ARCHITECTURE = {
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "llama": "LlamaForCausalLM",
}
# A real configuration's entries (SmolLM2-135M's), as published.
SMOL = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers.js_config": {"dtype": "q4"},
    "transformers_version": "4.42.3",
    "use_cache": True,
    "vocab_size": 49152,
}


def smol(**changes) -> dict:
    return {**copy.deepcopy(SMOL), **changes}


def test_a_published_configuration_is_read():
    config = read_config(SMOL)
    assert (config.head_dim, config.rope_theta, config.norm_eps, config.tied) == (64, 100000.0, 1e-5, True)
    assert (config.attn_scale, config.windows, config.qkv_bias) == (0.125, (None,) * 30, False)


@pytest.mark.parametrize("family", ARCHITECTURE)
def test_absent_entries_mean_what_hugging_face_says(family):
    transformers = pytest.importorskip("transformers")
    name = "Gemma3TextConfig" if family == "gemma3" else ARCHITECTURE[family].replace("ForCausalLM", "Config")
    theirs = getattr(transformers, name)()
    ours = read_config({"architectures": [ARCHITECTURE[family]]})
    rope = theirs.rope_parameters
    theta = rope["full_attention"]["rope_theta"] if family == "gemma3" else rope["rope_theta"]
    local = rope["sliding_attention"]["rope_theta"] if family == "gemma3" else theta
    heads, kinds = theirs.num_attention_heads, getattr(theirs, "layer_types", ["full_attention"] * ours.num_layers)
    window = getattr(theirs, "sliding_window", None)
    assert ours.num_layers == theirs.num_hidden_layers
    assert (ours.vocab_size, ours.width, ours.ff_dim) == (
        theirs.vocab_size,
        theirs.hidden_size,
        theirs.intermediate_size,
    )
    assert (ours.num_heads, ours.num_kv_heads) == (heads, theirs.num_key_value_heads)
    assert ours.head_dim == getattr(theirs, "head_dim", theirs.hidden_size // heads)
    assert (ours.norm_eps, ours.tied) == (theirs.rms_norm_eps, theirs.tie_word_embeddings)
    assert (ours.rope_theta, ours.rope_theta_local) == (theta, local)
    assert ours.o_bias == getattr(theirs, "attention_bias", False)
    assert ours.windows == tuple(window if kind == "sliding_attention" else None for kind in kinds)
    assert ours.attn_scale == pytest.approx(getattr(theirs, "query_pre_attn_scalar", ours.head_dim) ** -0.5)
    assert ours.attn_softcap == getattr(theirs, "attn_logit_softcapping", None)
    assert ours.final_softcap == getattr(theirs, "final_logit_softcapping", None)


@pytest.mark.parametrize(
    "place",
    [
        {"rope_theta": 499.0},
        {"rope_parameters": {"rope_theta": 499.0, "rope_type": "default"}, "rope_theta": None},
        {"rope_parameters": {"rope_theta": 499.0}, "rope_theta": 499},
        {"rope_scaling": {"rope_theta": 499.0, "type": "default"}, "rope_theta": None},
    ],
)
def test_theta_is_read_from_every_place(place):
    assert read_config(smol(**place)).rope_theta == 499.0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rope_parameters": {"rope_theta": 499.0}}, "rope_theta"),  # two places that disagree
        ({"rope_theta": None}, "rope_theta"),
        ({"rotary_base": 499.0}, "rotary_base"),  # a place that is not known
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "linear"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1]}}, "longrope"),
        ({"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "default", "factor": 2.0}}, "factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}, "high_freq_factor"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"attention_multiplier": 0.5}, "attention_multiplier"),
        ({"num_key_value_head": 1}, "num_key_value_heads"),  # the nearest name is offered
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "x.y"}}, "remote code"),
        ({"hidden_act": "relu"}, "relu"),
        ({"hidden_act": 3}, "hidden_act"),
        ({"sliding_window": 128}, "sliding_window"),  # Mistral's; Llama has none
        ({"num_key_value_heads": 4}, "num_key_value_heads"),
        ({"head_dim": 63}, "head_dim"),
        ({"hidden_size": "576"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"architectures": ["MistralForCausalLM"]}, "MistralForCausalLM"),
        ({"architectures": []}, "architectures"),
    ],
)
def test_what_would_change_the_arithmetic_is_refused_by_name(change, named):
    with pytest.raises(UserError, match=named):
        read_config(smol(**change))


def test_llama3_scaling_falls_back_to_the_longest_position():
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    assert read_config(smol(rope_scaling=scaling)).rope_scaling.original_max_position == 8192
    scaling["original_max_position_embeddings"] = 512
    assert read_config(smol(rope_scaling=scaling)).rope_scaling.original_max_position == 512


GEMMA3 = {"architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 5, "sliding_window": 7}


def test_gemma3_windows_from_a_pattern_or_a_list():
    assert read_config({**GEMMA3, "sliding_window_pattern": 2}).windows == (7, None, 7, None, 7)
    assert read_config({**GEMMA3, "_sliding_window_pattern": 3}).windows == (7, 7, None, 7, 7)
    kinds = ["full_attention"] * 4 + ["sliding_attention"]
    assert read_config({**GEMMA3, "layer_types": kinds}).windows == (None, None, None, None, 7)
    with pytest.raises(UserError, match="layer_types"):
        read_config({**GEMMA3, "layer_types": kinds[1:]})
    with pytest.raises(UserError, match="layer_types"):
        read_config({**GEMMA3, "layer_types": [*kinds[1:], "chunked_attention"]})
    with pytest.raises(UserError, match="sliding_window"):
        read_config({**GEMMA3, "sliding_window": None})


def test_gemma3_thetas_from_old_and_new_places():
    old = read_config({**GEMMA3, "rope_theta": 499.0, "rope_local_base_freq": 31.0})
    rope = {"full_attention": {"rope_theta": 499.0}, "sliding_attention": {"rope_theta": 31.0}}
    new = read_config({**GEMMA3, "rope_parameters": rope})
    assert (old.rope_theta, old.rope_theta_local) == (new.rope_theta, new.rope_theta_local) == (499.0, 31.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "linear"),  # Gemma 3 4B and larger
        ({"rope_parameters": {"rope_theta": 499.0}}, "rope_parameters"),  # Hugging Face would not see it there
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"hidden_activation": "silu", "hidden_act": "gelu_pytorch_tanh"}, "one activation"),
        ({"final_logit_softcapping": 0}, "final_logit_softcapping"),
    ],
)
def test_gemma3_refusals(change, named):
    with pytest.raises(UserError, match=named):
        read_config({**GEMMA3, **change})


def test_gemma1_said_gelu_and_meant_tanh():
    old = {"architectures": ["GemmaForCausalLM"], "hidden_act": "gelu", "hidden_activation": None}
    assert read_config(old).activation == "gelu_tanh"


def test_composite_configuration_reads_its_text_half():
    text = {name: value for name, value in GEMMA3.items() if name != "architectures"}
    whole = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text, "vision_config": {"depth": 3}}
    assert read_config(whole).windows == read_config(GEMMA3).windows
    with pytest.raises(UserError, match="novelty"):
        read_config({**whole, "novelty": 1})


@pytest.mark.parametrize("family", ARCHITECTURE)
def test_wrong_values_are_never_another_error(family):
    names = [
        *DEFAULTS[family],
        "architectures",
        "rope_scaling",
        "rope_parameters",
        "layer_types",
        "hidden_act",
        "head_dim",
    ]
    for name in names:
        for value in (
            None,
            "x",
            -1,
            0,
            1.5,
            True,
            [],
            [1],
            {},
            {"a": 1},
            {"rope_type": 3},
            float("inf"),
            10**30,
            10**400,
            [["x"]],
            [{}],
            10**7,  # layers: their windows alone would be a list of so many
        ):
            raw = {"architectures": [ARCHITECTURE[family]], "num_hidden_layers": 3, name: value}
            try:
                read_config(raw)
            except UserError as error:
                assert "expected" in str(error)  # noqa: PT017 - most values are refused, some are lawful


def test_more_layers_than_any_model_has_are_refused_before_they_are_named():
    # Ten million of them took all memory: a window each here, nine names each where the tensors are looked up.
    for wrong in (10_001, 10**7, 2**31 - 1):
        with pytest.raises(UserError, match=f"num_hidden_layers to be at most 10000 in .*, found {wrong}"):
            read_config(smol(num_hidden_layers=wrong))
    assert read_config(smol(num_hidden_layers=31)).num_layers == 31


@pytest.mark.parametrize("named", [[["x"]], [{}], [None], [1], ["a", "b"], [], "LlamaForCausalLM", None])
def test_an_architecture_is_one_name(named):
    with pytest.raises(UserError, match=r"architectures in .* to name one of"):
        read_config(smol(architectures=named))
