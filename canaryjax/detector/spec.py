"""Spec v1 of the canary code: what an id of 48 bits says, and the two checks it fixes; in words in SPEC.md."""

import hashlib

from canaryjax.detector.derive import ID_BYTES, PREFIX
from canaryjax.errors import UserError

VERSION = 1
LIST_SIZE = 4096  # entries of each list that holds 12 bits of the id
FIELD_BITS = 12
ID_LIMIT = 1 << 48
ARCHIVE_SIZES = tuple(1 << power for power in range(4, 13))  # 16 to 4,096
_PREFIXES = {kind: f"{PREFIX}{kind}/".encode() for kind in ("archive", "year", "shape", "opening")}


def check_id(id: int) -> int:
    """The id itself.

    Raises:
      UserError: It is not a whole number of 48 bits.
    """
    if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < ID_LIMIT:
        raise UserError("expected an id of 48 bits, found another value; write ids as 12 hex digits")
    return id


def parse_id(text: str) -> int:
    """The id that 12 hex digits name.

    >>> parse_id("00000000002a")
    42

    Raises:
      UserError: The text is not 12 hex digits.
    """
    if len(text) != 12 or any(digit not in "0123456789abcdefABCDEF" for digit in text):
        raise UserError(f"expected an id of 12 hex digits, found a text of {len(text)} characters; correct it")
    return int(text, 16)


def format_id(id: int) -> str:
    """An id as 12 hex digits, as manifests, logs and reports name it."""
    return f"{check_id(id):012x}"


def split_id(id: int) -> tuple[int, int, int, int]:
    """Places in the four lists: given name (the highest 12 bits), surname, place, event.

    >>> split_id(0x001_002_003_fff)
    (1, 2, 3, 4095)
    """
    check_id(id)
    return id >> 36, id >> 24 & 0xFFF, id >> 12 & 0xFFF, id & 0xFFF


def join_id(given: int, surname: int, place: int, event: int) -> int:
    """The id of four places, each of 0 to 4,095; undoes `split_id`."""
    return given << 36 | surname << 24 | place << 12 | event


def _checked(kind: str, id: int, size: int) -> int:
    digest = hashlib.sha256(_PREFIXES[kind] + id.to_bytes(ID_BYTES, "big")).digest()
    return (digest[0] << 8 | digest[1]) % size


def archive_index(id: int, size: int) -> int:
    """Which entry of the archive list is the id's checksum word; `size` is the list's length, a power of two."""
    return _checked("archive", id, size)


def year_of(id: int, first_year: int, years: int) -> int:
    """The year that the id fixes, of `years` years from `first_year` on."""
    return first_year + _checked("year", id, years)


def shape_index(id: int, shapes: int) -> int:
    """Which of so many sentence shapes the id is written in."""
    return _checked("shape", id, shapes)


def opening_index(id: int, openings: int) -> int:
    """Which of so many openings its sentence begins with."""
    return _checked("opening", id, openings)
