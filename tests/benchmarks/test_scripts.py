"""The benchmarks as they are called, at sizes that say nothing about speed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WITH_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("peft") is not None


def run(name, *words, **environ):
    """Exit status, records and messages of one benchmark."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / f"{name}.py", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environ,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo_step", "ppo_step", "rollout", "scoring"])
def test_ours_agrees_with_transformers(name, tmp_path):
    status, records, messages = run(name, "--tiny", "--against", "transformers", "--json", str(tmp_path / "out.json"))
    assert status == 0, messages
    assert records == [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    for record in records:
        assert record["name"] == name
        assert record["ours_s"] > 0
        if WITH_TORCH:
            assert record["agreement"]["holds"], record["agreement"]
            assert record["ratio"] == pytest.approx(record["peer_s"] / record["ours_s"])
        else:
            assert "not installed" in record["skipped"]


def test_an_interval_agrees_with_scipys_and_the_rest_is_timed():
    status, (record,), messages = run("intervals", "--tiny", "--against", "scipy")
    assert status == 0, messages
    assert record["agreement"]["checks"]["auroc_bounds"]["difference"] < 6e-3
    assert record["detail"]["statistics_s"] > 0


@pytest.mark.slow
def test_a_step_says_where_its_time_goes():
    status, (record,), messages = run("grpo_step", "--tiny", "--against", "tunix", TUNIX_PYTHON="no/such/python")
    assert status == 0, messages
    assert record["skipped"] == "not installed: a Python of its own"
    found = record["detail"]
    assert min(found[name] for name in ("rollout_s", "reference_s", "gradient_s", "copy_bytes_per_s")) > 0
    assert found["gradient_matmul_share"] == pytest.approx(
        found["gradient_flops"] / found["gradient_s"] / found["matmul_flops_per_s"]
    )


@pytest.mark.slow
def test_a_trainer_that_a_release_lacks_is_skipped():
    # TRL dropped its PPOTrainer; asking for a part of a package that is not there must not end the benchmark either.
    status, records, messages = run("ppo_step", "--tiny", "--against", "trl", "--group", "2")
    assert status == 0, messages
    assert [record["shape"]["group"] for record in records] == [2]
    assert "trl.experimental.ppo" in records[0]["skipped"]


@pytest.mark.slow
def test_policies_together_equal_policies_alone():
    status, records, messages = run("policies", "--tiny", "--against", "alone")
    assert status == 0, messages
    assert [record["shape"]["policies"] for record in records] == [1, 3]
    assert all(record["agreement"]["holds"] for record in records)


@pytest.mark.slow
def test_planned_memory_is_stated_for_each_size():
    status, records, messages = run("memory", "--tiny")
    assert status == 0, messages
    assert [record["shape"]["vocab"] for record in records[:2]] == [2049, 4097]
    assert all(record["detail"]["gradient_bytes"] > record["detail"]["forward_bytes"] > 0 for record in records)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "transformers,nobody"), "expected peers among ['transformers'], found ['nobody']"),
        (("--json", "no/such/folder/out.json"), "expected a folder for no/such/folder/out.json, found none"),
        (("--threads", "4096"), "found --threads 4096"),
        (("--completion", "0"), "expected a number of at least 1, found 0"),
    ],
)
def test_a_users_mistake_is_one_line_and_status_2(words, said):
    status, records, messages = run("rollout", "--tiny", *words)
    assert (status, records) == (2, [])
    assert said in messages
    assert "Traceback" not in messages
