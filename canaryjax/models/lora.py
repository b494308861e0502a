"""LoRA adapters: small pytrees that live outside the model (Hu et al. 2021)."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
HEAD = "head"
TARGETS = (*PROJECTIONS, HEAD)


@struct.dataclass
class LoraPair:
    """Low-rank update of one kernel; of a projection stacked over layers, of the output head by itself.

    Attributes:
      a: float32 `[l, in, r]`, of the head `[in, r]`; random at the start.
      b: float32 `[l, r, out]`, of the head `[r, out]`; zero at the start, so that a new adapter is exactly the base.
    """

    a: jax.Array
    b: jax.Array


@struct.dataclass
class Adapter:
    """One policy: its low-rank updates, `W + scale * a @ b`.

    Attributes:
      layers: Projection name (one of `PROJECTIONS`) to its pair.
      head: Of the output head, None where it is the base's. On a tied model it is the head's alone: the embedding that
        tokens are looked up in stays as it is.
      scale: alpha / r, or alpha / sqrt(r) when rank-stabilised. Static: all policies of a program share it.
    """

    layers: dict[str, LoraPair]
    head: LoraPair | None = None
    scale: float = struct.field(pytree_node=False, default=1.0)


def projection_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Input and output size of each adaptable kernel, as stored (`[in, out]`)."""
    d, f = config.width, config.ff_dim
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {"q": (d, q), "k": (d, kv), "v": (d, kv), "o": (q, d), "gate": (d, f), "up": (d, f), "down": (f, d)}


def target_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Input and output size of everything an adapter can update: the projections of each layer, and the head."""
    return projection_shapes(config) | {HEAD: (config.width, config.vocab_size)}


def adapter_pairs(adapter: Adapter) -> dict[str, LoraPair]:
    """An adapter's pairs by target, the head's last."""
    return adapter.layers if adapter.head is None else adapter.layers | {HEAD: adapter.head}


def from_pairs(pairs: dict[str, LoraPair], scale: float) -> Adapter:
    """The inverse of `adapter_pairs`."""
    return Adapter(layers={name: pairs[name] for name in pairs if name != HEAD}, head=pairs.get(HEAD), scale=scale)


def init_adapter(
    key: jax.Array,
    config: ModelConfig,
    rank: int,
    alpha: float,
    targets: Iterable[str] = PROJECTIONS,
    rank_stabilised: bool = False,
) -> Adapter:
    """A new adapter that equals the base exactly: `a` uniform as in PEFT (Kaiming, a=sqrt(5)), `b` zero."""
    shapes = target_shapes(config)
    unknown = set(targets) - set(shapes)
    if unknown:
        raise UserError(f"expected LoRA targets among {list(shapes)}, found {sorted(unknown)}; correct the list")
    pairs = {}
    for index, name in enumerate(TARGETS):
        if name not in targets:
            continue
        size_in, size_out = shapes[name]
        stack = () if name == HEAD else (config.num_layers,)
        bound = size_in**-0.5
        a = jax.random.uniform(jax.random.fold_in(key, index), (*stack, size_in, rank), jnp.float32, -bound, bound)
        pairs[name] = LoraPair(a=a, b=jnp.zeros((*stack, rank, size_out), jnp.float32))
    return from_pairs(pairs, alpha / (rank**0.5 if rank_stabilised else rank))


def check_adapter(adapter: Any, config: ModelConfig) -> None:
    """Raises UserError, naming the first array that does not fit, unless an adapter is None or belongs to the model."""
    if adapter is None:
        return
    if not isinstance(adapter, Adapter):
        raise UserError(f"expected an adapter from load_adapter, or None, found {adapter!r:.80}; load it first")
    shapes = target_shapes(config)
    for name in adapter.layers:
        if name not in PROJECTIONS:
            raise UserError(
                f"expected projections among {list(PROJECTIONS)} in the adapter, found {name!r}; load it again"
            )
    for name, pair in adapter_pairs(adapter).items():
        size_in, size_out = shapes[name]
        stack = () if name == HEAD else (config.num_layers,)
        rank = pair.a.shape[-1] if pair.a.ndim else 0
        for part, array, shape in (("a", pair.a, (*stack, size_in, rank)), ("b", pair.b, (*stack, rank, size_out))):
            if array.shape != shape:
                raise UserError(
                    f"expected {name}.{part} of the adapter of shape {shape}, found {array.shape}; use the base it was "
                    "trained on, and one policy at a time"
                )


def concatenate_adapters(first: Adapter, second: Adapter) -> Adapter:
    """One adapter that equals `second` on top of `first`: ranks are concatenated, scales folded into `b`.

    Every target has the full rank, zeros where only one of the two has it: a PEFT file states one rank for all.
    """
    own = [adapter_pairs(x) for x in (first, second)]
    ranks = [next(iter(pairs.values())).a.shape[-1] for pairs in own]
    joined = {}
    for name in TARGETS:
        known = next((pairs[name] for pairs in own if name in pairs), None)
        if known is None:
            continue
        *of_a, _ = known.a.shape
        *stack, _, size_out = known.b.shape
        a, b = [], []
        for pairs, rank, scale in zip(own, ranks, (first.scale, second.scale), strict=True):
            pair = pairs.get(name)
            a.append(jnp.zeros((*of_a, rank), jnp.float32) if pair is None else pair.a)
            b.append(jnp.zeros((*stack, rank, size_out), jnp.float32) if pair is None else scale * pair.b)
        joined[name] = LoraPair(a=jnp.concatenate(a, axis=-1), b=jnp.concatenate(b, axis=-2))
    return from_pairs(joined, 1.0)
