"""One result as one JSON object on one line."""

import datetime
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from canaryjax.runlog import cores, provenance
from harness.agreement import Agreement
from harness.shape import Shape

PEER_PACKAGES = ("torch", "peft", "trl", "accelerate", "google-tunix", "qwix")


def environment() -> dict[str, Any]:
    """What every result states beside its numbers: device, threads, versions, commit, day."""
    found = provenance("float32")
    platform = found["device"]["platform"]
    versions = found["versions"] | {name: _version(name) for name in PEER_PACKAGES}
    return {
        "dtype": "float32",
        "device": f"{platform}: {_processor() if platform == 'cpu' else found['device']['kind']}, {cores()} threads",
        "versions": {name: version for name, version in versions.items() if version is not None},
        "commit": found["git"],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def result(
    name: str,
    shape: Shape | Mapping[str, Any],
    surroundings: Mapping[str, Any],
    ours: Sequence[float],
    detail: Mapping[str, Any] | None = None,
    *,
    peer: str = "",
    theirs: Sequence[float] = (),
    agreement: Agreement | None = None,
    skipped: str | None = None,
) -> dict[str, Any]:
    """The record of one comparison, or of our side alone.

    A ratio is above 1 where ours is faster; it is null where the two do not compute the same thing.

    Args:
      name: Of the benchmark.
      shape: Sizes by name.
      surroundings: From `environment`.
      ours: Seconds of each run of ours; none where nothing is timed.
      detail: What else was measured on our side.
      peer: Whom ours was compared with; empty when with nobody.
      theirs: Seconds of each run of the peer.
      agreement: Whether both computed the same.
      skipped: Why the peer was not run.
    """
    ours_s = statistics.median(ours) if ours else None
    peer_s = statistics.median(theirs) if theirs else None
    sound = agreement is not None and agreement.holds
    return {
        "name": name,
        "shape": shape.record() if isinstance(shape, Shape) else dict(shape),
        "dtype": surroundings["dtype"],
        "device": surroundings["device"],
        "ours_s": ours_s,
        "peer": peer or None,
        "peer_s": peer_s,
        "ratio": peer_s / ours_s if peer_s and ours_s and sound else None,
        "agreement": None if agreement is None else agreement.record(),
        "skipped": skipped,
        "runs": {"ours_s": list(ours), "peer_s": list(theirs)},
        "detail": dict(detail or {}),
        "versions": surroundings["versions"],
        "commit": surroundings["commit"],
        "date": surroundings["date"],
    }


def finish(records: Sequence[Mapping[str, Any]], file: Path | None) -> int:
    """Prints each record on its line, and writes the same lines to a file where one is given.

    Returns:
      The exit status: 1 when a peer that was run does not agree with ours.
    """
    lines = [json.dumps(record, allow_nan=False) for record in records]
    for line in lines:
        print(line, flush=True)
    if file is not None:
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    agreed = all(record["agreement"]["holds"] for record in records if record["agreement"] is not None)
    return 0 if agreed else 1


def note(text: str) -> None:
    """Says something that is no result, beside the results."""
    print(f"benchmark: {text}", file=sys.stderr, flush=True)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
