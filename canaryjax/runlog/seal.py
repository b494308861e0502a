"""JSON that says of itself whether it is whole, for what a resumed run takes on trust."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from canaryjax.errors import UserError
from canaryjax.runlog.files import encode

SEAL = "sha256"


def sealed(value: Mapping[str, Any], *owner: str) -> dict[str, Any]:
    """The plain form of a mapping with a digest of its content and of what it belongs to, such as run and file name.

    A copy under another name is then as little taken for the original as one that was cut or edited.

    >>> sorted(sealed({"trial": 0}, "trials/0000.json"))
    ['sha256', 'trial']
    """
    plain = json.loads(encode(value)[0])
    return plain | {SEAL: _digest(plain, owner)}


def read_sealed(path: Path, remedy: str, *owner: str) -> dict[str, Any]:
    """What `sealed` made, from a file and without the digest.

    Args:
      path: The file.
      remedy: What to do about a damaged one, for the message.
      *owner: As it was sealed with.

    Raises:
      UserError: The file is missing, is no JSON object, or was changed since it was written or copied from elsewhere.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"expected the file {path}, found: {error.strerror}; {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"expected valid JSON in {path}, found: {error}; {remedy}") from error
    seal = value.pop(SEAL, None) if isinstance(value, dict) else None
    if seal is None:
        found = f"no {SEAL} in it" if isinstance(value, dict) else type(value).__name__
        raise UserError(f"expected {path} as the run wrote it, found {found}; {remedy}")
    if seal != _digest(value, owner):
        raise UserError(
            f"expected {path} as the run wrote it, found that it was changed or is a copy of another file; {remedy}"
        )
    return value


def file_digests(paths: Iterable[Path]) -> dict[str, str]:
    """sha256 of whole files by their names, read side by side: seconds for each few GB."""

    def digest(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    files = list(paths)
    with ThreadPoolExecutor() as pool:  # hashing leaves Python's lock to others
        return dict(zip([path.name for path in files], pool.map(digest, files), strict=True))


def _digest(plain: Mapping[str, Any], owner: tuple[str, ...]) -> str:
    return hashlib.sha256(encode([*owner, plain])[0]).hexdigest()
