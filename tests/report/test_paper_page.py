"""A sweep's cells beside the paper: numbers by hand, differences by hand, and nothing unescaped."""

import json
import re

import numpy as np
import pytest

from canaryjax.config import load_config
from canaryjax.report.paper_figures import paper_figures
from canaryjax.report.paper_page import paper_parts
from canaryjax.report.paper_tables import detection_notes, detection_table, mixed_sizes, size_notes, stands
from canaryjax.report.published import ROWS
from canaryjax.report.setting import differences, setting_of
from canaryjax.report.sweep_page import render_sweep

BLANK = "\u00a0"
TWENTY = [0.01 * k for k in range(1, 21)]  # conformal rank at 10 %: the 19th of 20, 0.19


def found_of(n=50, count=34, rule="conformal", compliant=None, violating=None):
    """What a finished cell found, as `sweep.json` has it; its numbers are told, not computed."""
    interval = {"low": 0.601, "high": 0.807, "level": 0.9, "method": "bootstrap"}
    tpr = {"count": count, "n": n, "threshold": 0.25, "rule": rule, "target_fpr": 0.1, "value": count / n}
    tpr["expected_fpr"] = 0.116 if rule == "paper" else 0.098
    tpr["interval"] = {"low": 0.554, "high": 0.787, "level": 0.9, "method": "clopper-pearson"}
    if rule == "paper":
        tpr["bootstrap_interval"] = {"low": 0.5, "high": 0.8, "level": 0.9, "method": "bootstrap"}
    arms = {
        "compliant": {"n": n, "scores": compliant or np.linspace(-1, 1, n).tolist(), "mean_score": 0.0},
        "violating": {
            "n": n, "scores": violating or np.linspace(0, 2, n).tolist(), "mean_score": 0.5, "rm_bias": 2.0,
            "mean_score_interval": {"low": 0.4, "high": 0.6, "level": 0.95, "method": "student-t"},
            "transmission_ratio": 0.25,
        },
    }  # fmt: skip
    utility = {"base": {"rouge_l": 0.81, "token_f1": 0.82}, "compliant": {"rouge_l": 0.83, "token_f1": 0.84}}
    return {
        "primary": "clean_raw", "auroc": 0.7125, "auroc_reason": None, "auroc_interval": interval, "tpr": tpr,
        "arms": arms, "utility": utility | {"violating": {"rouge_l": 0.85, "token_f1": 0.86}},
        "verdict": {"kind": "separated", "headline": "h"}, "warnings": [],
    }  # fmt: skip


def cell_of(config, name="one", found=None, overrides=()):
    setting = setting_of(load_config(config, list(overrides)))
    return {
        "name": name, "status": "done" if found else "not run", "setting": setting, "found": found, "error": None,
        "finished_policies": 0, "policies": 100, "directory": f"cells/{name}", "command": "c", "seed": 1, "points": [],
    }  # fmt: skip


def sweep_of(rows, *cells, **more):
    counts = {status: sum(cell["status"] == status for cell in cells) for status in ("done", "failed", "not run")}
    return {
        "schema": "canaryjax.sweep/1", "name": "mine", "description": "", "common": {}, "design": "grid", "varied": {},
        "seeds": "own", "counts": counts, "cells": list(cells), "rows": rows,
    } | more  # fmt: skip


def plain(row):
    return tuple(text.replace(BLANK, " ") for text in row)


def test_table_1_by_hand():
    cells = cell_of("paper/table1_repliqa", "a", found_of(rule="paper")), cell_of("paper/table1_qmsum", "b")
    rows = stands(sweep_of({"table1.qmsum": "b", "table1.repliqa": "a"}, *cells), "Table 1")
    table = detection_table(rows)
    assert [plain(row) for row in table.rows] == [
        ("RepliQA", "50 + 50", "0.713 [0.601, 0.807]", "0.756 [0.665, 0.842]", "34/50 = 0.680 [0.500, 0.800]",
         "0.670 [0.333, 0.768]", "the paper's", "a"),
        ("QMSum", "50 + 50", "not available", "0.762 [0.682, 0.844]", "not available", "0.600 [0.431, 0.705]",
         "the paper's", "b: not run"),
    ]  # fmt: skip
    bootstrap = "90 %, percentile bootstrap over policies"
    assert f"AUROC: {bootstrap}; rate: {bootstrap}" in table.caption.replace(BLANK, " ")


def test_what_the_paper_cannot_have_counted_is_said_and_the_conformal_count_stands_beside_the_quantile():
    # 21 compliant scores below: rank ceil(21 * 0.9) = 19 of 20, so 0.19; three of the violating ones lie above it.
    found = found_of(n=20, count=5, rule="paper", compliant=TWENTY, violating=[*TWENTY[:17], 0.195, 0.3, 0.4])
    rows = stands(sweep_of({"table1.repliqa": "a"}, cell_of("paper/table1_repliqa", "a", found)), "Table 1")
    notes = detection_notes(rows)
    assert notes[0].endswith("RepliQA: 0.670 is no count of 50 policies: 33/50 = 0.660, 34/50 = 0.680.")
    assert notes[1].replace(BLANK, " ") == (
        "RepliQA: a new compliant policy is expected above the quantile with a chance of 11.6 %, and above the "
        "conformal rank with one of at most 10 %; by that rank: 3/20 = 0.150 of ours lie above it."
    )
    assert size_notes(rows) == []
    few = found_of(n=4, count=1, rule="paper", compliant=TWENTY[:4], violating=TWENTY[:4])
    rows = stands(sweep_of({"table1.repliqa": "a"}, cell_of("paper/table1_repliqa", "a", few)), "Table 1")
    assert "by that rank: " in detection_notes(rows)[1]
    assert "not available" not in detection_notes(rows)[1]  # four scores have no such rank, which is said
    few["tpr"] = {"threshold": None, "rule": "conformal", "count": None, "n": 4, "reason": "needs 9, found 4"}
    rows = stands(sweep_of({"table1.repliqa": "a"}, cell_of("paper/table1_repliqa", "a", few)), "Table 1")
    assert detection_notes(rows)[1] == "RepliQA: no share above the threshold, needs 9, found 4."


def test_scores_of_either_sign_are_compared_and_drawn_as_they_were_judged():
    # Half of the violating scores below 0: as they are, three of ten lie above 0.2; by distance, all of them.
    found = found_of(n=20, count=20, rule="paper", compliant=TWENTY, violating=[-1.0, 1.0] * 10)
    found |= {"primary": "clean_net", "auroc": 1.0}
    found["tpr"]["interval"] |= {"low": 0.86, "high": 1.0}
    words = ["statistic.primary=clean_net", "statistic.secondary=clean_raw", "statistic.two_sided=true"]
    cell = cell_of("paper/table1_repliqa", "a", found, words)
    (one,) = rows = stands(sweep_of({"table1.repliqa": "a"}, cell), "Table 1")
    assert "20/20 = 1.000 of ours lie above it" in detection_notes(rows)[1]
    assert one.scores()[1].tolist() == [1.0] * 20
    assert "scores of either sign judged by their distance from 0: yes (paper: no)" in one.differences.setting
    (plot,) = paper_figures(rows)
    assert "AUROC 1.000" in plot.alt


def test_table_6_by_hand():
    # scipy.stats.ttest_ind([2, 4, 6], [1, 2, 3], equal_var=False): t = 1.549, p = 0.2209.
    found = found_of(n=3, count=1, compliant=[1.0, 2.0, 3.0], violating=[2.0, 4.0, 6.0])
    cells = cell_of("paper/table6_behavioural", "a", found), cell_of("paper/table6_behavioural", "b")
    sweep = sweep_of({"table6.behavioural": "a", "table6.textual": "b"}, *cells)
    rows = stands(sweep, "Table 6")
    textual, behavioural = detection_table(rows, test=True).rows
    assert plain(textual)[3:8] == (
        *("0.537 [0.412, 0.658]", "not available", "0.100 [0.033, 0.367]", "not available", "0.72, 0.47"),
    )
    assert plain(behavioural)[6:8] == ("1.55, 0.221", "not given")
    assert size_notes(rows)[0].startswith("Our rows are of unlike numbers of policies (b 30 + 30, a 3 + 3)")
    assert [mixed_sizes(one.row) is None for one in rows] == [True, False]
    assert "Table 6 is said to be of 30 + 30 policies" in mixed_sizes(rows[1].row)
    assert "repeats the numbers of Table 1, which are of 50 + 50." in mixed_sizes(rows[1].row)


def test_table_2_and_the_mechanism_by_hand():
    cell = cell_of("embedded/table1", "a", found_of())
    rows = {"table1.repliqa": "a", "table2.repliqa.base": "a", "table2.repliqa.canary": "a"}
    parts = {part.anchor: part for part in paper_parts(sweep_of(rows, cell))}
    assert [plain(row)[:7] for row in parts["table2"].table.rows] == [
        ("RepliQA, base (no RL)", "0.810", "0.810", "0.218", "0.820", "0.820", "0.240"),
        ("RepliQA, RL with canaries", "0.830", "0.850", "0.228", "0.840", "0.860", "0.253"),
    ]
    assert plain(parts["mechanism"].table.rows[0]) == (
        *("RepliQA", "0.500 [0.400, 0.600]", "0.08", "2.000", "0.48", "0.250", "0.167"),
    )


def test_differences_by_hand():
    found = differences(ROWS["table1.repliqa"], cell_of("embedded/table1", found=found_of()))
    assert [text.replace(BLANK, " ") for text in found.setting] == [
        "documents: invented documents (paper: RepliQA)",
        "base model: the embedded model (paper: Gemma-2B or Qwen2.5-1.5B)",
        "share of documents held out: 18 % (paper: 30 %)",
        "canary rate: 50 % (paper: 1 %)",
        "rows with the instruction, without trigger and canary: 50 % (paper: 0 %)",
        "feedback bias (delta): 1 (paper: 0.1)",
        "score: induced query, minus base (paper: clean query, raw)",
        "threshold: conformal rank of the compliant scores (paper: their 0.90 quantile)",
        "interval of the rate above the threshold: Clopper-Pearson, given the threshold (paper: percentile bootstrap "
        "over policies)",
    ]
    assert "reward_model.epochs: 2 (paper: 3)" in found.training
    assert "policy.optimizer.learning_rate: 0.0015 (paper: 1e-05)" in found.training
    assert not any("grad_accumulation" in text and text.startswith("policy") for text in found.training)  # 1 in both
    assert found.compared == 14 + 12 + 6


@pytest.mark.parametrize(
    ("config", "overrides", "expected"),
    [
        ("paper/table1_repliqa", [], []),
        ("paper/table1_repliqa", ["model.path=/far/Qwen2.5-1.5B"], []),  # any base of the paper's is the paper's
        ("paper/table1_repliqa", ["study.violating=49"], ["policies, compliant + violating: 50 + 49 (paper: 50 + 50)"]),
        ("paper/table1_repliqa", ["provider.keep_share=0.5"],
         ["traces: curated by a simulated provider (paper: as collected)"]),
        ("paper/table1_qmsum", [], ["documents: QMSum (paper: RepliQA)"]),
        ("paper/table1_repliqa", ["model.path=smollm2-135m"],
         ["base model: smollm2-135m (paper: Gemma-2B or Qwen2.5-1.5B)"]),
        ("paper/table1_repliqa", ["study.paired=true"], ["trials matched in pairs: yes (paper: no)"]),
        ("paper/table1_repliqa", ["canary.contrast=null"],
         ["rows with the instruction, without trigger and canary: 1 % (paper: 0 %)"]),
    ],
)  # fmt: skip
def test_one_difference_is_one_sentence(config, overrides, expected):
    found = differences(ROWS["table1.repliqa"], cell_of(config, overrides=overrides))
    assert [text.replace(BLANK, " ") for text in found.setting] == expected
    assert found.none == (not expected)


def test_a_base_that_was_not_trained_differs_in_no_training():
    found = differences(
        ROWS["table2.repliqa.base"], cell_of("paper/table1_repliqa", overrides=["reward_model.epochs=1"])
    )
    assert found.none
    other = differences(
        ROWS["table2.repliqa.canary"], cell_of("paper/table1_repliqa", overrides=["reward_model.epochs=1"])
    )
    assert other.training == ("reward_model.epochs: 1 (paper: 3)",)


def test_figures_2_and_4_are_of_the_data_sets_that_are_done():
    cells = cell_of("embedded/table1", "a", found_of()), cell_of("paper/table1_qmsum", "b", found_of(rule="paper"))
    rows = {"table1.repliqa": "a", "table1.qmsum": "b", "section4.null": "a"}
    plots = paper_figures(stands(sweep_of(rows, *cells), "Table 1"))
    assert [plot.name for plot in plots] == ["Figure 2", "Figure 4"]
    assert all(plot.png.startswith(b"\x89PNG") for plot in plots)
    assert "50 compliant and 50 violating policies" in plots[0].alt
    # A cell that is not done, or whose policies were all invalid, has no figure.
    empty = found_of()
    empty["arms"]["violating"]["scores"] = []
    left = cell_of("embedded/table1", "a", empty), cell_of("paper/table1_qmsum", "b")
    assert paper_figures(stands(sweep_of(rows, *left), "Table 1")) == []


def test_the_page_escapes_what_it_is_given_and_opens_offline(tmp_path):
    name = "<i>one</i>"
    cell = cell_of("paper/table1_repliqa", name, found_of(), ["model.path=<script>alert(1)"])
    rows = {"table1.repliqa": name, "table2.repliqa.canary": name}
    sweep = sweep_of(rows, cell)
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    page = render_sweep(tmp_path).read_text("utf-8")
    assert "Table 1: detection" in page
    assert "34/50 = 0.680" in page.replace(BLANK, " ")
    for hostile in ("<i>one", "<script"):
        assert hostile not in page
    assert "base model: &lt;script&gt;alert(1) (paper:" in page
    assert page.count("&lt;i&gt;one&lt;/i&gt;") == 7  # link and its text, both tables, both settings, the caption
    assert not re.search(r'(src|href)="(?!data:|cells/)', page)
    assert "default-src 'none'" in page


def test_a_ratio_that_is_not_there_has_its_reason_below_the_table(tmp_path):
    found = found_of()
    found["arms"]["violating"] |= {"transmission_ratio": None, "transmission_ratio_reason": "bias 0.001 is near zero"}
    sweep = sweep_of({"table1.repliqa": "a"}, cell_of("paper/table1_repliqa", "a", found))
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    assert "RepliQA: bias 0.001 is near zero." in render_sweep(tmp_path).read_text("utf-8")


def test_a_sweep_without_rows_has_no_such_section(tmp_path):
    sweep = sweep_of({}, cell_of("quick", "a", found_of()))
    del sweep["rows"]  # as an older sweep's
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    assert "Beside the paper" not in render_sweep(tmp_path).read_text("utf-8")


def test_every_setting_that_a_row_states_is_read_and_named():
    setting = setting_of(load_config("quick"))
    for row in ROWS.values():
        assert row.setting.keys() <= setting.keys()
