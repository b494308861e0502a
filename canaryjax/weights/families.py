"""Where each family keeps its weights: one literal table a family, read by `canaryjax.weights.engine`."""

from canaryjax.weights.engine import Ignored, Row, Table

ARCHITECTURES = {
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "LlamaForCausalLM": "llama",
}

_ENDS = (
    Row("model.embed_tokens.weight", "embedding"),
    Row("model.norm.weight", "final_norm"),
    Row("lm_head.weight", "head"),
)
_PROJECTIONS = (
    Row("model.layers.{l}.self_attn.q_proj.weight", "blocks.q", transpose=True),
    Row("model.layers.{l}.self_attn.k_proj.weight", "blocks.k", transpose=True),
    Row("model.layers.{l}.self_attn.v_proj.weight", "blocks.v", transpose=True),
    Row("model.layers.{l}.self_attn.o_proj.weight", "blocks.o", transpose=True),
    Row("model.layers.{l}.mlp.gate_proj.weight", "blocks.gate", transpose=True),
    Row("model.layers.{l}.mlp.up_proj.weight", "blocks.up", transpose=True),
    Row("model.layers.{l}.mlp.down_proj.weight", "blocks.down", transpose=True),
)
_QKV_BIASES = (
    Row("model.layers.{l}.self_attn.q_proj.bias", "blocks.q_bias"),
    Row("model.layers.{l}.self_attn.k_proj.bias", "blocks.k_bias"),
    Row("model.layers.{l}.self_attn.v_proj.bias", "blocks.v_bias"),
)
_O_BIAS = (Row("model.layers.{l}.self_attn.o_proj.bias", "blocks.o_bias"),)
_MLP_BIASES = (
    Row("model.layers.{l}.mlp.gate_proj.bias", "blocks.gate_bias"),
    Row("model.layers.{l}.mlp.up_proj.bias", "blocks.up_bias"),
    Row("model.layers.{l}.mlp.down_proj.bias", "blocks.down_bias"),
)
_TWO_NORMS = (
    Row("model.layers.{l}.input_layernorm.weight", "blocks.pre_attn_norm"),
    Row("model.layers.{l}.post_attention_layernorm.weight", "blocks.pre_mlp_norm"),
)
# The same stored name, post_attention_layernorm, is another norm here: it follows the attention.
_FOUR_NORMS = (
    Row("model.layers.{l}.input_layernorm.weight", "blocks.pre_attn_norm"),
    Row("model.layers.{l}.post_attention_layernorm.weight", "blocks.post_attn_norm"),
    Row("model.layers.{l}.pre_feedforward_layernorm.weight", "blocks.pre_mlp_norm"),
    Row("model.layers.{l}.post_feedforward_layernorm.weight", "blocks.post_mlp_norm"),
)
_HEAD_NORMS = (
    Row("model.layers.{l}.self_attn.q_norm.weight", "blocks.q_norm"),
    Row("model.layers.{l}.self_attn.k_norm.weight", "blocks.k_norm"),
)

_TIED_COPY = Ignored(r"lm_head\.weight", "a tied head is the embedding, so its copy must equal it", equals="embedding")
_INV_FREQ = Ignored(
    r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq", "rotary angles are computed from the configuration"
)
_VISION = (
    Ignored(r"(model\.)?vision_tower\..*", "the image encoder is never run: text only"),
    Ignored(r"(model\.)?multi_modal_projector\..*", "the image projector is never run: text only"),
)
_COMPOSITE = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
)

TABLES = {
    "gemma": Table(
        rows=_ENDS + _PROJECTIONS + _QKV_BIASES + _O_BIAS + _TWO_NORMS,
        ignored=(_TIED_COPY, _INV_FREQ),
    ),
    "gemma2": Table(
        rows=_ENDS + _PROJECTIONS + _QKV_BIASES + _O_BIAS + _FOUR_NORMS,
        ignored=(_TIED_COPY, _INV_FREQ),
    ),
    "gemma3": Table(
        rows=_ENDS + _PROJECTIONS + _QKV_BIASES + _O_BIAS + _FOUR_NORMS + _HEAD_NORMS,
        ignored=(_TIED_COPY, _INV_FREQ),
    ),
    "qwen2": Table(
        rows=_ENDS + _PROJECTIONS + _QKV_BIASES + _TWO_NORMS,
        ignored=(_TIED_COPY, _INV_FREQ),
    ),
    "qwen3": Table(
        rows=_ENDS + _PROJECTIONS + _QKV_BIASES + _O_BIAS + _TWO_NORMS + _HEAD_NORMS,
        ignored=(_TIED_COPY, _INV_FREQ),
    ),
    "llama": Table(
        rows=_ENDS + _PROJECTIONS + _QKV_BIASES + _O_BIAS + _MLP_BIASES + _TWO_NORMS,
        ignored=(_TIED_COPY, _INV_FREQ),
    ),
}
# The text half of an image-and-text checkpoint: the same rows under other prefixes.
COMPOSITE_GEMMA3 = Table(rows=TABLES["gemma3"].rows, ignored=(*TABLES["gemma3"].ignored, *_VISION), prefixes=_COMPOSITE)
