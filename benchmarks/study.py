"""The whole quick audit by stage: a first start that compiles everything, and a second from the compilation cache."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.command import parse, run_script
from harness.record import environment, finish, result

RUN = Path(__file__).parent / "sides" / "study_run.py"
TINY = (
    *("data.documents=40", "data.rm_share=0.442", "data.eval_share=0.3", "study.compliant=1", "study.violating=1"),
    *("reward_model.sampled_responses=2", "reward_model.constructed_responses=2", "reward_model.epochs=1"),
    *("evaluation.max_pairs=2", "evaluation.control_pairs=2", "evaluation.decoys=1", "evaluation.utility_examples=2"),
    *("evaluation.placebos_same_form=1", "evaluation.placebos_other_form=1", "evaluation.noise_floor_pairs=2"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the audit twice, each in a fresh process, and returns the exit status."""
    options = parse(__doc__, (), arguments, sizes=(), timed=False)
    with tempfile.TemporaryDirectory() as folder:
        first = _audit(Path(folder), "first", options.tiny)
        second = _audit(Path(folder), "second", options.tiny)
    detail = {"first": first, "second": second, "compile_share": second["compile_s"] / first["compile_s"]}
    return finish([result("study", {}, environment(), [second["total_s"]], detail)], options.json)


def _audit(folder: Path, name: str, tiny: bool) -> dict[str, Any]:
    """Seconds of one audit, with the report's own by stage; both audits of a folder share one cache."""
    out, seconds = folder / name, folder / f"{name}.json"
    environ = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, RUN, out, seconds, *(TINY if tiny else ())]
    subprocess.run(command, env=environ, check=True, stdout=sys.stderr)
    return json.loads(seconds.read_text()) | {"stages": json.loads((out / "report.json").read_text())["timings"]}


if __name__ == "__main__":
    run_script(main)
