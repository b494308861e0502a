"""The page of a probe audit on constructed readings: its numbers, reasons for what is missing, hostile texts."""

import dataclasses
import html
import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from canaryjax.probes.findings import analyse
from canaryjax.probes.records import Cell, Reading
from canaryjax.report.probes_controls import _some_of_each
from canaryjax.report.probes_figures import _regimes
from canaryjax.report.probes_page import write_probes_page
from canaryjax.report.probes_terminal import probes_summary
from tests.probes import constructed as c

REST = {"schema": "canaryjax.probes/1", "name": "made", "run": "r", "model": None, "manifest": None}


def report_of(made, count=c.CANARIES, **changes):
    canaries, tokens = c.material(count)
    report = REST | analyse(tokens, canaries, *made, c.config()) | changes
    return json.loads(json.dumps(report, allow_nan=False))


def page_of(report, tmp_path):
    (tmp_path / "report.json").write_text(json.dumps(report))
    return write_probes_page(tmp_path).read_text("utf-8")


def rows_of(page, heading):
    """The rows of the first table after a heading, cells as text."""
    table = page.split(f">{heading}</h")[1].split("</table>")[0]
    rows = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("<tr>")[2:])
    return [[html.unescape(cell) for cell in row] for row in rows]


def words(page):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page.split("<body")[1])))


def printed(report):
    console = Console(width=80, record=True, force_terminal=False, file=io.StringIO())
    console.print(probes_summary(report))
    return console.export_text()


def test_both_families_stand_beside_each_other_and_a_baseline_is_0_by_construction(tmp_path):
    base, window, secret = rows_of(page_of(report_of(c.case_one()), tmp_path), "Every cell, both families of intervals")
    assert base[:4] == ["base", "both", "0 by\nconstruction", "-"]
    # All seeds alike: Student's interval is one point, the nested one spans canaries, of which one carries the change.
    assert secret[1:3] == ["secret", "+0.0133"]
    assert secret[4] == "[+0.0133, +0.0133]"
    low, high = (float(part) for part in secret[3].strip("[]").split(", "))
    assert 0 < low < 0.0133 < high
    assert secret[5] == "hb-only"  # a point excludes nothing
    assert secret[7:] == ["+0.0133 to +0.0133\n3 of 3 above 0", "60"]
    assert window[1:3] == ["window", "+0.0001"]


def test_what_is_left_out_is_counted_and_a_missing_interval_has_its_reason(tmp_path):
    cells, found = c.readings({0: [np.full(c.LENGTH, 0.01)] * 7}, canaries=c.material(7)[0])
    broken = tuple(
        np.where(np.arange(c.LENGTH) == 15, np.nan, row) if i == 2 else row for i, row in enumerate(found[1].nll)
    )
    found[1] = Reading("tuned", 0, broken, outputs=found[1].outputs)
    page = page_of(report_of((cells, found), 7), tmp_path)
    rows = rows_of(page, "Every cell, both families of intervals")
    assert [row[3:7] for row in rows[1:]] == [["-", "-", "neither", "-"]] * 2
    assert [row[8] for row in rows[1:]] == ["6\n1 left out"] * 2
    said = words(page)
    reasons = re.findall(r"No interval: ([^(]+) \(tuned\)\.", said)
    assert reasons == ["needs at least 2 seeds, found 1", "needs at least 2 values, found 1"]
    assert "1 token log-probs are not finite (tuned, seed 0, canary 2)" in said


def test_screens_counts_and_parts_are_said(tmp_path):
    page = page_of(report_of(c.case_two()), tmp_path)
    (parts,) = rows_of(page, "The window's change, part by part")
    # PA-33: 0.01486 + 0.00017 = 0.01503, of which 99 % on the preamble, and a residual of 0.00001.
    assert parts[0] == "tuned"
    assert parts[1] == "+0.01486\n99%"
    assert parts[-3:] == ["+0.01503", "+0.00001", "+0.01504"]
    said = words(page)
    assert "by more than 0.001 nats a token" in said
    assert "in 0 of 1 tuned or random cells with intervals. Negative points: none." in said
    assert "3 seeds, one model" in said
    assert "(Table 8)" in said


def test_recall_stands_with_its_interval_and_the_estimator_of_sampled_outputs(tmp_path):
    base, tuned = rows_of(page_of(report_of(c.case_one()), tmp_path), "Recall, with intervals")
    # 53 of 60: Wilson's interval by hand, (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n); all samples say it.
    assert tuned[1:3] == ["53/60\n[0.78, 0.94]", "1.00"]
    assert tuned[-1] == "-"  # 15 were sampled: 16 of them never were
    assert base[1] == "20/20\n[0.84, 1.00]"


def test_a_baseline_alone_has_its_recall_with_its_level(tmp_path):
    cells, found = c.case_one()
    said = words(page_of(report_of((cells[:1], found[:1])), tmp_path))
    assert "Under each count 95 % bounds of its share" in said


def test_some_failures_of_every_cell_are_shown():
    rows = [{"cell": cell, "canary": i} for cell, n in (("a", 30), ("b", 1), ("c", 9)) for i in range(n)]
    shown = _some_of_each(rows, 6)
    assert [(row["cell"], row["canary"]) for row in shown] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
        ("c", 0),
        ("c", 1),
    ]


def test_kinds_are_told_in_words_and_two_runs_of_one_model_by_their_runs(tmp_path):
    report = report_of(c.case_one(), model={"name": "m", "family": "f", "parameters": 3, "dtype": "float32"})
    other = tmp_path / "other"
    other.mkdir()
    page_of(report | {"run": "second"}, other)
    (tmp_path / "report.json").write_text(json.dumps(report))
    page = write_probes_page(tmp_path, [other, tmp_path]).read_text("utf-8")
    assert [row[:2] for row in rows_of(page, "Beside other models")] == [
        ["m", "made, run r"], ["m", "made, run second"], ["m", "made, run r (2)"],
    ]  # fmt: skip
    kinds = [["baseline", "1", "1"], ["tuned", "1", "3"], ["of these tuned or random", "1", "3"]]
    assert rows_of(page, "Cells and runs") == kinds
    assert "regime/source/updates" in words(page)


def test_a_rank_that_no_decoy_could_give_is_not_counted(tmp_path):
    canaries = c.material(2)[0]
    cells, found = c.readings(c.same_for_all(np.zeros(c.LENGTH), 2), canaries=canaries)
    for few, shown in ((3, "at least 0.25"), (19, "2/2")):
        nll = {"wrong": tuple(np.full(few, 100.0) for _ in canaries)}
        found[0] = dataclasses.replace(found[0], decoy_nll=nll)
        report = report_of((cells, found), 2)
        (row,) = rows_of(page_of(report, tmp_path), "Is it the secret?")
        assert row[-1] == shown
        said = any(
            "no true secret can rank among 3 fresh ones with p below 0.25 (19" in text for text in report["reading"]
        )
        assert said == (few == 3)


def test_only_outputs_that_lost_what_the_baseline_says_are_failures(tmp_path):
    cells, found = c.readings(c.same_for_all(np.zeros(c.LENGTH), 7), lost=[(0, 1), (1, 4)], canaries=c.material(7)[0])
    outputs = list(found[0].outputs)
    outputs[4] = ("nothing", *outputs[4][1:])  # the baseline does not say it either: nothing was lost
    found[0] = Reading("base", 0, found[0].nll, outputs=tuple(outputs))
    page = page_of(report_of((cells, found), 7), tmp_path)
    (row,) = rows_of(page, "What was said instead")
    assert row[:2] == ["tuned, seed 0", "1"]
    assert "1 greedy outputs lost" in words(page)


def test_hostile_outputs_are_seen_and_cut(tmp_path):
    report = report_of(c.case_one())
    for row, text in zip(
        report["failures"], ("<script>x</script>", "a\u202e\x1b[2J", "\ud800", "y" * 5000), strict=False
    ):
        row["output"] = text
    page = page_of(report, tmp_path)
    assert "<script" not in page
    assert {row[3] for row in rows_of(page, "What was said instead")} >= {
        "<script>x</script>", r"a\u202e\x1b[2J", r"\ud800", "y" * 200 + "… (5,000 characters)",
    }  # fmt: skip
    assert "y" * 201 not in page


@pytest.mark.parametrize("name", ["调优", "$\\frac{$", "\ud800\x1b[31m<b>[red]", "n" * 300])
def test_hostile_names_are_drawn_and_printed(tmp_path, name):
    report = report_of(c.case_three(), name=name)
    for cell in report["cells"]:
        cell["source"] = name
    page = page_of(report, tmp_path)
    assert "<b>" not in page
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "profile.png", "levels.png", "sweep.png", "parts.png",
    }  # fmt: skip
    assert printed(report)


def test_a_terminal_of_80_columns_holds_every_label_whole():
    report = report_of(c.case_one())
    tuned = report["cells"][1]
    tuned["name"] = "undertrained/a-source-of-a-long-name/100000/reexposed"
    text = printed(report)
    assert max(map(len, text.splitlines())) <= 80
    for expected in ("behavioural damage", "window-truncation failure", "53/60", "+0.0133", "3 seeds, one model"):
        assert expected in text, expected
    assert "…" not in text
    assert "undertrained/a-source-of-a-long-name" in text  # the labels stand below, and leave the name its room


def test_a_look_is_that_of_the_legend_in_every_panel():
    """Panels with other cells: a source keeps its place, and sources that repeat go by the cell's name."""
    canaries, tokens = c.material(3)
    nll = tuple(np.full(c.LENGTH, 0.5) for _ in canaries)
    cells = [Cell("deep", "deep", "none", "baseline", 0, None), Cell("flat", "flat", "none", "baseline", 0, None)]
    cells += [Cell(f"deep/{s}", "deep", s, "sft", 5, "deep") for s in ("synth", "safety")]
    cells += [
        Cell("flat/safety", "flat", "safety", "sft", 5, "flat"),
        Cell("flat/old", "flat", "safety", "sft", 2, "flat"),
    ]
    readings = [Reading(cell.name, 0, nll) for cell in cells]
    report = analyse(tokens, canaries, cells, readings, c.config())
    drawn, dropped = _regimes(report)
    assert {regime: list(own) for regime, own in drawn.items()} == {"deep": ["synth", "safety"], "flat": ["safety"]}
    assert "3 of 4 tuned cells are drawn" in dropped
    for cell in report["cells"]:
        cell["source"] = "given"
    assert list(_regimes(report)[0]["deep"]) == ["deep/synth", "deep/safety"]
    assert list(_regimes(report)[0]["flat"]) == ["flat/safety"]  # alone, and yet "given" would tell nobody which it is


def test_a_page_without_other_windows(tmp_path):
    report = report_of(c.case_one())
    report["tokens"]["sweep"] = []  # reading.sweep=[]
    assert "Every cell, both families of intervals" in page_of(report, tmp_path)
