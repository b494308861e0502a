"""The decoder: parameters as a pytree, one block function for every way of running it.

All six families are one block with switches (`ModelConfig`), stacked over layers and run by a visible `lax.scan` in
`canaryjax.inference`. How queries meet keys is passed in as a function, so that training, prefill and decode share
every other line.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx, struct
from jax.ad_checkpoint import checkpoint_name

from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import LoraPair
from canaryjax.models.low_rank import low_rank

# attend(q [b, u, n, h], k [b, u, k, h], v [b, u, k, h]) -> (mixed values [b, u, n, h], whatever the caller collects)
Attend = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, object]]

KEPT = "kept for the backward pass"  # the name of arrays that a recomputing backward pass keeps

_ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}


class Block(nnx.Module):
    """Weights of all layers, each array stacked over a leading layer axis.

    Kernels are `[l, in, out]`, biases `[l, out]`, norm weights `[l, size]`; a part that the family lacks is None.
    """

    PARTS = (
        *("q", "k", "v", "o", "gate", "up", "down"),
        *("q_bias", "k_bias", "v_bias", "o_bias", "gate_bias", "up_bias", "down_bias"),
        *("pre_attn_norm", "post_attn_norm", "pre_mlp_norm", "post_mlp_norm", "q_norm", "k_norm"),
    )

    # For the type checker: setattr is opaque to it. Norms that the configuration lacks are None and never touched.
    q: nnx.Param
    k: nnx.Param
    v: nnx.Param
    o: nnx.Param
    gate: nnx.Param
    up: nnx.Param
    down: nnx.Param
    q_bias: nnx.Param | None
    k_bias: nnx.Param | None
    v_bias: nnx.Param | None
    o_bias: nnx.Param | None
    gate_bias: nnx.Param | None
    up_bias: nnx.Param | None
    down_bias: nnx.Param | None
    pre_attn_norm: nnx.Param
    post_attn_norm: nnx.Param
    pre_mlp_norm: nnx.Param
    post_mlp_norm: nnx.Param
    q_norm: nnx.Param
    k_norm: nnx.Param

    def __init__(self, arrays: dict[str, jax.Array]):
        for part in self.PARTS:
            setattr(self, part, nnx.Param(arrays[part]) if part in arrays else None)


class Transformer(nnx.Module):
    """A model's weights and its frozen configuration.

    Attributes:
      embedding: `[v, d]`.
      blocks: See `Block`.
      final_norm: `[d]`.
      head: `[v, d]`, or None when tied to the embedding.
      config: Static.
    """

    def __init__(self, config: ModelConfig, arrays: dict[str, jax.Array]):
        """Takes arrays by path: `embedding`, `final_norm`, `head`, and `blocks.<part>` for the block's parts."""
        self.config = config
        self.embedding = nnx.Param(arrays["embedding"])
        self.final_norm = nnx.Param(arrays["final_norm"])
        self.head = nnx.Param(arrays["head"]) if "head" in arrays else None
        self.blocks = Block({name.removeprefix("blocks."): x for name, x in arrays.items() if "blocks." in name})


@struct.dataclass
class LayerSettings:
    """What differs between layers, as arrays a scan can carry.

    Attributes:
      window: int32 `[l]`; `NO_WINDOW` where a layer attends to everything.
      local: bool `[l]`; True where the rotary angles are those of sliding-window layers.
    """

    window: jax.Array
    local: jax.Array


NO_WINDOW = 2**30


def layer_settings(config: ModelConfig) -> LayerSettings:
    """Stacks the per-layer settings of a configuration."""
    return LayerSettings(
        window=jnp.array([NO_WINDOW if w is None else w for w in config.windows], jnp.int32),
        local=jnp.array([w is not None for w in config.windows], bool),
    )


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every array `Transformer` takes, by path: the single source for loading and random weights."""
    c = config
    n, d, f = c.num_layers, c.width, c.ff_dim
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {"embedding": (c.vocab_size, d), "final_norm": (d,)}
    if not c.tied:
        shapes["head"] = (c.vocab_size, d)
    block: dict[str, tuple[int, ...]] = {
        "q": (d, q),
        "k": (d, kv),
        "v": (d, kv),
        "o": (q, d),
        "gate": (d, f),
        "up": (d, f),
        "down": (f, d),
    }
    block |= {"pre_attn_norm": (d,), "pre_mlp_norm": (d,)}
    if c.post_norms:
        block |= {"post_attn_norm": (d,), "post_mlp_norm": (d,)}
    if c.qk_norm:
        block |= {"q_norm": (c.head_dim,), "k_norm": (c.head_dim,)}
    if c.qkv_bias:
        block |= {"q_bias": (q,), "k_bias": (kv,), "v_bias": (kv,)}
    if c.o_bias:
        block |= {"o_bias": (d,)}
    if c.mlp_bias:
        block |= {"gate_bias": (f,), "up_bias": (f,), "down_bias": (d,)}
    return shapes | {f"blocks.{part}": (n, *shape) for part, shape in block.items()}


def parameter_arrays(model: Transformer) -> dict[str, jax.Array]:
    """A model's arrays by path: what `Transformer` was built from, in the order of `parameter_shapes`."""
    parts = {f"blocks.{part}": getattr(model.blocks, part) for part in Block.PARTS}
    parts |= {"embedding": model.embedding, "final_norm": model.final_norm, "head": model.head}
    return {path: parts[path][...] for path in parameter_shapes(model.config)}


def head_table(model: Transformer) -> jax.Array:
    """The output table `[v, d]`: the embedding where tied."""
    return (model.embedding if model.head is None else model.head)[...]


def init_transformer(key: jax.Array, config: ModelConfig, stddev: float = 0.02) -> Transformer:
    """Random weights of a configuration, for tests, benchmarks and pretraining: normal kernels, identity norms."""
    arrays = {}
    for index, (path, shape) in enumerate(parameter_shapes(config).items()):
        if path.endswith("norm"):
            arrays[path] = jnp.full(shape, 0.0 if config.unit_offset_norm else 1.0, config.dtype)
        elif path.endswith("_bias"):
            arrays[path] = jnp.zeros(shape, config.dtype)
        else:
            draw = jax.random.normal(jax.random.fold_in(key, index), shape, jnp.float32)
            arrays[path] = (stddev * draw).astype(config.dtype)
    return Transformer(config, arrays)


def rms_norm(x: jax.Array, weight: nnx.Param, config: ModelConfig) -> jax.Array:
    """Root-mean-square norm over the last axis in float32, returned in x's dtype (Zhang & Sennrich 2019)."""
    w = weight[...].astype(jnp.float32)
    w = 1.0 + w if config.unit_offset_norm else w
    return _normalised(x.astype(jnp.float32), w, config.norm_eps).astype(x.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _normalised(x, weight, eps):
    """`y = w x / r` with `r = sqrt(mean(x^2) + eps)`, all float32.

    Its gradient is written out, `dx = (w dy - x mean(w dy x) / r^2) / r` and `dw = sum(dy x / r)`: of the one that JAX
    derives a CPU takes several times as long. Forward-mode differentiation is therefore not to be had.
    """
    return _normalised_forward(x, weight, eps)[0]


def _normalised_forward(x, weight, eps):
    inverse = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps)
    return x * inverse * weight, (x, weight, inverse)


def _normalised_backward(eps, kept, of_y):
    x, weight, inverse = kept
    of_unit = of_y * weight
    # A product, not a sum over x * y: on a CPU XLA adds up the latter ten times slower.
    along = jnp.einsum("...d,...d->...", of_unit, x, precision="highest")[..., None] / x.shape[-1]
    of_x = inverse * (of_unit - x * inverse**2 * along)
    return of_x, jnp.einsum("...d,...d->d", of_y, x * inverse, precision="highest")


_normalised.defvjp(_normalised_forward, _normalised_backward)


def embed(model: Transformer, ids: jax.Array) -> jax.Array:
    """Token embeddings in the compute dtype: int `[...]` -> `[..., d]`. Ids must have been checked on the host."""
    config = model.config
    x = model.embedding[...][ids].astype(config.dtype)
    if config.scale_embedding:
        # Gemma was trained with this factor rounded to the compute dtype.
        x = x * jnp.asarray(config.width**0.5, config.dtype)
    return x


def rope_tables(config: ModelConfig, positions: jax.Array) -> jax.Array:
    """Cosines and sines in float32: int `[b, u]` -> `[2 kinds, 2, b, u, h/2]`; kinds are full and sliding-window."""
    exponent = jnp.arange(0, config.head_dim, 2, dtype=jnp.float32) / config.head_dim
    full = 1.0 / config.rope_theta**exponent
    local = 1.0 / config.rope_theta_local**exponent
    if config.rope_scaling is not None:
        full = _scale_llama3(full, config.rope_scaling)
    angles = positions.astype(jnp.float32)[None, ..., None] * jnp.stack([full, local])[:, None, None, :]
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)


def _scale_llama3(frequency, scaling):
    wavelength = 2.0 * jnp.pi / frequency
    ratio = scaling.original_max_position / wavelength
    ramp = (ratio - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    ramp = jnp.clip(ramp, 0.0, 1.0)
    return frequency * ((1.0 - ramp) / scaling.factor + ramp)


def apply_rope(x: jax.Array, table: jax.Array) -> jax.Array:
    """Rotates the two halves of each head: x `[b, u, n, h]`, cosines and sines `[2, b, u, h/2]` (Su et al. 2021)."""
    cos, sin = table[0][:, :, None, :], table[1][:, :, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def project(x: jax.Array, kernel: nnx.Param, bias: nnx.Param | None, lora: LoraPair | None, scale: float) -> jax.Array:
    """`x @ (W + scale * a @ b) + bias` without forming the sum; the adapter's products are in float32."""
    y = x @ kernel[...].astype(x.dtype)
    if bias is not None:
        y = y + bias[...].astype(x.dtype)
    if lora is not None:
        y = y + low_rank(x, lora.a, lora.b, scale).astype(x.dtype)
    return checkpoint_name(y, KEPT)


def _by_head(x: jax.Array, heads: int) -> jax.Array:
    """`[b, u, n * h]` -> `[b, u, n, h]`."""
    return x.reshape(*x.shape[:2], heads, -1)


def apply_block(
    block: Block,
    lora: dict[str, LoraPair],
    scale: float,
    x: jax.Array,
    rope: jax.Array,
    attend: Attend,
    config: ModelConfig,
    keep: Callable[[jax.Array], jax.Array] = lambda x: x,
) -> tuple[jax.Array, object]:
    """One layer on `x [b, u, d]`, where u runs over whatever tokens the caller laid side by side.

    Args:
      block: One layer's weights (the layer axis already sliced away by the scan).
      lora: One layer's adapter pairs by projection name; a missing name means the base kernel alone.
      scale: The adapter's scale.
      x: Residual stream in the compute dtype.
      rope: Cosines and sines `[2, b, u, h/2]` of this layer's kind.
      attend: How queries meet keys; see `Attend`.
      config: The model's configuration.
      keep: Which tokens go on: `[b, u, ...]` to fewer of the middle axis. Keys and values are still those of all.

    Returns:
      The new residual stream, and what `attend` collected.
    """
    h = rms_norm(x, block.pre_attn_norm, config)
    k = _by_head(project(h, block.k, block.k_bias, lora.get("k"), scale), config.num_kv_heads)
    v = _by_head(project(h, block.v, block.v_bias, lora.get("v"), scale), config.num_kv_heads)
    x, h = keep(x), keep(h)
    q = _by_head(project(h, block.q, block.q_bias, lora.get("q"), scale), config.num_heads)
    if config.qk_norm:
        q, k = rms_norm(q, block.q_norm, config), rms_norm(k, block.k_norm, config)
    mixed, collected = attend(apply_rope(q, jax.vmap(keep)(rope)), apply_rope(k, rope), v)
    y = project(mixed.reshape(*mixed.shape[:2], -1), block.o, block.o_bias, lora.get("o"), scale)
    if config.post_norms:
        y = rms_norm(y, block.post_attn_norm, config)
    x = x + y
    h = rms_norm(x, block.pre_mlp_norm, config)
    gate = project(h, block.gate, block.gate_bias, lora.get("gate"), scale)
    up = project(h, block.up, block.up_bias, lora.get("up"), scale)
    y = project(_ACTIVATIONS[config.activation](gate) * up, block.down, block.down_bias, lora.get("down"), scale)
    if config.post_norms:
        y = rms_norm(y, block.post_mlp_norm, config)
    return x + y, collected
