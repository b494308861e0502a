"""What an audit was begun with beyond its config: the base's files and the user's rows, the same at every resume."""

from pathlib import Path

from canaryjax.config.probes import ProbesConfig
from canaryjax.runlog import OPENING_FILE, RunDirectory, file_digests
from canaryjax.runlog.opening import read_opening, refuse_changed
from canaryjax.weights.checkpoint import model_files, model_location


def open_audit(config: ProbesConfig, run: RunDirectory) -> None:
    """Keeps digests of what a run is begun with, or holds them against what is there now.

    Models of one audit are compared with each other, so all must stand on one base and be tuned on one file of rows.

    Raises:
      UserError: The run was begun with other contents at the same paths, or no longer says with what.
    """
    rows = {
        source.name: next(iter(file_digests([Path(source.path)]).values()))
        for source in config.tuning.sources
        if source.path is not None
    }
    now = {"base_sha256": file_digests(model_files(model_location(config.model.path))), "rows_sha256": rows}
    begun = read_opening(run)
    if begun is None:
        run.write_sealed(OPENING_FILE, now)
        return
    refuse_changed(run, "base model", begun["base_sha256"], now["base_sha256"])
    refuse_changed(run, "rows of tuning.sources", begun["rows_sha256"], now["rows_sha256"])
