"""The files behind `data.path`: one file, a folder of splits in shards, or a name on the Hugging Face hub."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from canaryjax.data.hub import hub_rows, is_hub_name
from canaryjax.data.rows import Row, read_rows
from canaryjax.data.source import DataSource
from canaryjax.errors import UserError

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
# `datasets` once put a digest behind the number of shards.
_SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(-[0-9a-f]{16})?")
_SHOWN = 6  # names in a message


@dataclass(frozen=True)
class Part:
    """One split: its name and its rows."""

    name: str
    rows: Iterable[Row]


def read_parts(source: DataSource, columns: Sequence[str]) -> list[Part]:
    """The splits that `data.path` and `data.split` name, in the order in which they are named.

    A file is a split named as the file. In a folder every `.jsonl`, `.jsonl.gz` and `.parquet` file belongs to the
    split `NAME` of `NAME-00000-of-00002.parquet`, `NAME.jsonl` or `NAME/0000.parquet`, at any depth; hidden folders
    are passed over. A name such as `ServiceNow/repliqa` goes to `datasets`, with `data.kind=repliqa` alone.

    Arguments: `columns` that every parquet file must have.
    Raises UserError: nothing there, no data files, an unknown split, several where none is named, a missing shard.
    """
    if source.path is None:
        raise UserError(f"data.path: expected a file for data.kind={source.kind}, found none; give it")
    if source.kind == "repliqa" and is_hub_name(source.path):
        if source.split is None:
            raise UserError(f"expected data.split with data.path={source.path}, found none; set it, as in repliqa_0")
        return [Part(name, hub_rows(source.path, name, columns)) for name in _asked(source.split)]
    path = Path(source.path)
    if path.is_dir():
        splits = _splits_of(path)
    elif path.is_file():
        splits = {_place_in_split(path)[0]: [path]}
    else:
        raise UserError(f"expected a data file or folder at {path}, found none; check data.path")
    names = _named(source.split, list(splits), path)
    return [Part(name, chain.from_iterable(read_rows(file, columns) for file in splits[name])) for name in names]


def _named(asked: str | None, present: list[str], path: Path) -> list[str]:
    if asked is None:
        if len(present) > 1:
            raise UserError(
                f"expected data.split with the {len(present)} splits in {path}, found none; set it to one of "
                f"{_shown(present)}, or join several by +"
            )
        return present
    names = _asked(asked)
    unknown = [name for name in names if name not in present]
    if unknown:
        raise UserError(
            f"data.split: expected splits that are in {path}, found {unknown[0]!r}; choose among {_shown(present)}"
        )
    return names


def _asked(split: str) -> list[str]:
    names = split.split("+")
    if len(set(names)) < len(names):
        raise UserError(f"data.split: expected each split once, found {split!r}; name none twice")
    return names


def _splits_of(folder: Path) -> dict[str, list[Path]]:
    """Files by split, sorted by name, shards by number."""
    files = [
        file
        for file in folder.rglob("*")
        if file.name.endswith(SUFFIXES)
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    if not files:
        raise UserError(
            f"expected {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} files in the folder {folder}, found "
            f"{_shown(sorted(map(_kind_shown, folder.iterdir()))) or 'nothing'}; check data.path"
        )
    splits: dict[str, list[Path]] = {}
    for file in sorted(files):
        splits.setdefault(_place_in_split(file)[0], []).append(file)
    for name, shards in splits.items():
        _check_shards(name, shards)
        shards.sort(key=lambda file: _place_in_split(file)[1])  # by name, 10 would stand before 2
    return dict(sorted(splits.items()))


def _place_in_split(file: Path) -> tuple[str, int, int | None]:
    """Split, number of the shard, and number of shards where the name tells it."""
    stem = _stem(file)
    shard = _SHARD.fullmatch(stem)
    if shard:
        return shard["split"], int(shard["number"]), int(shard["count"])
    if stem.isdecimal():  # as the hub names what it converts: repliqa_0/0000.parquet
        return file.parent.name, int(stem), None
    return stem, 0, 1


def _check_shards(split: str, files: list[Path]) -> None:
    """Raises UserError for what is no one set of shards: a missing one, or the same split in two forms."""
    places = [_place_in_split(file) for file in files]
    if len({(file.parent, _suffix(file), count) for file, (_, _, count) in zip(files, places, strict=True)}) > 1:
        raise UserError(
            f"expected split {split!r} in one form, found {_shown(list(map(str, files)))}; move all but one away"
        )
    numbers, count = sorted(number for _, number, _ in places), places[0][2] or len(places)
    if numbers != list(range(count)):
        missing = sorted(set(range(count)) - set(numbers))
        raise UserError(
            f"expected {count} shards of split {split!r} in {files[0].parent}, found {len(numbers)}, without number "
            f"{', '.join(map(str, missing[:_SHOWN]))}; copy the missing ones there"
        )


def _suffix(file: Path) -> str:
    return next((suffix for suffix in SUFFIXES if file.name.endswith(suffix)), file.suffix)


def _stem(file: Path) -> str:
    return file.name.removesuffix(_suffix(file))


def _kind_shown(entry: Path) -> str:
    """A name in a folder, and what it is where that is no file."""
    return f"{entry.name}/" if entry.is_dir() else entry.name if entry.exists() else f"{entry.name} (a broken link)"


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
