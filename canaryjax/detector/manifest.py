"""manifest.json, which says where each id belongs, and commitment.json, its hash, shown to others before publication.

The commitment is the SHA-256 of manifest.json as it lies on the disk, so `sha256sum manifest.json` is all that a third
party needs later; the nonce within makes it say nothing before. Neither file holds text: ids make sentences only with
the word lists, and the fingerprints are keyed, so that a guessed list or secret cannot be tried against them (SD-37,
SD-38).
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from canaryjax.detector.derive import negative_id, static_id
from canaryjax.detector.design import NONCE_BYTES, Part, Sizes, deal
from canaryjax.detector.new_file import create_file
from canaryjax.detector.secret import Secrets
from canaryjax.detector.shapes import Shapes
from canaryjax.detector.spec import format_id, parse_id
from canaryjax.detector.vocabulary import LISTS, SHAPES_FILE, Vocabulary
from canaryjax.errors import UserError
from canaryjax.runlog.files import read_json

SCHEMA, COMMITMENT_SCHEMA = "canaryjax.manifest/1", "canaryjax.commitment/1"
MANIFEST, COMMITMENT = "manifest.json", "commitment.json"
SECRETS = ("seed", "control_seed", "edge_secret")


class Entry(NamedTuple):
    """One position of the pool: its part and its id."""

    position: int
    part: Part
    id: int

    @property
    def key(self) -> str:
        """Names it in storage and reports, such as `ladder-017`."""
        return f"{self.part.name}-{self.position:03d}"


@dataclass(frozen=True)
class Manifest:
    """What was generated, and when.

    Attributes:
      made: UTC, ISO 8601.
      throwaway: The word lists were made for tests, so nothing that is found with them says anything of a model.
      nonce: Drew the permutation.
      sizes: How many positions each part has.
      fingerprints: Of the three secrets (None for an edge secret that was not there), and of each file of the site.
      entries: By position.
    """

    made: str
    throwaway: bool
    nonce: bytes = field(repr=False)
    sizes: Sizes
    fingerprints: dict[str, str | None]
    entries: tuple[Entry, ...]

    @property
    def commitment(self) -> str:
        """SHA-256 of the file, 64 hex digits."""
        return hashlib.sha256(encode_manifest(self)).hexdigest()

    @property
    def fingerprint(self) -> str:
        """Tells one site from another in reports: that of its seed, 16 hex digits."""
        return str(self.fingerprints["seed"])

    @cached_property
    def by_id(self) -> dict[int, Entry]:
        """From an id to its entry."""
        return {entry.id: entry for entry in self.entries}


def make_manifest(
    secrets: Secrets, vocabulary: Vocabulary, shapes: Shapes, sizes: Sizes, nonce: bytes, made: str, throwaway: bool
) -> Manifest:
    """Deals the positions and derives their ids; writes nothing.

    Args:
      secrets: Their seed and control seed give the ids.
      vocabulary, shapes: What the ids will be read with; only their fingerprints are kept.
      sizes: How many positions each part gets.
      nonce: 32 bytes from the system's source of randomness.
      made: UTC, ISO 8601.
      throwaway: Whether the lists are for tests only.

    Raises:
      UserError: Two positions have the same id, a published and a never published one for example (SD-6).
    """
    fingerprints = _fingerprints(secrets, vocabulary, shapes)
    return Manifest(made, throwaway, nonce, sizes, fingerprints, _entries(secrets, sizes, nonce))


def _entries(secrets: Secrets, sizes: Sizes, nonce: bytes) -> tuple[Entry, ...]:
    entries = []
    for position, part in enumerate(deal(sizes, nonce)):
        negative = part.population == "negative"
        id = negative_id(secrets.control_seed, position) if negative else static_id(secrets.seed, position)
        entries.append(Entry(position, part, id))
    refuse_shared_ids([(entry.key, entry.id) for entry in entries])
    return tuple(entries)


def refuse_shared_ids(named: Sequence[tuple[str, int]]) -> None:
    """Raises a UserError where two sentences have one id: an answer could then not be told to be of one of them."""
    owners: dict[int, str] = {}
    for key, id in named:
        other = owners.setdefault(id, key)
        if other != key:
            raise UserError(
                f"expected an id of its own for each sentence, found one id for {other} and {key}; make new secrets "
                "(canaryjax detector secrets) and generate again"
            )


def _fingerprints(secrets: Secrets, vocabulary: Vocabulary, shapes: Shapes) -> dict[str, str | None]:
    """Of what sentences are made of; questions and famous facts may be reworded without a new site."""
    found: dict[str, str | None] = {}
    for name in SECRETS:
        secret = getattr(secrets, name)
        found[name] = None if secret is None else secret.fingerprint()
    files: dict[str, Any] = {f"{name}.txt": getattr(vocabulary, name) for name in LISTS}
    files[SHAPES_FILE] = [shapes.openings, shapes.sentences, shapes.first_year, shapes.years]
    for name, content in files.items():
        message = f"canaryjax-manifest/1/{name}/{json.dumps(content)}"
        found[name] = secrets.seed.mac(message.encode()).hex()[:16]
    return found


def check_manifest(manifest: Manifest, secrets: Secrets, vocabulary: Vocabulary, shapes: Shapes) -> None:
    """Checks that a manifest, the secrets and the lists belong together, by making all of it anew (SD-12).

    Raises:
      UserError: Another secret, a list that was changed since, or entries that the nonce and the secrets do not give.
    """
    for name, now in _fingerprints(secrets, vocabulary, shapes).items():
        then = manifest.fingerprints[name]
        # An edge may be added to a site that was made without; each of its rows is checked by itself.
        if then == now or (name == "edge_secret" and None in (then, now)):
            continue
        kind = "another secret" if name in SECRETS else "a changed file"
        raise UserError(
            f"expected the {name} with which the site was generated (fingerprint {then}), found {kind} (fingerprint "
            f"{now}); restore it"
        )
    for kept, made in zip(manifest.entries, _entries(secrets, manifest.sizes, manifest.nonce), strict=False):
        if kept != made:
            raise _edited(f"position {made.position} differs from what its nonce and the secrets give")


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of manifest.json, the same for equal manifests."""
    entries = [
        {"key": entry.key, "position": entry.position, **asdict(entry.part), "id": format_id(entry.id)}
        for entry in manifest.entries
    ]
    value = {
        "schema": SCHEMA,
        "made": manifest.made,
        "throwaway": manifest.throwaway,
        "nonce": manifest.nonce.hex(),
        "sizes": asdict(manifest.sizes),
        "fingerprints": manifest.fingerprints,
        "entries": entries,
    }
    return (json.dumps(value, indent=1) + "\n").encode()


def refuse_manifest(folder: Path) -> None:
    """Raises a UserError where the folder has a manifest: another deal after publication would undo the commitment."""
    there = [name for name in (MANIFEST, COMMITMENT) if os.path.lexists(folder / name)]
    if len(there) == 1:
        raise _half_made(folder, there[0])
    if there:
        raise UserError(
            f"expected no {MANIFEST} in {folder}, found one; a site is dealt once: use another folder, or remove it "
            f"and {COMMITMENT} if nothing of it was published"
        )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes manifest.json, which its owner alone may read, and commitment.json, which is for everybody.

    Raises:
      UserError: One of the two is there already; nothing is overwritten.
    """
    refuse_manifest(folder)
    create_file(folder / MANIFEST, encode_manifest(manifest), 0o600)
    commitment = {"schema": COMMITMENT_SCHEMA, "sha256_of_manifest": manifest.commitment, "made": manifest.made}
    try:
        create_file(folder / COMMITMENT, (json.dumps(commitment, indent=1) + "\n").encode(), 0o644)
    except BaseException:  # a full disk, a stop: half a site is none
        (folder / MANIFEST).unlink()
        raise


def read_manifest(folder: Path) -> Manifest:
    """Reads manifest.json and holds it against commitment.json.

    Args:
      folder: The site's.

    Raises:
      UserError: A file is missing, of another version, or was edited after the commitment.
    """
    value = _versioned(folder, MANIFEST, SCHEMA)
    data = (folder / MANIFEST).read_bytes()
    committed = _versioned(folder, COMMITMENT, COMMITMENT_SCHEMA).get("sha256_of_manifest")
    if hashlib.sha256(data).hexdigest() != committed:
        raise _edited(f"its SHA-256 is not the one in {COMMITMENT}")
    try:
        manifest = _parse(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _edited("it is not in the form that generate writes") from None
    if encode_manifest(manifest) != data:
        raise _edited("it is not in the form that generate writes")
    if tuple(entry.part for entry in manifest.entries) != deal(manifest.sizes, manifest.nonce):
        raise _edited("its parts are not those that its nonce deals")
    return manifest


def _versioned(folder: Path, name: str, schema: str) -> dict[str, Any]:
    if not (folder / name).is_file():
        there = [other for other in (MANIFEST, COMMITMENT) if other != name and os.path.lexists(folder / other)]
        if there:
            raise _half_made(folder, there[0])
        raise UserError(
            f"expected {name} in {folder}, found none; name the folder that canaryjax detector generate wrote, or "
            "restore the file"
        )
    value = read_json(folder / name)
    found = value.get("schema") if isinstance(value, dict) else None
    if found != schema:
        raise UserError(
            f"expected {name} of version {schema}, found {found!r:.60}; use the canaryjax that generated the site"
        )
    return value


def _parse(value: dict[str, Any]) -> Manifest:
    nonce, fingerprints = bytes.fromhex(value["nonce"]), dict(value["fingerprints"])
    expected = {*SECRETS, *(f"{name}.txt" for name in LISTS), SHAPES_FILE}
    if len(nonce) != NONCE_BYTES or set(fingerprints) != expected:
        raise ValueError
    datetime.fromisoformat(value["made"])
    texts = [text for text in fingerprints.values() if text is not None]
    if not isinstance(value["throwaway"], bool) or not all(isinstance(text, str) for text in texts):
        raise TypeError
    entries = tuple(
        Entry(row["position"], Part(*(row[name] for name in Part.__annotations__)), parse_id(row["id"]))
        for row in value["entries"]
    )
    if [entry.position for entry in entries] != list(range(len(entries))):
        raise ValueError
    # A 1.0 or true would be equal to the 1 that it stands for, and be shown as what it is.
    if not all(type(number) is int for entry in entries for number in (entry.position, entry.part.occurrences)):
        raise TypeError
    return Manifest(value["made"], value["throwaway"], nonce, Sizes(**value["sizes"]), fingerprints, entries)


def _half_made(folder: Path, there: str) -> UserError:
    other = COMMITMENT if there == MANIFEST else MANIFEST
    return UserError(
        f"expected {MANIFEST} and {COMMITMENT} in {folder}, found {there} without {other}; restore {other} from a "
        f"copy, or, if generate was stopped before its end and nothing was published, remove {there} and generate again"
    )


def _edited(what: str) -> UserError:
    return UserError(f"expected {MANIFEST} as generate wrote it, found it edited: {what}; restore it from a copy")
