"""One audit in a process of its own, which says how long XLA compiled: `study_run.py OUT RESULT [key=value ...]`."""

import json
import sys
import time
from pathlib import Path

from canaryjax.cli import main
from canaryjax.cli.startup import prepare

COMPILED = "/jax/core/compile/backend_compile_duration"  # taking a program from the cache counts as well


def run(out: str, result: str, *overrides: str) -> None:
    """Runs the quick audit and writes its seconds, as the clock and as the compiler saw them."""
    started = time.perf_counter()
    seconds: list[float] = []
    prepare()
    import jax

    def hear(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            seconds.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        main(["audit", "quick", *overrides, "--out", out])
    except SystemExit as end:
        if end.code:
            raise
    taken = time.perf_counter() - started
    Path(result).write_text(json.dumps({"total_s": taken, "compile_s": sum(seconds), "programs": len(seconds)}))


if __name__ == "__main__":
    run(*sys.argv[1:])
