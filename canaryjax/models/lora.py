"""LoRA adapters: small pytrees that live outside the model (Hu et al. 2021)."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")


@struct.dataclass
class LoraPair:
    """Low-rank update of one kernel, stacked over layers.

    Attributes:
      a: float32 `[l, in, r]`, random at the start.
      b: float32 `[l, r, out]`, zero at the start, so that a new adapter is exactly the base.
    """

    a: jax.Array
    b: jax.Array


@struct.dataclass
class Adapter:
    """One policy: its low-rank updates, `W + scale * a @ b`.

    Attributes:
      layers: Projection name (one of `PROJECTIONS`) to its pair.
      scale: alpha / r, or alpha / sqrt(r) when rank-stabilised. Static: all policies of a program share it.
    """

    layers: dict[str, LoraPair]
    scale: float = struct.field(pytree_node=False, default=1.0)


def projection_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Input and output size of each adaptable kernel, as stored (`[in, out]`)."""
    d, f = config.width, config.ff_dim
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {"q": (d, q), "k": (d, kv), "v": (d, kv), "o": (q, d), "gate": (d, f), "up": (d, f), "down": (f, d)}


def init_adapter(
    key: jax.Array,
    config: ModelConfig,
    rank: int,
    alpha: float,
    targets: Iterable[str] = PROJECTIONS,
    rank_stabilised: bool = False,
) -> Adapter:
    """A new adapter that equals the base exactly: `a` uniform as in PEFT (Kaiming, a=sqrt(5)), `b` zero."""
    shapes = projection_shapes(config)
    unknown = set(targets) - set(shapes)
    if unknown:
        raise UserError(f"expected LoRA targets among {list(shapes)}, found {sorted(unknown)}; correct the list")
    layers = {}
    for index, name in enumerate(PROJECTIONS):
        if name not in targets:
            continue
        size_in, size_out = shapes[name]
        bound = size_in**-0.5
        a = jax.random.uniform(
            jax.random.fold_in(key, index), (config.num_layers, size_in, rank), jnp.float32, -bound, bound
        )
        layers[name] = LoraPair(a=a, b=jnp.zeros((config.num_layers, rank, size_out), jnp.float32))
    return Adapter(layers=layers, scale=alpha / (rank**0.5 if rank_stabilised else rank))


def concatenate_adapters(first: Adapter, second: Adapter) -> Adapter:
    """One adapter that equals `second` on top of `first`: ranks are concatenated, scales folded into `b`.

    Every projection has the full rank, zeros where only one of the two has it: a PEFT file states one rank for all.
    """
    ranks = [next(iter(x.layers.values())).a.shape[-1] for x in (first, second)]
    layers = {}
    for name in PROJECTIONS:
        pairs = [x.layers.get(name) for x in (first, second)]
        known = next((pair for pair in pairs if pair is not None), None)
        if known is None:
            continue
        num_layers, size_in, _ = known.a.shape
        size_out = known.b.shape[-1]
        a, b = [], []
        for pair, rank, scale in zip(pairs, ranks, (first.scale, second.scale), strict=True):
            a.append(jnp.zeros((num_layers, size_in, rank), jnp.float32) if pair is None else pair.a)
            b.append(jnp.zeros((num_layers, rank, size_out), jnp.float32) if pair is None else scale * pair.b)
        layers[name] = LoraPair(a=jnp.concatenate(a, axis=-1), b=jnp.concatenate(b, axis=-2))
    return Adapter(layers=layers, scale=1.0)
