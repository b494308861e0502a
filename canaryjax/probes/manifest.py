"""The pinned identity of an audit's canaries: written once, held against at every later run (PA-4)."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from canaryjax.config.probes import CanariesConfig
from canaryjax.errors import UserError
from canaryjax.probes.records import Canary
from canaryjax.runlog.files import encode, read_json, replacing

SCHEMA = "canaryjax.canaries/1"


def manifest_of(canaries: Sequence[Canary], config: CanariesConfig) -> dict[str, Any]:
    """What pins canaries: one hash of them all, and one of each, so that a change is named."""
    each = [_digest(_form(canary)) for canary in canaries]
    return {
        "schema": SCHEMA,
        "modality": canaries[0].modality,
        "prefix": config.prefix,
        "count": len(canaries),
        "canaries": each,
        "sha256": _digest(each),
    }


def pin(path: Path, manifest: dict[str, Any]) -> Literal["pinned", "verified"]:
    """Writes a manifest where there is none; elsewhere it must be the same.

    Raises:
      UserError: Another manifest stands there; the first canary that differs is named. Or it cannot be written.
    """
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as handle:
                handle.write(encode(manifest, indent=1)[0] + b"\n")
        except OSError as error:
            raise UserError(
                f"expected to write the manifest {path}, found: {error.strerror or error}; make room, give access, or "
                "name another file in canaries.manifest"
            ) from None
        return "pinned"
    kept = read_json(path)
    if kept == manifest:
        return "verified"
    raise UserError(
        f"expected the canaries that {path} was written for, found others: {_difference(kept, manifest)}; restore the "
        "section canaries of the config, or name another file in canaries.manifest"
    )


def _difference(kept: Any, manifest: dict[str, Any]) -> str:
    if not isinstance(kept, dict) or kept.get("schema") != SCHEMA:
        return f"the file is no manifest ({SCHEMA})"
    for key in ("modality", "prefix", "count"):
        if kept.get(key) != manifest[key]:
            return f"{key} is {manifest[key]!r} now and was {kept.get(key)!r}"
    old = kept.get("canaries")
    old = old if isinstance(old, list) else []
    differing = [index for index, digest in enumerate(manifest["canaries"]) if old[index : index + 1] != [digest]]
    if differing:
        return f"{len(differing)} of {manifest['count']} differ, canary {differing[0]} first"
    return "its own hashes do not agree with each other"


def _form(canary: Canary) -> list[Any]:
    segments = [[segment.name, segment.start, segment.end] for segment in canary.segments]
    return [canary.index, canary.modality, canary.prompt, canary.target, segments]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()).hexdigest()
