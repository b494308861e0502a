"""Which cells are run, what their failures and a stop leave behind, and how the sweep goes on; no cell trains here."""

import errno
import json

import pytest

from canaryjax.cli import sweep as command
from canaryjax.config import config_hash
from canaryjax.config.load import SHIPPED_CONFIGS, SWEEPS
from canaryjax.errors import UserError
from canaryjax.report.sweep_page import SCHEMA, render_sweep
from canaryjax.runlog import Silence
from canaryjax.sweep import execute, single
from canaryjax.sweep.cells import make_cells
from canaryjax.sweep.execute import in_process
from canaryjax.sweep.file import read_sweep
from canaryjax.sweep.run import open_sweep, run_sweep

TEXT = "base: quick\ndescription: a <b> & c\ngrid: {canary.delta: [0.0, 0.5, 1.0]}"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "three.yaml").write_text(TEXT)
    return read_sweep(str(tmp_path / "three.yaml"), [])


@pytest.fixture
def trained(monkeypatch):
    """Stands in for the training of cells: which were asked for, and what happens in those that do not end well."""
    asked, faults = [], {}
    monkeypatch.setattr(command, "_current", {})  # what a command says after a stop, for one process

    def run_to_report(config, run_dir, resume, progress, command, profile, shelf):
        asked.append((run_dir.path.name, resume))
        run_dir.write_text("trials/0000.json", "{}")
        if fault := faults.get(run_dir.path.name):
            raise fault
        run_dir.write_json("report.json", {"config_hash": config_hash(config), "warnings": ["<i>odd</i>"]})
        run_dir.write_text("report.html", "a page")

    monkeypatch.setattr(single, "run_to_report", run_to_report)
    return asked, faults


def _run(file, out, resume=False):
    cells = make_cells(file)
    root = open_sweep(file, cells, out, resume)
    try:
        return run_sweep(file, cells, root, Silence(), in_process(root.path, Silence()))
    finally:
        root.close()


def _statuses(out):
    return {cell["name"]: cell["status"] for cell in json.loads((out / "sweep.json").read_text())["cells"]}


def test_a_cell_that_fails_does_not_stop_the_others(file, trained, tmp_path):
    asked, faults = trained
    faults |= {"delta-0.0": UserError("expected <one>,\nfound two"), "delta-0.5": RuntimeError("ours")}
    outcomes = _run(file, tmp_path / "out")
    assert [(o.status, o.error) for o in outcomes] == [
        *(("failed", "expected <one>, found two"), ("failed", "RuntimeError: ours"), ("done", None)),
    ]
    assert [name for name, _ in asked] == ["delta-0.0", "delta-0.5", "delta-1.0"]
    assert _statuses(tmp_path / "out") == {"delta-0.0": "failed", "delta-0.5": "failed", "delta-1.0": "done"}
    # A fault of ours can be looked into; the user's mistake has said all in its line.
    assert "Traceback" in (tmp_path / "out" / "errors" / "delta-0.5.txt").read_text()
    assert not (tmp_path / "out" / "errors" / "delta-0.0.txt").exists()
    page = (tmp_path / "out" / "sweep.html").read_text()
    assert "1 of 3 cells are done, 2 failed." in page
    assert "delta-0.0: expected &lt;one&gt;, found two" in page
    assert "failed (1 of 20 policies)" in page
    assert 'href="cells/delta-1.0/report.html"' in page
    assert "&lt;i&gt;odd" in page
    assert "<i>odd" not in page
    assert "a &lt;b&gt; &amp; c" in page


def test_resume_runs_what_is_not_done_and_takes_up_what_was_begun(file, trained, tmp_path):
    asked, faults = trained
    faults["delta-0.5"] = UserError("expected more, found less")
    _run(file, tmp_path / "out")
    assert asked == [("delta-0.0", False), ("delta-0.5", False), ("delta-1.0", False)]
    asked.clear()
    faults.clear()
    (tmp_path / "out" / "cells" / "delta-1.0" / "report.html").unlink()
    _run(file, tmp_path / "out", resume=True)
    assert asked == [("delta-0.5", True), ("delta-1.0", True)]
    assert set(_statuses(tmp_path / "out").values()) == {"done"}
    asked.clear()
    _run(file, tmp_path / "out", resume=True)
    assert asked == []
    # JSON of the right config, and yet no report: taken for done, the page would call it failed, and for ever.
    report = tmp_path / "out" / "cells" / "delta-0.5" / "report.json"
    report.write_text(json.dumps(json.loads(report.read_text()) | {"arms": {"violating": {"scores": "x"}}}))
    _run(file, tmp_path / "out", resume=True)
    assert asked == [("delta-0.5", True)]
    assert set(_statuses(tmp_path / "out").values()) == {"done"}
    asked.clear()
    report = tmp_path / "out" / "cells" / "delta-0.0" / "report.json"  # one that was copied from elsewhere
    report.write_text(json.dumps(json.loads(report.read_text()) | {"config_hash": "another"}))
    _run(file, tmp_path / "out", resume=True)
    assert asked == [("delta-0.0", True)]


def test_another_sweep_is_not_taken_up(file, trained, tmp_path):
    _run(file, tmp_path / "out")
    (tmp_path / "three.yaml").write_text(TEXT.replace("0.5", "0.6"))
    other = read_sweep(str(tmp_path / "three.yaml"), [])
    with pytest.raises(UserError, match=r"differing keys: .*cells\.delta-0\.6"):
        _run(other, tmp_path / "out", resume=True)
    with pytest.raises(UserError, match="to be new or empty"):
        _run(other, tmp_path / "out")


def test_a_stop_leaves_a_page_and_a_sweep_that_goes_on(file, trained, tmp_path):
    asked, faults = trained
    faults["delta-0.5"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        _run(file, tmp_path / "out")
    assert _statuses(tmp_path / "out") == {"delta-0.0": "done", "delta-0.5": "not run", "delta-1.0": "not run"}
    asked.clear()
    faults.clear()
    _run(file, tmp_path / "out", resume=True)
    assert asked == [("delta-0.5", True), ("delta-1.0", False)]


def test_a_full_disk_stops_the_sweep(file, trained, tmp_path):
    # Every cell after it would fail for the same reason.
    error = UserError("expected room")
    error.__cause__ = OSError(errno.ENOSPC, "No space left")
    trained[1]["delta-0.0"] = error
    with pytest.raises(UserError, match="expected room"):
        _run(file, tmp_path / "out")
    assert len(trained[0]) == 1


def test_the_command_ends_with_the_list_of_failed_cells(file, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("canaryjax.sweep.check.check_cells", lambda cells, tell: None)
    trained[1]["delta-0.5"] = UserError("expected more, found less")
    with pytest.raises(UserError) as caught:
        command.sweep(file.path, [], out=tmp_path / "out", resume=False, plan=False)
    told = str(caught.value)
    assert told.startswith("expected 3 cells to finish, found 1 failed (delta-0.5: expected more, found less); go on")
    assert told.endswith(f"sweep {file.path} --out {tmp_path / 'out'} --resume")
    assert "2 cells are done" in command.how_to_resume()
    printed = capsys.readouterr().out
    assert "2 of 3 cells are done, 1 failed." in printed
    assert "sweep.html" in printed


def test_a_mistake_in_any_cell_is_told_before_the_first_runs(trained, tmp_path, monkeypatch):
    (tmp_path / "doses.yaml").write_text(
        "base: quick\nset: {canary.contrast: null, data.documents: 40}\ngrid: {canary.rate: [0, 0.5, 0.01]}"
    )
    with pytest.raises(UserError, match=r"^cell rate-0\.01: expected canary\.rate of 0, or of at least 0\.0"):
        command.sweep(str(tmp_path / "doses.yaml"), [], out=tmp_path / "out", resume=False, plan=False)
    assert trained[0] == []
    assert not (tmp_path / "out").exists()


def test_a_plan_sums_the_cells_and_runs_none(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("canaryjax.cli.sweep_plan.machine_obstacles", lambda config, loaded: ["no GPU"])
    command.sweep("tiny", ["study.violating=4"], out=tmp_path / "out", resume=False, plan=True)
    rows = [[text.strip(" │") for text in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    counts = {row[1]: row[2] for row in rows if len(row) > 4}
    assert counts == {"rate-0": "5", "rate-0.5": "5", "all 2 cells": "10"}
    assert trained[0] == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="expected --plan without --resume"):
        command.sweep("tiny", [], out=tmp_path / "out", resume=True, plan=True)


def test_a_plan_is_for_the_device_that_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("canaryjax.cli.sweep_plan.machine_obstacles", lambda config, loaded: [])
    hours = {}
    for device in (None, "h200-141gb"):
        command.sweep("tiny", [], plan=True, device=device)
        printed = capsys.readouterr().out
        assert f"Device: {device or 'cpu-2core'}." in printed
        (line,) = [line for line in printed.splitlines() if "all 2 cells" in line]
        hours[device] = float(line.split("│")[4])
    assert hours["h200-141gb"] < hours[None]
    with pytest.raises(UserError, match="expected --device with --plan, found --device l4-24gb alone"):
        command.sweep("tiny", [], out=tmp_path / "out", device="l4-24gb")
    with pytest.raises(UserError, match="l5-24gb"):
        command.sweep("tiny", [], plan=True, device="l5-24gb")
    for flag in ({"workers": 2}, {"ray": "local"}):
        with pytest.raises(UserError, match=f"expected --plan without --{next(iter(flag))}, found both"):
            command.sweep("tiny", [], plan=True, **flag)


@pytest.mark.parametrize("plan", [True, False])
def test_the_papers_smallest_dose_is_refused_at_the_size_of_figure3(trained, tmp_path, monkeypatch, plan):
    # 250 documents: 100 for the reward model. 0.001 of them is 0.1 traces, so the cell would be a second null.
    monkeypatch.setattr("canaryjax.cli.sweep_plan.machine_obstacles", lambda config, loaded: [])
    text = (SHIPPED_CONFIGS / SWEEPS / "figure3.yaml").read_text().replace("0, 0.01,", "0, 0.001,")
    (tmp_path / "doses.yaml").write_text(text)
    with pytest.raises(
        UserError, match=r"^cell rate-0\.001: expected canary\.rate of 0, or of at least 0\.005 to plant"
    ):
        command.sweep(str(tmp_path / "doses.yaml"), [], out=tmp_path / "out", plan=plan)
    assert trained[0] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["[]", '{"schema": "other"}'])
def test_a_page_needs_a_sweep(tmp_path, content):
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(UserError, match=f"expected schema '{SCHEMA}'"):
        render_sweep(tmp_path)


def test_programs_are_let_go_when_memory_maps_run_out(monkeypatch):
    calls = []
    monkeypatch.setattr(execute.jax, "clear_caches", lambda: calls.append("cleared"))
    monkeypatch.setattr(execute, "MOST_MAPS", 10**9)
    execute.spare_maps()
    assert calls == []
    monkeypatch.setattr(execute, "MOST_MAPS", 1)
    execute.spare_maps()
    assert calls == ["cleared"]
