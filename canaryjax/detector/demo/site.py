"""The demo's site as `canaryjax detector` makes one: lists, secrets, and sentences dealt to their places."""

import datetime
import os
from pathlib import Path

from canaryjax.detector.demo.lists import make_demo_site
from canaryjax.detector.design import NONCE_BYTES, Sizes
from canaryjax.detector.manifest import make_manifest, write_manifest
from canaryjax.detector.secret import make_secrets, read_secrets
from canaryjax.detector.shapes import read_shapes
from canaryjax.detector.vocabulary import SHAPES_FILE, read_vocabulary

# Enough a rung for a curve, and a few of each other place that a report has a table for.
SIZES = Sizes(site=8, linked=3, sitemap=3, honeypot=3, per_rung=8, negatives=20)


def make_dealt_site(folder: Path, secrets: Path, seed: int) -> None:
    """Makes word lists and secrets in new folders and deals the sentences; secrets and deal differ each time.

    Args:
      folder: For lists, shapes, manifest and commitment.
      secrets: For the three keys.
      seed: Of the word lists.
    """
    make_demo_site(folder, seed)
    make_secrets(secrets)
    made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    vocabulary, shapes = read_vocabulary(folder), read_shapes(folder / SHAPES_FILE)
    nonce = os.urandom(NONCE_BYTES)
    write_manifest(folder, make_manifest(read_secrets(secrets), vocabulary, shapes, SIZES, nonce, made, True))
