"""Where every array lies on a mesh: one table from a parameter's path to its split, and the rest follows from it.

The base is split over `model` and whole along the other axes; policies (adapters, reward models, optimiser states) are
split over `policy`, and their low-rank pairs over `model` beside the kernel they update; rows of a batch are split over
`policy` and `data`. Arrays are put in place before a program runs; the compiler splits the program after them and adds
what devices must tell each other (GSPMD, Xu et al. 2021).
"""

import math
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.lora import HEAD, TARGETS
from canaryjax.models.mesh import axis_size, mesh_of
from canaryjax.models.transformer import Transformer, parameter_arrays, parameter_shapes

Tree = TypeVar("Tree")

# A projection into heads or features is cut by output, the one that leads back by input, so that a layer needs two sums
# over the axis (Shoeybi et al. 2019); tables are cut by vocabulary. Layers, the leading axis of blocks, stay together.
SPLITS: dict[str, P] = {
    "embedding": P("model"),
    "head": P("model"),
    "final_norm": P(),
    "blocks.q": P(None, None, "model"),
    "blocks.k": P(None, None, "model"),
    "blocks.v": P(None, None, "model"),
    "blocks.o": P(None, "model", None),
    "blocks.gate": P(None, None, "model"),
    "blocks.up": P(None, None, "model"),
    "blocks.down": P(None, "model", None),
    "blocks.q_bias": P(None, "model"),
    "blocks.k_bias": P(None, "model"),
    "blocks.v_bias": P(None, "model"),
    "blocks.o_bias": P(),
    "blocks.gate_bias": P(None, "model"),
    "blocks.up_bias": P(None, "model"),
    "blocks.down_bias": P(),
    "blocks.pre_attn_norm": P(),
    "blocks.post_attn_norm": P(),
    "blocks.pre_mlp_norm": P(),
    "blocks.post_mlp_norm": P(),
    "blocks.q_norm": P(),
    "blocks.k_norm": P(),
}


def _pieces(path: str, config: ModelConfig) -> int:
    """Into how many equal parts a split array can be cut: a head is never cut through."""
    match path.removeprefix("blocks.").removesuffix("_bias"):
        case "q" | "o":
            return config.num_heads
        case "k" | "v":
            return config.num_kv_heads
        case "gate" | "up" | "down":
            return config.ff_dim
        case _:
            return config.vocab_size


def parameter_split(path: str, config: ModelConfig, parts: int) -> P:
    """How a base's array is split over a `model` axis of `parts` devices: as in `SPLITS`, or whole on each.

    Whole where the parts would not be equal: key and value heads fewer than devices, an odd vocabulary. It costs memory
    and repeated work, never the result.
    """
    split = SPLITS[path]
    return split if _pieces(path, config) % parts == 0 else P()


def base_share(config: ModelConfig, parts: int) -> float:
    """The part of a base's numbers that each device of a `model` axis of `parts` devices holds: 1 / parts or more."""
    sizes = {path: math.prod(shape) for path, shape in parameter_shapes(config).items()}
    held = sum(size / (parts if parameter_split(path, config, parts) else 1) for path, size in sizes.items())
    return held / sum(sizes.values())


def place_base(model: Transformer, mesh: Mesh) -> Transformer:
    """The base laid on a mesh; whatever is trained or scored with it from now on is split over the mesh's devices."""
    parts = mesh.shape["model"]
    arrays = {
        path: _put(x, _sharding(mesh, *parameter_split(path, model.config, parts)))
        for path, x in parameter_arrays(model).items()
    }
    return Transformer(model.config, arrays)


def place_policies(model: Transformer, tree: Tree) -> Tree:
    """Puts what each policy owns beside its part of the base: policies, their states, rows, keys.

    A single policy is whole along the mesh's `policy` axis, whose devices then all do the same.

    Args:
      model: The base; without a mesh the tree is returned as it is.
      tree: Arrays with policies in front, NumPy or JAX; low-rank pairs are known by their place in the tree.

    Raises:
      UserError: Policies that the mesh's `policy` axis does not divide.
    """
    mesh = mesh_of(model)
    if mesh is None:
        return tree
    parts = mesh.shape["policy"]

    def place(path, x):
        policies = x.shape[0]
        if policies > 1 and policies % parts:
            raise UserError(
                f"expected a number of policies that the mesh's policy axis of {parts} divides; found {policies}; "
                "train more together, or make the axis smaller"
            )
        _, *split = policy_split(path, model.config, mesh.shape["model"])
        return _put(x, _sharding(mesh, None if policies == 1 else "policy", *split))

    return jax.tree_util.tree_map_with_path(place, tree)


def policy_split(path: tuple, config: ModelConfig, parts: int) -> P:
    """How an array with policies in front is split, by its path in a tree, over a `model` axis of `parts` devices.

    A low-rank pair's `a [p, l, in, r]` follows its kernel's inputs and `b [p, l, r, out]` its outputs; of the head,
    which has no layers, `b [p, r, v]` is cut by vocabulary as the table is.
    """
    projection, name = ("", "", *(str(getattr(key, "key", getattr(key, "name", ""))) for key in path))[-2:]
    if projection not in TARGETS or name not in ("a", "b"):
        return P("policy")
    stack: tuple[None, ...] = (None,)
    if projection == HEAD:
        of_out, of_in, stack = (*parameter_split(HEAD, config, parts), None)[0], None, ()
    else:
        _, of_in, of_out = (*parameter_split(f"blocks.{projection}", config, parts), None, None, None)[:3]
    axes = ("policy", *stack, of_in) if name == "a" else ("policy", *stack, None, of_out)
    return P(*axes) if axes[-1] else P("policy")


def place_rows(model: Transformer, tree: Tree) -> Tree:
    """Puts arrays `[p, b, ...]` of rows in place: policies over `policy`, rows over `data`.

    Rows of a single policy, or of the base itself, are split over both axes. Rows that do not divide are whole on each
    device, which costs repeated work and nothing else.

    Args:
      model: The base; without a mesh the tree is returned as it is.
      tree: NumPy or JAX arrays.
    """
    mesh = mesh_of(model)
    if mesh is None:
        return tree

    def place(x):
        p, b = x.shape[:2]
        if p == 1 < mesh.shape["policy"]:
            whole = b % (mesh.shape["policy"] * mesh.shape["data"]) != 0
            return _put(x, _sharding(mesh, None, None if whole else ("policy", "data")))
        policies = None if p % mesh.shape["policy"] else "policy"
        return _put(x, _sharding(mesh, policies, None if b % mesh.shape["data"] else "data"))

    return jax.tree.map(place, tree)


def _sharding(mesh: Mesh, *axes: str | tuple[str, ...] | None) -> NamedSharding:
    """Written as the compiler writes the shardings of results, so that a step's output fits the next step's program."""
    kept: list[str | tuple[str, ...] | None] = []
    for axis in axes:
        names = () if axis is None else (axis,) if isinstance(axis, str) else axis
        names = tuple(name for name in names if mesh.shape[name] > 1)
        kept.append(names[0] if len(names) == 1 else names or None)
    while kept and kept[-1] is None:
        kept.pop()
    return NamedSharding(mesh, P(*kept))


def _put(x: jax.Array | np.ndarray, sharding: NamedSharding) -> jax.Array:
    """`jax.device_put`, also of what every process holds whole onto devices of several processes, keys included."""
    if sharding.is_fully_addressable or (isinstance(x, jax.Array) and not x.is_fully_addressable):
        return jax.device_put(x, sharding)
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(x), sharding), impl=jax.random.key_impl(x))
    whole = np.asarray(x)
    return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])


def split_rows(model: Transformer, tree: Tree) -> Tree:
    """Inside a program: rows of each array `[b, ...]` over `data`, whatever was cut or joined before.

    For the parts of a batch that is gone through in several passes: cutting it would leave each part with few devices.
    """
    parts = axis_size(model, "data")
    if parts == 1:
        return tree
    over = NamedSharding(jax.typeof(model.final_norm[...]).sharding.mesh, P("data"))
    return jax.tree.map(lambda x: x if x.shape[0] % parts else jax.lax.with_sharding_constraint(x, over), tree)


def vocabulary_shards(model: Transformer) -> int:
    """Parts in which the head's rows lie on different devices; inside a program too."""
    parts = axis_size(model, "model")
    return parts if model.config.vocab_size % parts == 0 else 1


def fetch(tree: Tree) -> Tree:
    """A tree's arrays as NumPy arrays on every process, also where other processes hold a part of them."""

    def whole(x):
        remote = isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated)
        return multihost_utils.process_allgather(x, tiled=True) if remote else x

    return jax.device_get(jax.tree.map(whole, tree))
