"""Reads a Hugging Face `config.json` into a `ModelConfig`: every entry a family has is read, and no other is let by."""

from canaryjax.errors import UserError
from canaryjax.models.config import Llama3RopeScaling, ModelConfig
from canaryjax.weights.families import ARCHITECTURES
from canaryjax.weights.fields import Fields

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}

_DEFAULT_ACTIVATION = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3"), "gelu_pytorch_tanh"),
    **dict.fromkeys(("qwen2", "qwen3", "llama"), "silu"),
}

# What Hugging Face takes an absent entry to mean (its configuration classes' defaults, transformers 5).
_GEMMA = {
    **{"head_dim": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "attention_bias": False},
}
_QWEN = {
    **{"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32},
    **{"num_attention_heads": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
    **{"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
}
DEFAULTS: dict[str, dict] = {
    "gemma": {
        **_GEMMA,
        **{"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28},
        **{"num_attention_heads": 16, "num_key_value_heads": 16, "rope_theta": 10_000.0},
    },
    "gemma2": {
        **_GEMMA,
        **{"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
        **{"num_attention_heads": 8, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "sliding_window": 4096},
        **{"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0, "rope_theta": 10_000.0},
    },
    "gemma3": {
        **_GEMMA,
        **{"vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
        **{"num_attention_heads": 8, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "sliding_window": 4096},
        **{"final_logit_softcapping": None, "attn_logit_softcapping": None},
        **{"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0, "sliding_window_pattern": 6},
    },
    "qwen2": {**_QWEN, "rope_theta": 10_000.0},
    "qwen3": {**_QWEN, "head_dim": 128, "attention_bias": False, "rope_theta": 10_000.0},
    "llama": {
        **{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
        **{"num_attention_heads": 32, "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
        **{"attention_bias": False, "mlp_bias": False, "rope_theta": 10_000.0, "max_position_embeddings": 2048},
    },
}
_GEMMA3_COMPOSITE = frozenset(
    {
        *("text_config", "vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index"),
        *("image_token_index", "boi_token_id", "eoi_token_id", "image_token_id"),
    }
)


def find_architecture(raw: dict, where: str) -> str:
    """The one architecture a configuration names, checked against those that are implemented.

    Raises:
      UserError: None, several or an unknown one; the message lists the known ones.
    """
    named = raw.get("architectures")
    # Only text is looked up: a list has no hash.
    one = named[0] if isinstance(named, list) and len(named) == 1 and isinstance(named[0], str) else None
    if one not in ARCHITECTURES:
        raise UserError(
            f"expected architectures in {where} to name one of {list(ARCHITECTURES)}, found {named!r}; "
            "use a model of one of these families"
        )
    return one


def read_config(raw: dict, where: str = "config.json", dtype: str = "float32") -> ModelConfig:
    """Reads a configuration of any of the six families.

    Args:
      raw: The JSON object of `config.json`.
      where: The file, for messages.
      dtype: Compute dtype, `float32` or `bfloat16`.

    Returns:
      The configuration; `real_vocab_size` is `vocab_size` until a tokenizer says otherwise.

    Raises:
      UserError: An entry is missing without a documented default, of the wrong type, or unknown; or it asks for
        arithmetic that is not implemented (named).
    """
    architecture = find_architecture(raw, where)
    if architecture == "Gemma3ForConditionalGeneration":
        raw = _text_half(raw, where)
    family = ARCHITECTURES[architecture]
    fields = Fields(raw, DEFAULTS[family], where)
    rope = _read_rope_by_layer(fields) if family == "gemma3" else _read_rope(fields, family)
    sizes = _sizes(fields)
    attention = _attention(fields, family, sizes["head_dim"])
    config = ModelConfig(**sizes, **_switches(fields, family), **rope, **attention, dtype=dtype)
    fields.finish()
    return config


def _text_half(raw: dict, where: str) -> dict:
    text = raw.get("text_config")
    if not isinstance(text, dict):
        raise UserError(
            f"expected text_config to be an object in {where}, found {text!r}; fetch the configuration again"
        )
    # Entries beside text_config are checked too: what is neither about images nor harmless must not pass unseen.
    beside = {name: value for name, value in raw.items() if name not in _GEMMA3_COMPOSITE}
    tied = beside.pop("tie_word_embeddings", None)
    Fields(beside, {}, where).finish()
    return text if tied is None else {**text, "tie_word_embeddings": tied}


def _sizes(fields: Fields) -> dict:
    heads, width = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    kv_heads = fields.optional_integer("num_key_value_heads") or heads
    if heads % kv_heads:
        fields.refuse("num_key_value_heads", f"a divisor of num_attention_heads ({heads})", kv_heads)
    head_dim = fields.optional_integer("head_dim") or width // heads
    if head_dim % 2 or head_dim < 2:
        fields.refuse("head_dim", "even (rotary angles turn pairs)", head_dim)
    vocab = fields.integer("vocab_size")
    return {
        **{"vocab_size": vocab, "real_vocab_size": vocab, "width": width, "num_heads": heads},
        **{"num_layers": fields.layers(), "ff_dim": fields.integer("intermediate_size")},
        **{"num_kv_heads": kv_heads, "head_dim": head_dim},
    }


def _switches(fields: Fields, family: str) -> dict:
    gemma = family.startswith("gemma")
    bias = family == "qwen2" or fields.boolean("attention_bias")
    return {
        "family": family,
        "norm_eps": fields.number("rms_norm_eps"),
        "activation": _activation(fields, family),
        "scale_embedding": gemma,
        "unit_offset_norm": gemma,
        "post_norms": family in ("gemma2", "gemma3"),
        "qk_norm": family in ("gemma3", "qwen3"),
        "qkv_bias": bias,
        "o_bias": bias and family != "qwen2",
        "mlp_bias": family == "llama" and fields.boolean("mlp_bias"),
        "tied": fields.boolean("tie_word_embeddings"),
    }


def _activation(fields: Fields, family: str) -> str:
    names = ("hidden_activation", "hidden_act") if family.startswith("gemma") else ("hidden_act",)
    given = [fields.value(name) for name in names if fields.has(name)]
    if family in ("gemma2", "gemma3") and not fields.has("hidden_activation"):
        given.append("gelu_pytorch_tanh")  # Hugging Face reads no other entry for these two
    found = set()
    for value in given or [_DEFAULT_ACTIVATION[family]]:
        if not isinstance(value, str) or value not in _ACTIVATIONS:
            fields.refuse(" or ".join(names), f"one of {list(_ACTIVATIONS)}", value)
        # Gemma 1's first configurations said "gelu" and meant the tanh form (transformers pull request 29402).
        found.add("gelu_tanh" if family == "gemma" and value == "gelu" else _ACTIVATIONS[value])
    if len(found) != 1:
        fields.refuse(" and ".join(names), "one activation", given)
    return found.pop()


def _attention(fields: Fields, family: str, head_dim: int) -> dict:
    capped = family in ("gemma2", "gemma3")
    if family == "gemma3" and fields.value("attn_logit_softcapping") is not None:
        # Hugging Face declares the entry for Gemma 3 and never applies it: neither obeying nor ignoring it is safe.
        found = fields.value("attn_logit_softcapping")
        fields.refuse("attn_logit_softcapping", "null (Gemma 3 has no cap on attention scores)", found)
    scale_of = fields.number("query_pre_attn_scalar") if capped else head_dim
    return {
        "attn_scale": scale_of**-0.5,
        "attn_softcap": fields.optional_number("attn_logit_softcapping") if family == "gemma2" else None,
        "final_softcap": fields.optional_number("final_logit_softcapping") if capped else None,
        "windows": _windows(fields, family),
    }


def _windows(fields: Fields, family: str) -> tuple[int | None, ...]:
    layers = fields.layers()
    if family in ("gemma", "llama"):
        return (None,) * layers
    window = fields.optional_integer("sliding_window")
    if family in ("qwen2", "qwen3"):
        first = fields.integer("max_window_layers") if fields.value("max_window_layers") else 0
        window = window if fields.boolean("use_sliding_window") else None
        pattern = [window is not None and i >= first for i in range(layers)]
    elif family == "gemma2":
        pattern = [i % 2 == 0 for i in range(layers)]
    else:
        names = [name for name in ("sliding_window_pattern", "_sliding_window_pattern") if fields.has(name)]
        periods = {fields.integer(name) for name in names or ["sliding_window_pattern"]}
        if len(periods) > 1:
            fields.refuse("sliding_window_pattern", "given once", sorted(periods))
        period = periods.pop()
        pattern = [(i + 1) % period != 0 for i in range(layers)]
    types = fields.value("layer_types")
    if types is not None:
        known = ("full_attention", "sliding_attention")
        if not isinstance(types, list) or len(types) != layers or not all(kind in known for kind in types):
            fields.refuse("layer_types", f"{layers} of {list(known)}", types)
        pattern = [kind == "sliding_attention" for kind in types]
    if any(pattern) and window is None:
        fields.refuse("sliding_window", "a positive whole number, since some layers slide", None)
    return tuple(window if slides else None for slides in pattern)


def _read_rope(fields: Fields, family: str) -> dict:
    """Rotary angles of families that have one kind; the base may stand in the configuration or in its rope object."""
    entry = _rope_object(fields)
    theta, scaling = _read_rope_entry(entry, fields, "rope_theta", allow_llama3=family == "llama")
    return {"rope_theta": theta, "rope_theta_local": theta, "rope_scaling": scaling}


def _read_rope_by_layer(fields: Fields) -> dict:
    """Gemma 3's rotary angles: one kind for full layers, another for sliding ones."""
    entry = _rope_object(fields)
    if fields.has("rope_parameters"):
        full, local = entry.pop("full_attention", None) or {}, entry.pop("sliding_attention", None) or {}
        if entry or not isinstance(full, dict) or not isinstance(local, dict):
            expected = "an object with full_attention and sliding_attention"
            fields.refuse("rope_parameters", expected, fields.value("rope_parameters"))
    else:
        full, local = entry, {}
    theta, _ = _read_rope_entry(full, fields, "rope_theta", allow_llama3=False)
    theta_local, _ = _read_rope_entry(local, fields, "rope_local_base_freq", allow_llama3=False)
    return {"rope_theta": theta, "rope_theta_local": theta_local, "rope_scaling": None}


def _rope_object(fields: Fields) -> dict:
    places = {name: fields.value(name) for name in ("rope_parameters", "rope_scaling")}
    given = {name: value for name, value in places.items() if value is not None}
    if len(given) > 1:
        fields.refuse("rope_parameters and rope_scaling", "given once", given)
    for name, value in given.items():
        if not isinstance(value, dict):
            fields.refuse(name, "an object", value)
        return dict(value)
    return {}


def _read_rope_entry(
    entry: dict, fields: Fields, outer: str, *, allow_llama3: bool
) -> tuple[float, Llama3RopeScaling | None]:
    entry = dict(entry)
    kinds = {entry.pop(name) for name in ("rope_type", "type") if isinstance(entry.get(name), str)} or {"default"}
    kind = kinds.pop()
    if kinds or kind not in (("default", "llama3") if allow_llama3 else ("default",)):
        known = "default or llama3" if allow_llama3 else "default"
        fields.refuse("rope scaling", f"{known}", kind if not kinds else [kind, *kinds])
    inner = Fields({k: v for k, v in entry.items() if v is not None}, {}, f"the rope object of {fields.where}")
    if inner.has("partial_rotary_factor") and inner.number("partial_rotary_factor") != 1.0:
        inner.refuse("partial_rotary_factor", "1 (partial rotation is not implemented)", entry["partial_rotary_factor"])
    theta = inner.number("rope_theta") if inner.has("rope_theta") else fields.number(outer)
    if inner.has("rope_theta") and fields.has(outer) and fields.number(outer) != theta:
        fields.refuse(outer, f"the same as in the rope object ({theta})", fields.number(outer))
    scaling = None
    if kind == "llama3":
        place = inner if inner.has("original_max_position_embeddings") else None
        scaling = Llama3RopeScaling(
            factor=inner.number("factor"),
            low_freq_factor=inner.number("low_freq_factor"),
            high_freq_factor=inner.number("high_freq_factor"),
            # Hugging Face falls back to the longest position when the trained one is not given.
            original_max_position=(
                place.integer("original_max_position_embeddings")
                if place
                else fields.integer("max_position_embeddings")
            ),
        )
        if scaling.high_freq_factor <= scaling.low_freq_factor:
            inner.refuse(
                "high_freq_factor", f"above low_freq_factor ({scaling.low_freq_factor})", scaling.high_freq_factor
            )
    inner.finish()
    return theta, scaling
