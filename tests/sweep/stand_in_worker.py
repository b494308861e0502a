"""A worker whose cells train nothing: what happens in each is said by CELLS, a JSON object by cell name."""

import ctypes
import json
import os
import signal
import sys
import time
import types

import canaryjax.sweep
from canaryjax.cli import worker
from canaryjax.config import config_hash
from canaryjax.errors import UserError

FATES = json.loads(os.environ.get("CELLS", "{}"))


def run_to_report(config, run_dir, resume, progress, command, profile, shelf):
    run_dir.write_json("trials/0000.json", {"resumed": resume, "worker": os.getpid()})
    progress.stage("policies", 20)
    progress.advance(1, "trial 0")
    print("a library's word on stdout")
    fate = FATES.get(run_dir.path.name, "")
    if fate == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fate == "segfault":
        ctypes.string_at(0)
    if fate == "fault":
        raise RuntimeError("ours")
    if fate == "full":
        raise UserError("expected room") from OSError(28, "No space left on device")
    if fate == "wait":
        run_dir.write_text("waiting.txt", "")
        time.sleep(600)
    seen = {"cores": sorted(os.sched_getaffinity(0)), "threads": os.environ["PJRT_NPROC"]}
    seen |= {"sharers": os.environ["CANARYJAX_SHARERS"], "worker": os.getpid(), "process_group": os.getpgid(0)}
    run_dir.write_json("report.json", {"config_hash": config_hash(config), "warnings": [], "seen": seen})
    run_dir.write_text("report.html", "a page")


# In the place of the module, whose imports take most of a worker's start.
canaryjax.sweep.single = types.SimpleNamespace(run_to_report=run_to_report)
sys.modules["canaryjax.sweep.single"] = canaryjax.sweep.single
worker.main()
