"""All that wants an accelerator, in under eight minutes: `python benchmarks/gpu_check.py [--json FILE] [STAGE ...]`.

The tests marked `gpu`, two large models with random weights in bfloat16, and our side of the benchmarks. Without an
accelerator all of it runs at tiny sizes, which says that it works and nothing about speed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from canaryjax.errors import UserError
from harness.command import Parser, check_writable, run_script

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 460  # of all stages together on an accelerator
STAGES: dict[str, tuple[str, ...]] = {
    "tests": ("-m", "pytest", "-q", "-s", "-m", "gpu", "tests/gpu"),
    "gemma_2b": ("benchmarks/large_model.py", "gemma_2b"),
    "qwen2_5_1_5b": ("benchmarks/large_model.py", "qwen2_5_1_5b"),
    "grpo_step": ("benchmarks/grpo_step.py",),
    "rollout": ("benchmarks/rollout.py",),
    "scoring": ("benchmarks/scoring.py",),
    "policies": ("benchmarks/policies.py", "--against", "alone"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the stages one after another, each in a process of its own, and returns the exit status."""
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="add each stage's results to it as the stage ends, one object a line"
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"among {', '.join(STAGES)}; all by default")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.stages) - set(STAGES))
    if unknown:
        raise UserError(f"expected stages among {list(STAGES)}; found {unknown}; correct them")
    if options.json is not None:
        check_writable(options.json)
    device = _device()
    tiny = device.startswith("cpu")
    print(f"gpu-check: {device}" + ("; no accelerator: tiny sizes, no number below says anything" if tiny else ""))
    began, failed = time.monotonic(), []
    for name in options.stages or STAGES:
        left = None if tiny else SECONDS - (time.monotonic() - began)
        found, why = _run(name, tiny, left)
        if options.json is not None:  # at once: what comes after may be stopped
            with options.json.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in found)
        for line in found:
            print(f"{name}: {summary(json.loads(line))}", flush=True)
        if why:
            failed.append(name)
            print(f"{name}: {why}", flush=True)
    print(f"gpu-check: {'failed: ' + ', '.join(failed) if failed else 'passed'}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _device() -> str:
    """Platform and kind of the first device, asked for in a process that ends: memory must be free for the stages."""
    ask = "import jax; d = jax.devices()[0]; print(d.platform + ':', d.device_kind)"
    # Unfiltered, a traceback ends with its message, not with a note on the filter.
    environ = os.environ | {"JAX_TRACEBACK_FILTERING": "off"}
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, env=environ)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise UserError(f"expected a device that JAX can use; found: {said[-1]}; check JAX_PLATFORMS and the driver")
    return done.stdout.strip()


def _run(name: str, tiny: bool, left: float | None) -> tuple[list[str], str]:
    """The lines of one stage's results, and why it failed, if it did."""
    if left is not None and left <= 0:
        return [], "left out, the time is up"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.jsonl"
        command = [sys.executable, *STAGES[name]]
        if name != "tests":
            command += ["--json", str(file), *(["--tiny"] if tiny else [])]
        try:
            done = subprocess.run(
                command, cwd=ROOT, timeout=left, stdout=None if name == "tests" else subprocess.DEVNULL
            )
            why = f"ended with status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = "stopped, the time is up"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return lines, why


def summary(row: Mapping[str, Any]) -> str:
    """One line on a result: sizes that tell rows apart, seconds, and what they mean against the device's limits."""
    found, shape = row["detail"], row["shape"]
    said = [f"{name} {shape[name]}" for name in ("policies", "vocab") if name in shape]
    said += [f"{row['ours_s']:.3g} s"] + ([f"{row['ratio']:.3g} x {row['peer']}"] if row["ratio"] else [])
    for name, form in (
        ("score_mfu", "scoring at {:.1%} of the stated peak"),
        ("update_mfu", "update at {:.1%} of it"),
        ("score_matmul_share", "scoring at {:.1%} of the measured matmul rate"),
        ("update_matmul_share", "update at {:.1%} of it"),
        ("gradient_matmul_share", "gradient at {:.1%} of the measured matmul rate"),
        ("decode_tokens_per_s", "{:,.0f} tokens/s in decode"),
        ("policies_per_hour", "{:.3g} policies an hour of 100 rollouts"),
        ("compile_s", "{:.0f} s compiling"),
    ):
        if found.get(name) is not None:
            said.append(form.format(found[name]))
    for name, word in (
        ("matmul_flops_per_s", "GFLOP/s in products"),
        ("decode_bytes_per_s", "GB/s in decode"),
        ("copy_bytes_per_s", "GB/s copied"),
        ("peak_memory_bytes", "GB of memory at most"),
    ):
        if name in found:
            said.append(f"{'unknown' if found[name] is None else format(found[name] / 1e9, ',.3g')} {word}")
    return ", ".join(said)


if __name__ == "__main__":
    run_script(main)
