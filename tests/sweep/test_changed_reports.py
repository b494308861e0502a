"""A cell's report that was edited, cut or written by another version: the other cells' summary and page stay whole."""

import copy
import json

import pytest

from canaryjax.report.panels import panel_lines, panel_texts
from canaryjax.report.sweep_page import render_sweep, sweep_rows

GRID = "base: quick\nseeds: own\nset: {canary.contrast: null}\ngrid: {canary.rate: [0, 0.5]}\n"
INTERVAL = {"low": 0.5, "high": 1.0, "level": 0.9, "method": "newcombe"}
DETECTION = {
    "auroc": 0.75, "auroc_interval": INTERVAL, "tpr": {"value": 0.5, "count": 1, "n": 2, "threshold": 0.1},
}  # fmt: skip


def changed(report, path, value):
    """The report with another value at a path; with none there where that is `...`."""
    made = copy.deepcopy(report)
    *above, last = path.split(".")
    part = made
    for name in above:
        part = part[name]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return made


@pytest.fixture
def whole(report):
    """A report as far as the summary reads it."""
    return report([1.0, 2.0], detection=DETECTION, mechanism={}, warnings=[], config_hash="a")


# Each was a traceback that ended the whole sweep.
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("arms.violating.scores", "x"),
        ("arms.violating.scores", ["x", "y"]),
        ("arms.violating.scores", [None, 1.0]),
        ("arms.compliant", "x"),
        ("arms.compliant.trials", -1),
        ("arms.violating.invalid", "x"),
        ("arms.violating.invalid", [{}]),
        ("detection.auroc", "high"),
        ("detection.auroc", []),
        ("detection.auroc_interval.level", "x"),
        ("detection.auroc_interval.method", []),
        ("detection.tpr.n", ...),
        ("mechanism", {"compliant": "x"}),
        ("statistic.primary", []),
        ("warnings", -1),
        ("provider", {"curated": True}),
        ("utility", {"margin": 0.02, "base": {"n": 3}}),  # without what each policy answered
    ],
)
def test_a_changed_report_is_a_failed_cell_and_stops_no_other(summary, whole, path, value):
    sweep = summary(GRID, [changed(whole, path, value), whole])
    first, second = sweep["cells"]
    assert (first["status"], second["status"]) == ("failed", "done")
    assert first["error"].startswith("expected cells/rate-0/report.json as it was written, found a changed one (")
    assert "--resume makes it again" in first["error"]
    assert sweep["counts"] == {"done": 1, "failed": 1, "not run": 0}
    assert first["found"] is None
    assert second["found"]["auroc"] == 0.75
    sweep_rows(sweep), panel_texts(sweep), panel_lines(sweep)
    json.dumps(sweep, allow_nan=False)


# An earlier version's report has not all that is read today.
@pytest.mark.parametrize(
    "path", ["detection", "mechanism", "warnings", "arms.violating.trials", "canary", "config_hash"]
)
def test_what_a_report_does_not_say_is_not_available_and_no_failure(summary, whole, path):
    sweep = summary(GRID, [changed(whole, path, ...), whole])
    assert [cell["status"] for cell in sweep["cells"]] == ["done", "done"]
    assert len(sweep_rows(sweep)) == 2
    assert panel_texts(sweep)


def test_the_page_tells_of_the_changed_report(summary, whole, tmp_path):
    sweep = summary(GRID, [changed(whole, "warnings", "<script>"), changed(whole, "arms.compliant", "<b>x</b>")])
    for cell in sweep["cells"]:  # as a run of the sweep would have it
        cell["setting"] = {}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    page = render_sweep(tmp_path).read_text("utf-8")
    assert "report.json as it was written, found a changed one" in page
    assert "<b>x</b>" not in page
    assert "<script>" not in page
