"""One study from its start to its page, as `audit` runs it and as a sweep runs each cell."""

import contextlib
from pathlib import Path
from typing import Any

from canaryjax import report
from canaryjax.audit import study
from canaryjax.audit.shelf import BaseShelf
from canaryjax.config import AuditConfig
from canaryjax.errors import UserError
from canaryjax.rl.step_profile import StepProfile
from canaryjax.runlog import Progress, RunDirectory, disk_is_full


def run_to_report(
    config: AuditConfig,
    run_dir: RunDirectory,
    resume: bool,
    progress: Progress,
    command: str,
    profile: StepProfile | None = None,
    shelf: BaseShelf | None = None,
) -> Path:
    """Runs a study and writes `report.json` and `report.html`; a mistake before any training leaves no directory.

    Args:
      config: The study.
      run_dir: Where it is kept.
      resume: Whether earlier records count.
      progress: Told about stages and policies.
      command: What runs it, for the report.
      profile: Traces a few steps.
      shelf: What earlier studies of this process have loaded.

    Returns:
      The path of the page.

    Raises:
      UserError: As `run_study`.
    """
    try:
        values: dict[str, Any] = study.run_study(config, run_dir, resume, progress, profile, shelf)
    except UserError as error:
        if not disk_is_full(error.__cause__):  # the one mistake that a run is told to be taken up again after
            run_dir.discard_unused()
        raise
    except BaseException:  # a stop: the time it took counts in the run's
        with contextlib.suppress(UserError):
            run_dir.keep_time()
        raise
    values.setdefault("command", command)
    run_dir.write_json("report.json", values)
    progress.stage("report")
    return report.render_report(run_dir.path)
