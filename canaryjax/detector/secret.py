"""The site's secrets: read from files that only their owner may read, used as HMAC keys, shown to nobody."""

import hashlib
import hmac
import os
import secrets as randomness
import stat
from dataclasses import dataclass
from pathlib import Path

from canaryjax.errors import UserError

SEED = "seed"
CONTROL_SEED = "control_seed"
EDGE_SECRET = "edge_secret"
LEAST_BYTES = 16  # 128 bits where every byte counts; `make_secrets` writes 64 hex digits
FINGERPRINT = b"canaryjax-canary/1/fingerprint"


class Secret:
    """A key that cannot be shown: it has no public value, its `repr` hides it, and it does not pickle."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes):
        self._key = key

    def mac(self, message: bytes) -> bytes:
        """HMAC-SHA256 of a message under this key, 32 bytes.

        >>> Secret(b"Jefe").mac(b"what do ya want for nothing?").hex()[:16]
        '5bdcc146bf60754e'
        """
        return hmac.digest(self._key, message, hashlib.sha256)

    def fingerprint(self) -> str:
        """16 hex digits by which a stored manifest knows this key again; safe to store, as they do not lead to it."""
        return self.mac(FINGERPRINT)[:8].hex()

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._key, other._key)

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    def __reduce__(self):
        raise TypeError("a secret does not pickle: it would lie in a file or pipe; read it again from its folder")


@dataclass(frozen=True)
class Secrets:
    """What a site is made from: the seed of static canaries, that of the negatives, and the edge's own secret."""

    seed: Secret
    control_seed: Secret
    edge_secret: Secret | None


def read_secrets(folder: str | Path) -> Secrets:
    """The secrets of a folder: files `seed` and `control_seed`, and `edge_secret` where an edge stamps pages.

    A key is the file's text without the blanks around it, as bytes; an edge worker takes the same text.

    Raises:
      UserError: A file is missing, can be read by others, is shorter than 16 bytes or not printable ASCII; two of the
        secrets are equal.
    """
    root = Path(folder)
    found = {name: _read(root / name) for name in (SEED, CONTROL_SEED)}
    edge = _read(root / EDGE_SECRET) if (root / EDGE_SECRET).exists() else None
    named = [*found.items(), *([(EDGE_SECRET, edge)] if edge is not None else [])]
    for i, (name, secret) in enumerate(named):
        for other, earlier in named[:i]:
            if secret == earlier:
                raise UserError(
                    f"expected unlike secrets in {root}, found {other} and {name} equal; negatives and edge ids need "
                    "secrets of their own, so write another one"
                )
    return Secrets(found[SEED], found[CONTROL_SEED], edge)


def _read(path: Path) -> Secret:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(65_536)
    except OSError as error:
        raise UserError(
            f"expected a secret in {path}, found {error.strerror or 'no file'}; `canaryjax detector secrets` writes one"
        ) from None
    if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
        raise UserError(
            f"expected a file that only its owner may read, found mode {stat.S_IMODE(status.st_mode):04o} of {path}; "
            f"run chmod 600 on it, and replace the secret if others may have seen it"
        )
    key = content.strip()
    if len(key) < LEAST_BYTES:
        raise UserError(
            f"expected a secret of at least {LEAST_BYTES} bytes, found {len(key)} in {path}; write a longer random one"
        )
    if not all(0x21 <= byte <= 0x7E for byte in key):
        raise UserError(
            f"expected printable ASCII without blanks, found other bytes in {path}; write the secret as hex digits"
        )
    return Secret(key)


def make_secrets(folder: str | Path) -> None:
    """Write three fresh random secrets, 64 hex digits each, that only their owner may read; keeps those there.

    Raises:
      UserError: A file of that name is there already; none is overwritten, and no other is written then.
    """
    root = Path(folder)
    names = (SEED, CONTROL_SEED, EDGE_SECRET)
    there = [name for name in names if (root / name).exists()]
    if there:
        raise UserError(
            f"expected no secrets in {root}, found {', '.join(there)}; a published site is lost without its secrets, "
            "so name another folder or move them away"
        )
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in names:
        handle = os.open(root / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(randomness.token_hex(32) + "\n")
