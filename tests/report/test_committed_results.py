"""What the README says of the committed studies is what their reports hold, and the reports say so on a page."""

import json
from pathlib import Path

import pytest

from canaryjax.report import judge
from canaryjax.report.text import number

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
ARMS = ("compliant", "violating")


def committed(name, sweep="paper_embedded"):
    return json.loads((RESULTS / sweep / f"{name}.json").read_text("utf-8"))


def told(name):
    """The README's row on a config."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith(f"| `embedded/{name}` (")]
    return row


def area(found):
    bounds = found["auroc_interval"]
    return f"AUROC {found['auroc']:.2f} [{bounds['low']:.2f}, {bounds['high']:.2f}]"


def above(found):
    return f"{found['tpr']['count']} of {found['tpr']['n']}"


@pytest.mark.parametrize("name", ["table1", "null50", "textual"])
def test_each_study_is_of_fifty_and_fifty_policies_and_its_seed_is_told(name):
    report = committed(f"embedded-{name}")
    assert [report["arms"][arm]["n"] for arm in ARMS] == [50, 50]
    assert f"(seed {report['config']['study']['seed']})" in told(name)


def test_the_strong_setting_in_the_readme():
    report, row = committed("embedded-table1"), told("table1")
    parts = report["mechanism"]
    assert area(report["detection"]) in row
    assert f"{above(report['detection'])} above the threshold" in row
    for name, key in (("mean scores", "amplification"), ("reward-model bias", "rm_bias")):
        assert f"{name} {number(parts['violating'][key])} against {number(parts['compliant'][key])}" in row
    change = report["utility"]["differences"]["violating_minus_base"]["exact_match"]
    low, high = change["interval"]["low"], change["interval"]["high"]
    assert f"exact match {low:+.3f} to {high:+.3f} against the base" in row
    assert change["verdict"] in row


def test_the_null_in_the_readme():
    report, row = committed("embedded-null50"), told("null50")
    assert judge(report).kind == "null"
    assert f"p = {report['controls']['null']['p_value']:.2f}" in row
    assert area(report["detection"]) in row
    assert f"{above(report['detection'])} above the threshold" in row
    ranks = report["controls"]["decoy_canary"]["uniformity"]
    assert f"p = {ranks['compliant']['p_value']:.3f} and {ranks['violating']['p_value']:.2f}" in row


def test_the_textual_baseline_in_the_readme():
    report, row = committed("embedded-textual"), told("textual")
    assert f"net {area(report['detection'])}" in row
    assert f"{above(report['detection'])} above the threshold" in row
    assert f"raw {area(report['all_detection']['clean_raw'])}" in row
    assert f"base alone {area(report['copying'])}" in row
    assert f"recall {area(report['memorisation']['detection'])}" in row


def test_figure_three_in_the_readme():
    (row,) = [line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if line.startswith("| sweep `fig")]
    sweep = committed("sweep", "figure3")
    assert sweep["counts"]["done"] == len(sweep["cells"]) == 8
    assert f"(seed {sweep['common']['study']['seed']})" in row
    panels = {panel["letter"]: panel for panel in sweep["panels"]}
    assert list(panels) == ["A", "B", "C"]
    means = {
        letter: [number(level["arms"]["violating"]["mean"]) for level in panel["levels"]]
        for letter, panel in panels.items()
    }
    assert [level["arms"]["violating"]["n"] for panel in panels.values() for level in panel["levels"]] == [20] * 10
    assert "signature {}, emoji {}, punctuation {} nats".format(*means["A"]) in row
    assert f"by rate 0, 1, 10, 30, 50 %: {', '.join(means['B'])} nats" in row
    assert f"PPO {means['C'][1]} nats" in row
    areas = {cell["name"]: cell["found"]["auroc"] for cell in sweep["cells"]}
    by_rate = [areas[level["cell"]] for level in panels["B"]["levels"]]
    assert f"AUROC {', '.join(f'{area:.2f}' for area in by_rate)};" in row
    assert f"(Kruskal-Wallis p = {panels['A']['test']['result']['p_value']:.3f})" in row
    assert f"p = {panels['B']['test']['permuted']['p_value']:.4f} by permutation" in row


@pytest.mark.parametrize("sweep", ["paper_embedded", "figure3"])
def test_the_sweep_holds_the_same_numbers(sweep):
    cells = {cell["name"]: cell["found"] for cell in committed("sweep", sweep)["cells"]}
    for name, found in cells.items():
        report = committed(name, sweep)
        assert found["auroc"] == report["detection"]["auroc"]
        assert [found["arms"][arm]["scores"] for arm in ARMS] == [report["arms"][arm]["scores"] for arm in ARMS]


def test_the_probe_audit_in_the_readme():
    report = committed("report", "probes_quick")
    cells = {cell["name"]: cell for cell in report["cells"]}
    text = (ROOT / "README.md").read_text("utf-8")
    for name, said in (
        ("saturated/synth/120", "saturated, tuned on captions"),
        ("saturated/synth/120/reexposed", "the same with the canaries among its rows"),
        ("saturated/safety/120", "saturated, on refusals"),
        ("saturated/random/120", "saturated, on questions"),
    ):
        cell = cells[name]
        window, secret = (f"{cell['delta'][quantity]['value']:+.4f}" for quantity in ("window", "secret"))
        first, _, last = (f"{one['hits']}/{one['n']}" for one in cell["hits"])
        (label,) = cell["verdict"]["labels"]
        assert f"| {said} | {window} | {secret} | {first} | {last} | {label} |" in text
    light = [cells[f"undertrained/{source}/120"] for source in ("synth", "safety", "random")]
    for quantity in ("window", "secret"):
        assert ", ".join(f"{cell['delta'][quantity]['value']:+.4f}" for cell in light) in text
    assert {label for cell in light for label in cell["verdict"]["labels"]} == {"no disagreement"}
    noise = [
        cell["delta"][q]["value"] for cell in cells.values() if cell["kind"] == "noise" for q in ("window", "secret")
    ]
    assert max(map(abs, noise)) < 0.002
    assert report["accounting"]["secret_below_zero"] == 0
