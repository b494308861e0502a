"""The accelerator's check where there is none: it passes at tiny sizes and says so."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import gpu_check
from canaryjax.cli.stop import Stopped
from canaryjax.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def check(*words):
    environ = os.environ | {"GPU_CHECK_PYTHON": sys.executable}
    return subprocess.run([ROOT / "bin" / "gpu-check", *words], capture_output=True, text=True, env=environ)


@pytest.mark.slow
def test_it_passes_on_a_cpu_and_says_that_it_is_one(tmp_path):
    if jax.default_backend() != "cpu":
        pytest.skip("has an accelerator: there, bin/gpu-check takes minutes at full size and is run by itself")
    done = check("--json", str(tmp_path / "found.jsonl"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no accelerator: tiny sizes" in done.stdout
    assert "gpu-check: passed" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert {row["name"] for row in rows} == {"large_model", "grpo_step", "rollout", "scoring", "policies"}
    for row in rows[:2]:
        assert row["dtype"] == "bfloat16"
        assert row["detail"]["score_mfu"] is None  # a CPU has no stated peak here
        assert min(row["detail"][name] for name in ("decode_bytes_per_s", "policies_per_hour", "compile_s")) > 0


def test_a_stage_that_fails_fails_the_check(monkeypatch, capsys):
    monkeypatch.setitem(gpu_check.STAGES, "rollout", ("-c", "raise SystemExit(3)"))
    assert gpu_check.main(["rollout"]) == 1
    said = capsys.readouterr().out
    assert "rollout: ended with status 3" in said
    assert "failed: rollout" in said


def test_a_check_that_is_stopped_keeps_the_stages_that_ended(monkeypatch, tmp_path):
    row = {"detail": {}, "shape": {}, "ours_s": 1.25, "ratio": None, "peer": None}

    def run(name, tiny, left):
        if name == "scoring":
            raise Stopped(signal.SIGINT)
        return [json.dumps(row)], ""

    monkeypatch.setattr(gpu_check, "_run", run)
    monkeypatch.setattr(gpu_check, "_device", lambda: "cpu: some processor")
    file = tmp_path / "found.jsonl"
    with pytest.raises(Stopped):
        gpu_check.main(["--json", str(file), "rollout", "grpo_step", "scoring"])
    assert [json.loads(line) for line in file.read_text().splitlines()] == [row, row]


def test_a_file_that_cannot_be_written_is_refused_before_any_stage(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "_device", lambda: pytest.fail("asked for the device"))
    with pytest.raises(UserError, match="found a folder"):
        gpu_check.main(["--json", str(tmp_path), "rollout"])


def test_a_device_that_jax_does_not_find_is_named(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "nope")
    with pytest.raises(UserError, match=r"expected a device that JAX can use; found: .*'nope'") as caught:
        gpu_check.main(["grpo_step"])
    assert "\n" not in str(caught.value)


def test_a_python_that_is_not_there_is_one_line():
    environ = os.environ | {"GPU_CHECK_PYTHON": "/nope"}
    done = subprocess.run([ROOT / "bin" / "gpu-check"], capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("canaryjax: error: expected GPU_CHECK_PYTHON to name a Python")
    assert done.stderr.count("\n") == 1
    assert "/nope" in done.stderr
    assert "not found" in done.stderr


def test_no_stage_runs_beyond_the_time_on_an_accelerator(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "_device", lambda: "gpu: some accelerator")
    monkeypatch.setattr(gpu_check, "SECONDS", 1)
    monkeypatch.setitem(gpu_check.STAGES, "rollout", ("-c", "import time; time.sleep(60)"))
    monkeypatch.setitem(gpu_check.STAGES, "scoring", ("-c", "raise SystemExit(0)"))
    assert gpu_check.main(["rollout", "scoring"]) == 1
    said = capsys.readouterr().out
    assert "rollout: stopped, the time is up" in said
    assert "scoring: left out, the time is up" in said


def test_a_summary_names_what_is_unknown():
    detail = {"score_mfu": 0.41, "update_matmul_share": 0.5, "decode_bytes_per_s": 2.5e12, "peak_memory_bytes": None}
    row = {"shape": {"policies": 4, "width": 22}, "ours_s": 1.25, "ratio": None, "peer": None, "detail": detail}
    assert gpu_check.summary(row) == (
        "policies 4, 1.25 s, scoring at 41.0% of the stated peak, update at 50.0% of it, "
        "2.5e+03 GB/s in decode, unknown GB of memory at most"
    )
