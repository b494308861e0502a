"""Making a site's manifest, and reading back all that belongs to it."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from canaryjax.detector.decode import Decoder
from canaryjax.detector.design import NONCE_BYTES, Sizes
from canaryjax.detector.manifest import (
    Manifest,
    check_manifest,
    make_manifest,
    read_manifest,
    refuse_manifest,
    write_manifest,
)
from canaryjax.detector.secret import Secrets, read_secrets
from canaryjax.detector.sentence import render
from canaryjax.detector.shapes import Shapes, read_shapes
from canaryjax.detector.throwaway import MARKER
from canaryjax.detector.vocabulary import SHAPES_FILE, Vocabulary, read_vocabulary
from canaryjax.errors import UserError


@dataclass(frozen=True, repr=False)
class Generated:
    """A site's files, which belong together; has no `repr`, as nearly all of it is secret."""

    manifest: Manifest
    secrets: Secrets
    vocabulary: Vocabulary
    shapes: Shapes

    def __repr__(self) -> str:
        return f"Generated({self.manifest.fingerprint})"


def generate_site(folder: Path, secrets: Path, sizes: Sizes, allow_throwaway: bool = False) -> Generated:
    """Checks a site's lists, deals its sentences and writes the manifest and its commitment (SD-5 to SD-7).

    Args:
      folder: Holds the word lists and shapes, which the user brings.
      secrets: Folder of the secrets.
      sizes: How many sentences each part gets.
      allow_throwaway: Whether lists that were made for tests are taken.

    Returns:
      What was made, and what it was made of.

    Raises:
      UserError: Lists, shapes or secrets cannot be used; the folder has a manifest; two ids are equal; a sentence does
        not read back as its id (SD-12).
    """
    refuse_manifest(folder)
    throwaway = os.path.lexists(folder / MARKER)
    if throwaway and not allow_throwaway:
        raise UserError(
            f"expected word lists of your own in {folder}, found throw-away ones that anybody can make; give "
            "--throw-away if this is a test"
        )
    vocabulary, shapes = read_lists(folder)
    kept, nonce = read_secrets(secrets), os.urandom(NONCE_BYTES)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = make_manifest(kept, vocabulary, shapes, sizes, nonce, made, throwaway)
    _check_sentences(manifest, vocabulary, shapes)
    write_manifest(folder, manifest)
    return Generated(manifest, kept, vocabulary, shapes)


def _check_sentences(manifest: Manifest, vocabulary: Vocabulary, shapes: Shapes) -> None:
    # The lists' own checks leave one way to lose a sentence: entries that overlap with the words beside another one.
    decoder = Decoder(vocabulary)
    for entry in manifest.entries:
        if entry.id not in decoder.decode(render(entry.id, vocabulary, shapes)):
            raise UserError(
                f"expected every sentence to read back as its id, found one ({entry.key}) that does not: words of its "
                f"shape and neighbouring fields make up other entries; reword {SHAPES_FILE} or replace such entries"
            )


def read_generated(folder: Path, secrets: Path) -> Generated:
    """Reads a site that was generated.

    Raises:
      UserError: Manifest, commitment, secrets and lists do not belong together; see `check_manifest`.
    """
    kept, manifest = read_secrets(secrets), read_manifest(folder)
    vocabulary, shapes = read_lists(folder)
    check_manifest(manifest, kept, vocabulary, shapes)
    return Generated(manifest, kept, vocabulary, shapes)


def read_lists(folder: Path) -> tuple[Vocabulary, Shapes]:
    """The word lists and the shapes of a site's folder."""
    return read_vocabulary(folder), read_shapes(folder / SHAPES_FILE)
