"""Tensors as they lie in a file: what is there, and how to read one without reading the rest."""

import json
import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from canaryjax.errors import UserError

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    **{f"I{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    "BOOL": np.dtype("?"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
_MAX_AXES = 32  # NumPy's own limit is 64; a message shows their product
_MAX_HEADER = 100_000_000  # the format's own limit


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
      key: Its name in the file.
      file: The file, for messages.
      shape: As stored.
      dtype: The file format's name of the element type (`F32`, `BF16`, `Q4_1`, ...).
      read: Returns it as an array; reads this tensor only.
    """

    key: str
    file: Path
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]


def given_path(path: object) -> Path:
    """A path as the caller gave it, `~` expanded; UserError for what is no path, or none that the system takes."""
    if not isinstance(path, (str, os.PathLike)):
        shown = " ".join(f"{path!r:.80}".split())  # arrays print in several lines
        raise UserError(f"expected a path, found {shown}; pass a string or a pathlib.Path")
    try:
        found = Path(os.fsdecode(path)).expanduser()
        found.exists()  # answers "no" for most of what cannot be there, and fails for a name that is too long
    except OSError as error:
        raise UserError(f"expected a path that the file system takes, found {path}: {error.strerror}") from error
    except RuntimeError as error:
        raise UserError(f"expected a home directory for {path}, found none; write the path in full") from error
    return found


def open_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Lists a safetensors file's tensors; the data stay on disk, memory-mapped, until read.

    Raises:
      UserError: The file is truncated or malformed, an entry lies outside the data, overlaps another or appears twice;
        the message names the file.
    """
    size = _size(path)
    header, start = _header(path, size)
    tensors, spans = {}, []
    for key, entry in header.items():
        if key == "__metadata__":
            continue
        try:
            dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            valid = isinstance(dtype, str) and all(type(n) is int and 0 <= n < 2**63 for n in (*shape, begin, end))
            valid = valid and begin <= end and len(shape) <= _MAX_AXES
        except (KeyError, TypeError, ValueError):
            valid = False
        if not valid:
            raise UserError(
                f"expected dtype, shape and data_offsets for {key!r} in {path}, found {entry!r}; fetch it again"
            )
        count = math.prod(shape)
        if dtype in _DTYPES and end - begin != count * _DTYPES[dtype].itemsize:
            raise UserError(
                f"expected {count} elements of {dtype} for {key!r} in {path}, found {end - begin} bytes; fetch it again"
            )
        if start + end > size:
            raise UserError(
                f"expected {path} to hold {start + end} bytes for {key!r}, found {size}: the file is truncated; "
                "fetch it again"
            )
        spans.append((begin, end, key))
        tensors[key] = StoredTensor(key, path, shape, dtype, _reader(path, start + begin, shape, dtype))
    _check_spans(spans, size - start, path)
    return tensors


def _size(path: Path) -> int:
    try:
        with open(path, "rb"):  # a directory, or a file that may not be read, is known by opening it
            return os.stat(path).st_size
    except OSError as error:
        raise UserError(
            f"expected a readable safetensors file, found {path}: {error.strerror}; check the path"
        ) from error


def _header(path: Path, size: int) -> tuple[dict, int]:
    def unique(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise UserError(f"expected each tensor once, found {twice} twice in the header of {path}; write it again")
        return dict(pairs)

    with open(path, "rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else None
        if length is None or length > min(size - 8, _MAX_HEADER):
            raise UserError(f"expected a safetensors header in {path}, found {size} bytes: truncated or another format")
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=unique)
    except UserError:
        raise
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise UserError(f"expected a JSON header in {path}, found damaged text ({error}); fetch it again") from error
    if not isinstance(header, dict):
        raise UserError(
            f"expected a JSON object as the header of {path}, found {type(header).__name__}; fetch it again"
        )
    return header, 8 + length


def _check_spans(spans: list[tuple[int, int, str]], data_size: int, path: Path) -> None:
    position, before = 0, "the header"
    for begin, end, key in sorted(spans):
        if begin != position:
            what = "overlap" if begin < position else "leave a gap"
            raise UserError(
                f"expected tensors end to end in {path}, found that {before} and {key!r} {what}; fetch it again"
            )
        position, before = end, repr(key)
    if position != data_size:
        raise UserError(f"expected {position} bytes of tensors in {path}, found {data_size}; fetch it again")


def _reader(path: Path, offset: int, shape: tuple[int, ...], dtype: str) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, _DTYPES[dtype])
        return np.memmap(path, mode="r", dtype=_DTYPES[dtype], offset=offset, shape=shape)

    return read


def open_checkpoint(directory: Path) -> dict[str, StoredTensor]:
    """Lists the tensors of a Hugging Face directory: `model.safetensors`, or the shards its index names.

    Raises:
      UserError: No safetensors (pickled weights are refused by name), a shard is missing or not in the index, a tensor
        stands in two shards, or the index and the shards disagree.
    """
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.exists() and index.exists():
        raise UserError(
            f"expected one of {single.name} and {index.name} in {directory}, found both; remove the stale one"
        )
    if single.exists():
        _refuse_strays(directory, set())
        return open_safetensors(single)
    if not index.exists():
        raise UserError(_nothing_to_read(directory))
    weight_map = _read_index(index)
    shards = sorted(set(weight_map.values()))
    _refuse_strays(directory, set(shards))
    missing = [name for name in shards if not os.path.isfile(directory / name)]  # a name may be too long to ask about
    if missing:
        raise UserError(f"expected the shards that {index} names, found these missing: {missing}; fetch them")
    tensors: dict[str, StoredTensor] = {}
    for name in shards:
        for key, tensor in open_safetensors(directory / name).items():
            if key in tensors:
                raise UserError(
                    f"expected each tensor once, found {key!r} in both {tensors[key].file} and {tensor.file}"
                )
            if weight_map.get(key) != name:
                raise UserError(
                    f"expected {name} to hold what {index} says, found {key!r}, which the index places in "
                    f"{weight_map.get(key, 'no shard')}; fetch the index and the shards of one version"
                )
            tensors[key] = tensor
    absent = sorted(set(weight_map) - set(tensors))
    if absent:
        raise UserError(
            f"expected every tensor of {index} in its shard, found these missing: {absent[:5]}; fetch it again"
        )
    return tensors


def _refuse_strays(directory: Path, known: set[str]) -> None:
    strays = sorted(p.name for p in directory.glob("model-*-of-*.safetensors") if p.name not in known)
    if strays:
        raise UserError(
            f"expected only indexed shards in {directory}, found {strays}; remove them or fetch their index"
        )


def _nothing_to_read(directory: Path) -> str:
    pickled = sorted(
        p.name for p in directory.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".ckpt", ".msgpack", ".h5")
    )
    found = f"{pickled}, which are not read (a pickle can run code)" if pickled else "no weights"
    return (
        f"expected model.safetensors or model.safetensors.index.json in {directory}, found {found}; save as safetensors"
    )


def _read_index(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise UserError(
            f"expected a weight_map of names to files in {index}, found {type(weight_map).__name__}; fetch it"
        )
    outside = sorted({name for name in weight_map.values() if Path(name).name != name})
    if outside:
        raise UserError(f"expected plain file names in {index}, found {outside}; fetch the index again")
    return weight_map


def read_json(path: Path) -> dict:
    """Reads a JSON object, or says which file is missing or damaged."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"expected {path.name} in {path.parent}, found {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"expected valid JSON in {path}, found damaged text ({error}); fetch it again") from error
    if not isinstance(value, dict):
        raise UserError(f"expected a JSON object in {path}, found {type(value).__name__}; fetch it again")
    return value
