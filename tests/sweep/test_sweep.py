"""A real sweep at the smallest size: two cells that share base and warm start, the page over them, and executors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from canaryjax.audit.study import run_study
from canaryjax.cli.sweep import WORKER
from canaryjax.config import config_hash
from canaryjax.report.sweep_page import sweep_rows
from canaryjax.runlog import RunDirectory, Silence
from canaryjax.sweep.cells import make_cells
from canaryjax.sweep.check import check_cells
from canaryjax.sweep.execute import in_process
from canaryjax.sweep.file import read_sweep
from canaryjax.sweep.processes import in_processes
from canaryjax.sweep.run import open_sweep, run_sweep
from canaryjax.sweep.share import share_machine

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

SMALL = (
    *("policy.num_generations=2", "policy.generation_batch_size=8", "policy.train_batch_size=8"),
    *("model.warm_start.documents=8", "model.warm_start.batch_size=8", "study.policies_per_chunk=1"),
    *("evaluation.max_pairs=5", "evaluation.control_pairs=2", "evaluation.noise_floor_pairs=2"),
)


class Heard(Silence):
    """Keeps what was said."""

    def __init__(self, listen=lambda text: None):
        self.said, self._listen = [], listen

    def note(self, text):
        self.said.append(text)
        self._listen(text)


@pytest.fixture(scope="module")
def file(tiny_model_folder):
    return read_sweep("tiny", [f"model.path={tiny_model_folder}", *SMALL])


@pytest.fixture(scope="module")
def swept(file, tmp_path_factory):
    cells, progress = make_cells(file), Heard()
    root = open_sweep(file, cells, tmp_path_factory.mktemp("sweep") / "out", False)
    check_cells(cells, progress.note)
    outcomes = run_sweep(file, cells, root, progress, in_process(root.path, progress))
    root.close()
    assert [(outcome.status, outcome.error) for outcome in outcomes] == [("done", None)] * 2
    return root.path, cells, progress.said


def test_each_cell_is_an_ordinary_run(swept):
    path, cells, _ = swept
    for cell in cells:
        folder = path / "cells" / cell.name
        report = json.loads((folder / "report.json").read_text())
        assert report["schema"] == "canaryjax.audit/1"
        assert report["config_hash"] == config_hash(cell.config)
        assert report["command"].startswith("bin/audit quick ")
        run = RunDirectory.resume(folder, config_hash(cell.config), cell.config.to_yaml())
        again = run_study(cell.config, run, True, Silence())
        run.close()
        assert again["arms"] == report["arms"]


def test_the_second_cell_takes_the_first_ones_warm_start_and_gets_the_same_numbers(swept, tmp_path):
    path, cells, said = swept
    assert said.count("the warm start is that of an earlier study of this process") == 1
    first, second = (path / "cells" / cell.name for cell in cells)
    weights = [(folder / "warm_start" / "adapter_model.safetensors").read_bytes() for folder in (first, second)]
    assert weights[0] == weights[1]
    # Alone it trains its own, and nothing of what it finds differs.
    config = cells[1].config
    run = RunDirectory.create(tmp_path / "alone", config.name, config_hash(config), config.to_yaml())
    alone = run_study(config, run, False, Silence())
    run.close()
    assert (tmp_path / "alone" / "warm_start" / "adapter_model.safetensors").read_bytes() == weights[1]
    shared = json.loads((second / "report.json").read_text())
    assert json.loads(json.dumps(alone["arms"])) == shared["arms"]


def test_summary_and_page_hold_what_the_reports_say(swept):
    path, cells, _ = swept
    sweep = json.loads((path / "sweep.json").read_text())
    assert sweep["counts"] == {"done": 2, "failed": 0, "not run": 0}
    assert sweep["varied"] == {"canary.rate": [0, 0.5]}
    for cell, row, kept in zip(cells, sweep_rows(sweep), sweep["cells"], strict=True):
        report = json.loads((path / "cells" / cell.name / "report.json").read_text())
        found = kept["found"]
        assert found["auroc"] == report["detection"]["auroc"]
        assert found["tpr"] == report["detection"]["tpr"]
        for arm in ("compliant", "violating"):
            assert found["arms"][arm]["mean_score"] == report["mechanism"][arm]["amplification"]
            assert found["arms"][arm]["rm_bias"] == report["mechanism"][arm]["rm_bias"]
            assert found["arms"][arm]["scores"] == report["arms"][arm]["scores"]
            assert found["utility"][arm]["exact_match"] == report["utility"][arm]["exact_match"]
        assert found["warnings"] == report["warnings"]
        assert row.cells[1][0] == f"{report['detection']['auroc']:.2f}"
        assert row.cells[2] == ["not available"]  # one compliant policy sets no threshold
    # The cell at rate 0 is RL without canaries; trial by trial, on the same questions.
    (compared,) = sweep["utility_comparison"]["comparisons"]
    assert (compared["cell"], compared["without"], compared["design"]) == (cells[1].name, cells[0].name, "paired")
    plain, planted = (json.loads((path / "cells" / cell.name / "report.json").read_text())["arms"] for cell in cells)
    for arm in ("compliant", "violating"):
        assert plain[arm]["trials"] == planted[arm]["trials"]
        assert plain[arm]["base_utility"] == planted[arm]["base_utility"]
        change = planted[arm]["utility"]["token_f1"][0] - plain[arm]["utility"]["token_f1"][0]
        assert compared["arms"][arm]["token_f1"]["difference"] == pytest.approx(change)
        assert compared["arms"][arm]["token_f1"]["reason"] == "needs at least 2 units, found 1"
    page = (path / "sweep.html").read_text()
    table, rest = page.split('<section id="panels">')
    panels = rest.split("</section>")[0]
    assert table.count('<th scope="row">') == panels.count('<th scope="row">') == 2
    assert "No test: a test needs 2 valid violating policies in each cell, found 0\u00a0% 1, 50\u00a0% 1." in panels
    (panel,) = sweep["panels"]
    for level, cell in zip(panel["levels"], sweep["cells"], strict=True):
        assert level["cell"] == cell["name"]
        assert level["arms"]["violating"]["mean"] == cell["found"]["arms"]["violating"]["mean_score"]
        assert level["arms"]["violating"]["trials"] == cell["found"]["arms"]["violating"]["trials"]
    assert "trial k has the same documents" in page  # the seed is shared
    assert not re.search(r'(src|href)="(?!data:|cells/)', page)  # opens offline


def _same(one, other, cells):
    """Every number of the policies, to the last bit."""
    for cell in cells:
        first, second = (path / "cells" / cell.name for path in (one, other))
        arms = [json.loads((folder / "report.json").read_text())["arms"] for folder in (first, second)]
        assert arms[0] == arms[1]
        for name in ("scores.jsonl", "pairs.parquet", "warm_start/adapter_model.safetensors"):
            assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_two_worker_processes_find_the_same_numbers(file, swept, tmp_path):
    path, cells, _ = swept
    progress = Heard()
    root = open_sweep(file, cells, tmp_path / "out", False)
    execute = in_processes(root.path, progress, share_machine(2, cells), WORKER)
    outcomes = run_sweep(file, cells, root, progress, execute)
    root.close()
    assert [(outcome.status, outcome.error) for outcome in outcomes] == [("done", None)] * 2
    _same(path, root.path, cells)
    # Each process trained its own warm start, and they are equal.
    assert {f"{cell.name}: warm start" for cell in cells} <= set(progress.said)


def test_a_ray_cluster_that_dies_leaves_a_sweep_that_another_ends_with_the_same_numbers(
    local_ray, file, swept, tiny_model_folder, tmp_path
):
    path, cells, _ = swept
    words = [sys.executable, "-m", "canaryjax.sweep", "tiny", f"model.path={tiny_model_folder}", *SMALL]
    words += ["--out", str(tmp_path / "out"), "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0"}
    said = []
    with subprocess.Popen(
        [*words, "--ray", local_ray.address], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            said.append(line.strip())
            if said[-1].endswith(": policies"):  # they are being trained
                local_ray.shut_down()
    assert process.returncode == 2
    assert "to last until every cell has ended, found that" in said[-1]
    assert json.loads((tmp_path / "out/sweep.json").read_text())["counts"] == {"done": 0, "failed": 0, "not run": 2}
    again = subprocess.run([*words, "--ray", "local", "--resume"], env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "2 of 2 cells are done." in again.stdout
    _same(path, tmp_path / "out", cells)
