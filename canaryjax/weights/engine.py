"""One strict engine that applies a table of rules to stored tensors, and inverts it to write them again."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from canaryjax.errors import UserError
from canaryjax.models.config import ModelConfig
from canaryjax.models.transformer import parameter_shapes
from canaryjax.weights.stored import StoredTensor

LAYER = "{l}"
COMPUTE_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True)
class Row:
    """How one stored tensor becomes one of ours.

    Attributes:
      key: Its stored name; `{l}` stands for the layer's number.
      path: Its path in `parameter_shapes`; for a `{l}` row, the stored tensor is one layer of it.
      transpose: Stored `[out, in]`, ours `[in, out]`.
      interleaved: `q` or `k` when the rows of each head are stored as rotary pairs (GGUF llama), else None.
      offset: Added on loading (GGUF stores Gemma's norm weights plus one, so -1).
    """

    key: str
    path: str
    transpose: bool = False
    interleaved: str | None = None
    offset: float = 0.0


@dataclass(frozen=True)
class Ignored:
    """Stored tensors that carry nothing the model needs.

    Attributes:
      pattern: Regular expression on the whole stored name.
      reason: Why leaving it out changes nothing.
      equals: Path of ours that the tensor must equal, or None.
    """

    pattern: str
    reason: str
    equals: str | None = None


@dataclass(frozen=True)
class Table:
    """A family's rules.

    Attributes:
      rows: One row a tensor; rows of parts that a configuration lacks are not expected.
      ignored: What may be present and is left out.
      prefixes: Stored prefix to the one the rows use, tried in order (composite checkpoints).
      dtypes: Element types that may be read.
    """

    rows: tuple[Row, ...]
    ignored: tuple[Ignored, ...] = ()
    prefixes: tuple[tuple[str, str], ...] = ()
    dtypes: tuple[str, ...] | None = ("F32", "F16", "BF16")


def load_arrays(
    tensors: Mapping[str, StoredTensor], config: ModelConfig, table: Table, dtype: str
) -> dict[str, jax.Array]:
    """Turns stored tensors into the arrays `Transformer` takes.

    Names, shapes and types are all checked before any data are read. Each stacked array is allocated once and filled
    layer by layer, cast on the way, so that memory peaks at the model plus one stacked array.

    Args:
      tensors: Stored tensors by name.
      config: The model's configuration.
      table: The family's rules.
      dtype: `float32` or `bfloat16`.

    Returns:
      Arrays by path, in `dtype`.

    Raises:
      UserError: A tensor is unknown, missing, duplicate, misshapen, of an unexpected type or not finite; the message
        names the key and the file.
    """
    named = _canonical(tensors, table)
    shapes = parameter_shapes(config)
    wanted = {row.path: row for row in table.rows if row.path in shapes}
    assert wanted.keys() == shapes.keys(), sorted(shapes.keys() - wanted.keys())
    expected = {key for row in wanted.values() for key in _keys(row, config)}
    ignored = _check_names(named, expected, table)
    for row in wanted.values():
        for key in _keys(row, config):
            _check_tensor(named[key], _stored_shape(row, shapes[row.path]), table)
    target = COMPUTE_DTYPES[dtype]
    arrays = {path: _fill(row, shapes[path], named, config, target) for path, row in wanted.items()}
    for key, rule in ignored.items():
        if rule.equals is not None:
            _check_equal(named[key], named[wanted[rule.equals].key], rule)
    return arrays


def export_arrays(
    arrays: Mapping[str, jax.Array], config: ModelConfig, table: Table
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields stored names and tensors: the exact inverse of `load_arrays`, one tensor in memory at a time."""
    for row in table.rows:
        if row.path not in arrays:
            continue
        for layer, key in enumerate(_keys(row, config)):
            x = np.asarray(arrays[row.path][layer] if LAYER in row.key else arrays[row.path])
            if row.offset:
                x = (x.astype(np.float32) - row.offset).astype(x.dtype)
            x = x.T if row.transpose else x
            x = _to_pairs(x, _heads(row, config)) if row.interleaved else x
            yield key, np.ascontiguousarray(x)


def _keys(row: Row, config: ModelConfig) -> list[str]:
    return [row.key.replace(LAYER, str(i)) for i in range(config.num_layers)] if LAYER in row.key else [row.key]


def _canonical(tensors: Mapping[str, StoredTensor], table: Table) -> dict[str, StoredTensor]:
    named: dict[str, StoredTensor] = {}
    for key, tensor in tensors.items():
        name = key
        for prefix, replacement in table.prefixes:
            if key.startswith(prefix):
                name = replacement + key.removeprefix(prefix)
                break
        if name in named:
            raise UserError(
                f"expected each tensor once, found {named[name].key!r} in {named[name].file} "
                f"and {key!r} in {tensor.file}; fetch the checkpoint again"
            )
        named[name] = tensor
    return named


def _check_names(named: Mapping[str, StoredTensor], expected: set[str], table: Table) -> dict[str, Ignored]:
    ignored, unknown = {}, []
    for key in named.keys() - expected:
        rule = next((rule for rule in table.ignored if re.fullmatch(rule.pattern, key)), None)
        if rule is None:
            unknown.append(key)
        else:
            ignored[key] = rule
    missing = sorted(expected - named.keys())
    if unknown:
        files = sorted({str(named[key].file) for key in unknown})
        raise UserError(
            f"expected only tensors that the configuration calls for, found {_some(sorted(unknown))} in {files}"
            + (f" (and missing: {_some(missing)})" if missing else "")
            + "; use the config.json that belongs to these weights"
        )
    if missing:
        files = sorted({str(tensor.file) for tensor in named.values()})
        raise UserError(f"expected {_some(missing)}, found no such tensor in {files}; fetch the complete checkpoint")
    return ignored


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _stored_shape(row: Row, shape: tuple[int, ...]) -> tuple[int, ...]:
    one = shape[1:] if LAYER in row.key else shape
    return one[::-1] if row.transpose else one


def _check_tensor(tensor: StoredTensor, shape: tuple[int, ...], table: Table) -> None:
    if tensor.shape != shape:
        raise UserError(
            f"expected {tensor.key!r} of shape {shape}, found {tensor.shape} in {tensor.file}; "
            "use the config.json that belongs to these weights"
        )
    if table.dtypes is not None and tensor.dtype not in table.dtypes:
        raise UserError(
            f"expected {tensor.key!r} as one of {list(table.dtypes)}, found {tensor.dtype} in {tensor.file}; "
            "save the weights in float32 or bfloat16 (quantised weights are read from GGUF only)"
        )


def _fill(row: Row, shape: tuple[int, ...], named: Mapping[str, StoredTensor], config: ModelConfig, dtype) -> jax.Array:
    out = np.empty(shape, dtype)
    for layer, key in enumerate(_keys(row, config)):
        x = named[key].read()
        x = _from_pairs(x, _heads(row, config)) if row.interleaved else x
        x = x.T if row.transpose else x
        if row.offset:
            x = x.astype(np.float32) + np.float32(row.offset)
        place = out[layer] if LAYER in row.key else out
        with np.errstate(over="ignore", invalid="ignore"):
            place[...] = x
        check_finite(place, named[key])
    return jnp.asarray(out)


def check_finite(x: np.ndarray, tensor: StoredTensor) -> None:
    """Refuses NaN and infinity in a tensor that was read (and cast), naming key and file."""
    if not np.isfinite(x).all():
        kind = "NaN" if np.isnan(x).any() else f"values beyond {x.dtype.name}"
        raise UserError(f"expected finite weights, found {kind} in {tensor.key!r} of {tensor.file}; fetch it again")


def _check_equal(tensor: StoredTensor, original: StoredTensor, rule: Ignored) -> None:
    if tensor.shape != original.shape or not np.array_equal(tensor.read(), original.read()):
        raise UserError(
            f"expected {tensor.key!r} to equal {original.key!r} ({rule.reason}), found another tensor in "
            f"{tensor.file}; set tie_word_embeddings to false, or fetch the checkpoint again"
        )


def _heads(row: Row, config: ModelConfig) -> int:
    return config.num_heads if row.interleaved == "q" else config.num_kv_heads


def _from_pairs(x: np.ndarray, heads: int) -> np.ndarray:
    """Rows `(head, i, half)` to `(head, half, i)`: interleaved rotary pairs to two halves."""
    return x.reshape(heads, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def _to_pairs(x: np.ndarray, heads: int) -> np.ndarray:
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
