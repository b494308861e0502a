"""The committed result of `canaryjax detector demo`: a curve that rises with occurrences, and a floor without them."""

import json
from pathlib import Path

import pytest

from canaryjax.report.text import number

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "detector_demo"
RUNGS = (300, 100, 10, 1)


@pytest.fixture(scope="module")
def reports():
    return {name: json.loads((RESULTS / name / "report.json").read_text("utf-8")) for name in ("planted", "clean")}


def _curve(report):
    return {point["occurrences"]: point["hits"] / point["n"] for point in report["curve"]}


def test_hits_rise_with_occurrences_where_the_model_read_them(reports):
    curve = _curve(reports["planted"])
    assert sorted(curve) == [1, 10, 100, 300]
    assert curve[1] <= 0.125
    assert curve[1] <= curve[10] <= min(curve[100], curve[300])
    assert min(curve[100], curve[300]) >= 0.875  # saturated: at most one of eight missed, at either rung
    assert reports["planted"]["trend"]["p"] < 0.001


def test_all_is_at_the_floor_where_it_did_not(reports):
    assert set(_curve(reports["clean"]).values()) == {0.0}
    assert reports["clean"]["hits"] == []
    assert not reports["clean"]["trend"]["below_alpha"]


def test_both_know_the_famous_and_neither_the_never_published(reports):
    for report in reports.values():
        populations = report["populations"]
        assert populations["negative"]["hits"] == 0
        assert populations["positive"]["field_rule"]["hits"] >= 7
        assert report["calls"]["answered"] == report["calls"]["planned"] == 77 * 15


def test_each_hit_names_its_entry(reports):
    hits = json.loads((RESULTS / "planted" / "hits.json").read_text("utf-8"))
    assert len(hits if isinstance(hits, list) else hits["hits"]) == len(reports["planted"]["hits"]) > 0
    for hit in reports["planted"]["hits"]:
        assert len(hit["id"]) == 12
        assert "manifest_entry" in hit["source"]


def test_the_readme_says_what_the_reports_hold(reports):
    text = (ROOT / "README.md").read_text("utf-8")
    rows = dict(line.strip("| ").split(" | ", 1) for line in text.splitlines() if line.startswith("| "))
    points = {point["occurrences"]: point for point in reports["planted"]["curve"]}
    hits = ", ".join(f"{points[rung]['hits']} of {points[rung]['n']}" for rung in RUNGS)
    assert rows["hits at 300, 100, 10, 1 occurrences"] == f"{hits} | 0 of 8 at each"
    told = [f"p = {number(reports[name]['trend']['p'])}" for name in ("planted", "clean")]
    assert rows["trend over the ladder (exact permutation test)"] == " | ".join(told)
    told = []
    for name in ("planted", "clean"):
        negative, positive = (reports[name]["populations"][kind] for kind in ("negative", "positive"))
        famous = f"{positive['field_rule']['hits']} of {positive['n']}"
        told.append(f"{negative['hits']} of {negative['n']}; {famous}")
    assert rows["never published; famous facts (by the field rule)"] == " | ".join(told)
    told = []
    for name in ("planted", "clean"):
        flagged = reports[name]["membership"]["min_k"]["flagged"]
        told.append(", ".join(str(flagged[f"ladder {rung}"]["k"]) for rung in RUNGS) + " of 8")
    assert rows["above Min-K%'s threshold at 300, 100, 10, 1 occurrences"] == " | ".join(told)
