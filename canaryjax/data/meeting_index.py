"""Which meeting each QMSum record is: the records do not say, a file beside them does."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canaryjax.data.rows import has_surrogate
from canaryjax.errors import UserError

_NUMBER = re.compile(r"(?<=\d)[a-z]$|[_-]?\d+$")


@dataclass(frozen=True)
class Meeting:
    """One entry of an index: the meeting's name and, where the index tells it, how many turns it has."""

    name: str
    place: str
    turns: int | None = None

    def check(self, turns: list[Any], record: str) -> None:
        """Raises UserError where the record has another number of turns."""
        if self.turns is not None and self.turns != len(turns):
            raise UserError(
                f"{self.place}: expected meeting {self.name!r} of {self.turns} turns, found {len(turns)} in {record}; "
                "the index is of other rows or another order: give theirs"
            )


def series_of(meeting: str) -> str:
    """The series of a meeting: its name without the last letter (AMI) or number (ICSI, committees).

    The four meetings of an AMI series have the same people and task; an ICSI series is one research group.

    >>> [series_of(name) for name in ("ES2002a", "Bro003", "covid_0", "7")]
    ['ES2002', 'Bro', 'covid', '7']
    """
    return _NUMBER.sub("", meeting) or meeting


def read_meetings(index: Path, sizes: Mapping[str, int]) -> list[Meeting]:
    """The meetings of all rows, in their order.

    Arguments: `index`, a JSON file: a list of names, or of objects with `meeting` and perhaps `turns`; or an object of
    such lists by split (`train` fits a file `qmsum_train.jsonl` too). `sizes`: rows of each split, in order.
    Raises UserError: no readable JSON, another form, another number of rows, a meeting named twice.
    """
    try:
        value = json.loads(index.read_bytes())
    except OSError as error:
        raise UserError(f"expected an index file at {index}, found: {error.strerror}; check data.index") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"expected valid JSON in {index}; {error}; restore the file") from error
    if isinstance(value, dict):
        meetings = [m for split, rows in sizes.items() for m in _entries(index, _of_split(index, value, split), rows)]
    else:
        meetings = _entries(index, value, sum(sizes.values()))
    name, times = Counter(meeting.name for meeting in meetings).most_common(1)[0]
    if times > 1:
        raise UserError(f"{index}: expected each meeting once, found {name!r} {times} times; rename one")
    return meetings


def _of_split(index: Path, value: dict[str, Any], split: str) -> Any:
    fitting = [name for name in value if split == name or split.endswith((f"_{name}", f"-{name}"))]
    if not fitting:
        raise UserError(
            f"{index}: expected a list of meetings for {split!r}, found lists for {', '.join(value) or 'nothing'}; "
            "add it, or name the file after one of them"
        )
    return value[max(fitting, key=len)]


def _entries(index: Path, found: Any, rows: int) -> list[Meeting]:
    if not isinstance(found, list):
        raise UserError(f"{index}: expected a list of meetings, found {type(found).__name__}; write one")
    if len(found) != rows:
        raise UserError(
            f"{index}: expected a meeting for each of the {rows} rows, found {len(found)}; give the index of these rows"
        )
    return [_meeting(entry, f"{index}, entry {number}") for number, entry in enumerate(found)]


def _meeting(entry: Any, place: str) -> Meeting:
    name, turns = (entry.get("meeting"), entry.get("turns")) if isinstance(entry, dict) else (entry, None)
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"{place}: expected a meeting's name or an object with 'meeting', found {entry!r:.60}; fix it")
    if turns is not None and type(turns) is not int:
        raise UserError(f"{place}: expected a whole number under 'turns', found {turns!r:.60}; fix it")
    if has_surrogate(name):
        raise UserError(
            f"{place}: expected a meeting's name in Unicode, found a lone surrogate in {name!r:.60}; fix it"
        )
    return Meeting(name.strip(), place, turns)
