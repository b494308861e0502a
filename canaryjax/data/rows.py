"""Rows of JSON-lines and parquet files, each with the place it stands, so that an error can name it."""

import gzip
import json
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from canaryjax.errors import UserError

# Letters and symbols to Unicode, and nothing to see: the Hangul fillers and the empty Braille cell.
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_POINTER = b"version https://git-lfs.github.com/spec/"  # what Git keeps in place of a large file
_BATCH = 4096  # rows of a parquet file made into objects at a time


def is_blank(text: str) -> bool:
    """Whether nothing in a text is to be seen: blanks, controls, marks without a letter, characters of no width.

    >>> is_blank(" \\u200b\\n"), is_blank("\\u200b?")
    (True, False)
    """
    return not any(unicodedata.category(c)[0] in "LNPS" and c not in _FILLERS for c in text)


class Row:
    """One record and where it stands."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self.values = values
        self.place = place

    def text(self, key: str, *, empty: bool = False) -> str:
        """The string under a key; UserError when it is missing, not a string, or (unless `empty`) blank."""
        if key not in self.values:
            raise UserError(f"{self.place}: expected the key {key!r}, found {', '.join(self.values) or 'none'}; add it")
        value = self.values[key]
        if not isinstance(value, str):
            raise UserError(
                f"{self.place}: expected a string under {key!r}, found {type(value).__name__}; write it as text"
            )
        if not empty and is_blank(value):
            raise UserError(f"{self.place}: expected text under {key!r}, found none; remove the row or fill it in")
        return value

    def optional(self, key: str) -> str | None:
        """The string under a key, None where the key is missing or null."""
        return None if self.values.get(key) is None else self.text(key)


def read_rows(file: Path, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Rows of a ``.jsonl``, ``.jsonl.gz`` or ``.parquet`` file.

    Lines end at a line feed only (U+2028 inside a string is text); blank lines are passed over.
    Arguments: `columns` that a parquet file must have; of JSON lines each is asked as it is read.
    Raises UserError naming file and line: empty file, a pointer of Git LFS, not UTF-8, cut off, not JSON, not an
    object, no such column.
    """
    if _is_pointer(file):
        raise UserError(f"{file}: expected rows, found a Git LFS pointer to them; fetch the file, as by `git lfs pull`")
    rows = _parquet_rows(file, columns) if file.suffix == ".parquet" else _json_rows(file)
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise UserError(f"{file}: expected at least one row, found an empty file; check how it was written")


def _is_pointer(file: Path) -> bool:
    try:
        with file.open("rb") as handle:
            return handle.read(len(_POINTER)) == _POINTER
    except OSError:  # told by whoever reads it
        return False


def _json_rows(file: Path) -> Iterator[Row]:
    for number, line in enumerate(_bytes_of(file).split(b"\n"), start=1):
        place = f"{file}, line {number}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip(" \t\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{place}: expected UTF-8, found byte {line[error.start]:#04x}; convert the file"
            ) from error
        if not text:
            continue
        try:
            values = json.loads(text, object_pairs_hook=partial(_checked_object, place))
        except UserError:
            raise
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
            raise UserError(
                f"{place}: expected one JSON object, found {error} in {text[:60]!r}; the file may be cut off, or of "
                "another kind than JSON lines with one object a line: write it again"
            ) from error
        if not isinstance(values, dict):
            raise UserError(f"{place}: expected a JSON object, found {type(values).__name__}; write one object a line")
        if "\\ud" in text.lower():  # UTF-8 holds no surrogates: only an escape makes one
            _refuse_surrogates(values, place)
        yield Row(values, place)


def _checked_object(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """One object of a line, at any depth."""
    values = dict(pairs)
    if len(values) < len(pairs):  # the last one would win, unsaid
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{place}: expected each key once, found {twice!r} twice; remove one")
    return values


def _bytes_of(file: Path) -> bytes:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: expected a readable file, found: {error.strerror}; check its permissions") from None
    if file.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(
            f"{file}: expected a whole gzip file, found: {error}; the file may be cut off, copy it again"
        ) from None  # an OSError as its cause is taken for a full disk further up


def has_surrogate(value: Any) -> bool:
    """Whether a text anywhere in a JSON value has a lone surrogate, which no UTF-8 file can hold."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str) and any("\ud800" <= c <= "\udfff" for c in one):
            return True
        left += [*one, *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else []
    return False


def _refuse_surrogates(values: dict[str, Any], place: str) -> None:
    for key, value in values.items():
        if has_surrogate([key, value]):
            raise UserError(f"{place}: expected Unicode text under {key!r}, found a lone surrogate; remove the escape")


def check_columns(present: Sequence[str], needed: Sequence[str], place: str) -> None:
    """Raises UserError where a table lacks a column, naming it and those that it has, or has two of one name."""
    missing = [name for name in needed if name not in present]
    if missing:
        raise UserError(
            f"{place}: expected the column {missing[0]!r}, found {', '.join(present) or 'none'}; check data.kind, or "
            "rename a column"
        )
    if len(set(present)) < len(present):  # the last one would win, unsaid
        twice = next(name for name in present if list(present).count(name) > 1)
        raise UserError(f"{place}: expected each column once, found {twice!r} twice; rename one")


def _parquet_rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow.lib
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            names = table.schema_arrow.names
            check_columns(names, columns, str(file))
            for batch in table.iter_batches(batch_size=_BATCH):
                found = (_objects(file, name, column) for name, column in zip(names, batch.columns, strict=True))
                for values in zip(*found, strict=True):
                    number += 1
                    yield Row(dict(zip(names, values, strict=True)), f"{file}, row {number}")
    except UserError:
        raise
    except (pyarrow.lib.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{file}: expected a whole parquet file, found: {' '.join(str(error).split())[:200]}; it may be cut off, "
            "copy it again"
        ) from None


def _objects(file: Path, name: str, column: Any) -> list[Any]:
    """A column's values; times as Arrow has them, since Python's end before and no text is in them."""
    import pyarrow.types

    if pyarrow.types.is_temporal(column.type):
        return [value if value.is_valid else None for value in column]
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"{file}: expected values that Python can hold in the column {name!r}, found {column.type} with: "
            f"{' '.join(str(error).split())[:200]}; drop the column"
        ) from None
