"""The committed result of `canaryjax detector demo`: a curve that rises with occurrences, and a floor without them."""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "detector_demo"


@pytest.fixture(scope="module")
def reports():
    return {name: json.loads((RESULTS / name / "report.json").read_text("utf-8")) for name in ("planted", "clean")}


def _curve(report):
    return {point["occurrences"]: point["hits"] / point["n"] for point in report["curve"]}


def test_hits_rise_with_occurrences_where_the_model_read_them(reports):
    curve = _curve(reports["planted"])
    assert sorted(curve) == [1, 10, 100, 300]
    assert curve[1] <= curve[10] <= curve[100] <= curve[300]
    assert curve[1] <= 0.125
    assert curve[300] >= 0.875  # at most one of eight missed
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
