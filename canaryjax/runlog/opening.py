"""What a run was begun with, read when it is taken up again; what must be the same is held against it."""

from collections.abc import Mapping
from typing import Any

from canaryjax.errors import UserError
from canaryjax.runlog.directory import OPENING_FILE, RunDirectory

REMEDY = "restore it, or give another --out"


def read_opening(run: RunDirectory) -> dict[str, Any] | None:
    """What a run was begun with, or None where nothing of it was made yet.

    Raises:
      UserError: The file is damaged, or is not there beside what was made.
    """
    if (run.path / OPENING_FILE).is_file():
        return run.read_sealed(OPENING_FILE, REMEDY)
    if run.begun:
        raise UserError(
            f"expected {OPENING_FILE} in {run.path} beside {', '.join(run.begun[:4])}, found none: what they were made "
            f"with is not known; {REMEDY}"
        )
    return None


def refuse_changed(run: RunDirectory, what: str, begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises UserError where files have other contents than when a run was begun, or are others; digests by name."""
    changed = sorted(name for name in begun.keys() | now.keys() if begun.get(name) != now.get(name))
    if changed:
        raise UserError(
            f"expected the {what} that {run.path} was begun with, found other contents in {', '.join(changed[:4])}; "
            f"give the same {what} to resume, or another --out"
        )
