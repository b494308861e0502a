"""Runs the audit command again and again, each time in a process of its own that may be killed at any moment.

Reads a JSON list of arguments a line. Each run is a fork, so that imports are paid for once; JAX is not used before.
What it does is told on standard output as it begins, one event a line: `step STAGE NUMBER WHO`, `save WHO/STAGE STEP`,
`saved WHO/STAGE STEP`, `measure NAME WHO`, `write FILE`, `report`; first `pid NUMBER`, and `end STATUS` after the run.
"""

import json
import os
import sys
import threading
import traceback
import warnings

import matplotlib.pyplot  # noqa: F401  the rest is for the imports: what a run would import by and by
import orbax.checkpoint  # noqa: F401

from canaryjax.audit import chunk, study
from canaryjax.cli import app, audit, progress  # noqa: F401
from canaryjax.report import page
from canaryjax.rl.metrics import MetricLog
from canaryjax.runlog import RunDirectory
from canaryjax.weights.state_store import StateStore

here = threading.local()


def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # at once and whole, whoever else writes


def before(owner, name, words):
    """Makes a function tell what `words` gives of its arguments before it runs."""
    real = getattr(owner, name)

    def telling(*args, **kwargs):
        tell(*words(*args))
        return real(*args, **kwargs)

    setattr(owner, name, telling)


def who():
    return getattr(here, "who", "warm_start")


def watched():
    """The run's steps, saves, measurements and files become events."""
    real = study.run_chunk

    def run_chunk(config, base, arm, trials, *rest):
        here.who = f"{trials[0].trial:04d}"
        return real(config, base, arm, trials, *rest)

    study.run_chunk = run_chunk
    before(MetricLog, "add", lambda log, step, metrics: ("step", log._stage, step, who()))
    write = StateStore._write

    def telling(store, step, *rest):
        where = f"{store._folder.parent.name}/{store._folder.name}"
        tell("save", where, step)
        write(store, step, *rest)
        tell("saved", where, step)

    StateStore._write = telling
    for name in ("score_cells", "noise_floor", "reward_bias", "measure_utility"):
        before(chunk, name, lambda *_, name=name: ("measure", name, who()))
    before(RunDirectory, "write_bytes", lambda run, name, data: ("write", name))
    before(page, "draw_figures", lambda run: ("report",))


def run(words):
    watched()
    with open(os.devnull, "w") as nowhere, open(words.pop(0), "a") as said:
        sys.stdout, sys.stderr = nowhere, said
        try:
            app.main(words)
        except SystemExit as end:
            return end.code
        except BaseException:
            traceback.print_exc()
        return 70


def main():
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(run(json.loads(line)))
        tell("pid", child)
        _, status = os.waitpid(child, 0)
        tell("end", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
