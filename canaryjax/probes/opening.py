"""What an audit was begun with beyond its config: the base's files and the user's rows, the same at every resume."""

from pathlib import Path
from typing import Any

from canaryjax.config.probes import ProbesConfig
from canaryjax.errors import UserError
from canaryjax.runlog import file_digests
from canaryjax.runlog.directory import OPENING_FILE, RunDirectory
from canaryjax.weights.checkpoint import model_files, model_location

REMEDY = "restore it, or give another --out"


def open_audit(config: ProbesConfig, run: RunDirectory) -> None:
    """Keeps digests of what a run is begun with, or holds them against what is there now.

    Models of one audit are compared with each other, so all must stand on one base and be tuned on one file of rows.

    Raises:
      UserError: The run was begun with other contents at the same paths, or no longer says with what.
    """
    now = _digests(config)
    if not (run.path / OPENING_FILE).is_file():
        if run.begun:
            raise UserError(
                f"expected {OPENING_FILE} in {run.path} beside {', '.join(run.begun[:4])}, found none: what they were "
                f"made with is not known; {REMEDY}"
            )
        run.write_sealed(OPENING_FILE, now)
        return
    before = run.read_sealed(OPENING_FILE, REMEDY)
    for key, what in (("base_sha256", "base model"), ("rows_sha256", "rows of tuning.sources")):
        old, new = before[key], now[key]
        changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        if changed:
            raise UserError(
                f"expected the {what} that {run.path} was begun with, found other contents in "
                f"{', '.join(changed[:4])}; give the same to resume, or another --out"
            )


def _digests(config: ProbesConfig) -> dict[str, Any]:
    rows = {}
    for source in config.tuning.sources:
        if source.path is not None:
            rows[source.name] = next(iter(file_digests([Path(source.path)]).values()))
    return {"base_sha256": file_digests(model_files(model_location(config.model.path))), "rows_sha256": rows}
