"""Datasets by name, through `datasets`: the one way in which data is read from a network."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from canaryjax.data.rows import Row, check_columns
from canaryjax.errors import UserError

_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def is_hub_name(path: str) -> bool:
    """Whether a path is `owner/name` and nothing here: a misspelt file must not be asked for in public.

    >>> is_hub_name("ServiceNow/repliqa"), is_hub_name("ServiceNow/repliqa.parquet"), is_hub_name("/ServiceNow/repliqa")
    (True, False, False)
    """
    here = Path(path)
    file = here.suffix in (".gz", ".json", ".jsonl", ".parquet")
    return bool(_NAME.fullmatch(path)) and not file and not here.exists() and not here.parent.exists()


def hub_rows(name: str, split: str, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of one split of a dataset on the hub, from the cache of `datasets` where it is there.

    Arguments: `name` as `owner/name`; `columns` that it must have.
    Raises UserError: it cannot be had (no network, no such dataset or split), or lacks a column.
    """
    import datasets

    try:
        table = datasets.load_dataset(name, split=split)
    except Exception as error:  # what it raises changes from version to version
        found = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        # Without its cause: one of the network's is an OSError, which is taken for a full disk further up.
        raise UserError(
            f"expected the split {split} of {name} from the Hugging Face hub or its cache, found {found}; without a "
            "network set data.path to a file or folder that holds it"
        ) from None
    check_columns(table.column_names, columns, f"{name}, split {split}")
    for number, values in enumerate(table, start=1):
        yield Row(values, f"{name}, split {split}, row {number}")
