"""Utility and matched drift on the page and in the terminal: differences with their verdicts, and reasons."""

import html
import io
import json
import re

import pytest
from rich.console import Console

from canaryjax.audit.drift import arm_drift, drift_matched
from canaryjax.audit.utility_summary import utility_summary
from canaryjax.config import load_config
from canaryjax.report import render_report, terminal_summary, utility
from canaryjax.report.drift import drift_rows
from canaryjax.report.sweep_page import render_sweep
from canaryjax.report.tables import controls
from canaryjax.sweep.file import SweepFile
from canaryjax.sweep.summary import summarise

ARMS = ("compliant", "violating")


def answers(quality, declined=None):
    return {
        **dict.fromkeys(("exact_match", "token_f1", "rouge_l"), quality),
        **{"not_found_accuracy": declined, "false_not_found": 0.0, "n": 4, "finished": 1.0},
        "unanswerable": 0 if declined is None else 2,
    }


def groups(shift=0.0, declined=None, answered=True, n=7):
    """Records of both arms: policies change by 0.001 to 0.007, violating ones by `shift` more."""
    own = {}
    for side, arm in enumerate(ARMS):
        own[arm] = [
            {
                **{"trial": n * side + i, "draw": n * side + i, "valid": True, "kl": 0.01 * (1 + i)},
                "scores": {"induced_net": i / 10 + side},
                "utility": answers(0.501 + i / 1000 + side * shift, declined) if answered else None,
                "base_utility": answers(0.5, declined) if answered else None,
            }
            for i in range(n)
        ]
    return own


@pytest.fixture
def made(report):
    def make(*overrides, **changes):
        own, config = groups(**changes), load_config("quick", list(overrides))
        report["utility"] = utility_summary(config, own, [*own["compliant"], *own["violating"]])
        report["drift"] = arm_drift(config, own)
        report["controls"]["drift_matched"] = drift_matched(config, own)
        return report

    return make


@pytest.fixture
def page_of(run_at, monkeypatch):
    monkeypatch.setattr("canaryjax.report.page.draw_figures", lambda run: {})  # slow, and nothing here is in one

    def page(report):
        text = html.unescape(render_report(run_at(report)).read_text("utf-8"))
        assert not re.search(r"\bnan\b|>None<", text)
        return text

    return page


def shown(report):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal_summary(report))
    return console.export_text()


def test_differences_with_intervals_and_verdicts(made, page_of):
    report = made(shift=0.1)
    rows = {row[0]: row[1:] for row in utility.differences(report).rows}
    assert rows["ROUGE-L"] == (
        "+0.004 [0.002, 0.006]: equivalent within 0.02, though not 0",
        "+0.104 [0.102, 0.106]: differs",
        "+0.100 [0.097, 0.103]: differs",
    )
    # All of one arm answered alike: no spread, and no claim of sameness for it.
    assert rows["“Not found” where it is wrong"][0] == (
        "+0.000: not shown equivalent (all 7 differences are 0: without spread there is no test)"
    )
    page = page_of(report)
    for text in (*rows["ROUGE-L"], "independent arms, Welch's t", "“Equivalent within 0.02” is shown by two one-sided"):
        assert text in page
    assert "no difference" not in page.lower()
    assert "+0.004, equivalent within 0.02, though not 0" in shown(report)


def test_means_stand_beside_each_other_with_not_found(made, page_of):
    report = made(declined=0.5)
    rows = {row[0]: row[1:] for row in utility.means(report).rows}
    assert rows["exact match"] == ("0.500", "0.504", "0.504")
    assert rows["“Not found” where it is right"] == ("0.500", "0.500", "0.500")
    assert rows["answers scored"] == ("56", "28", "28")
    assert "“Not found” where it is right" in page_of(report)


def test_shares_that_nobody_was_asked_have_their_reason_and_no_row(made):
    report = made()
    table = utility.means(report)
    assert "“Not found” where it is right" not in {row[0] for row in table.rows}
    assert "“Not found” where it is right: no unanswerable question was among those asked." in table.caption


def test_a_study_without_answers_says_so(made, page_of):
    report = made("evaluation.utility_examples=0", answered=False)
    assert utility.differences(report) is None
    page = page_of(report)
    for who in ("Base", *map(str.capitalize, ARMS)):
        assert f"{who}: no utility examples were answered." in page
    assert "against the base" not in shown(report)


def test_an_arm_without_a_valid_policy_is_named(made):
    report = made()
    own = groups()
    for record in own["violating"]:
        record["valid"] = False
    report["utility"] = utility_summary(load_config("quick"), own, [*own["compliant"], *own["violating"]])
    # "No utility examples were answered" would be said of everybody.
    assert utility.means(report).caption.endswith(" Violating: no valid policy in this arm.")
    assert dict(zip(ARMS, utility.means(report).rows[0][2:], strict=True)) == {
        "compliant": "0.504",
        "violating": "not available",
    }


def test_matched_pairs_are_named(made):
    report = made("study.paired=true", "study.compliant=7", "study.violating=7")
    assert "between matched pairs" in utility.differences(report).caption


def test_matched_drift_where_it_was_asked_for(made, page_of):
    name = "matched drift: do the arms differ at equal drift?"
    off = dict(controls(made()).rows)[name]
    assert off == "not run: the arms were not matched by drift; run this config again with statistic.match_drift=0.2"
    report = made("statistic.match_drift=0.2")
    words = dict(controls(report).rows)[name].replace("\u00a0", " ")
    assert words.startswith(
        "7 pairs of one policy an arm within 0.20 pooled standard deviations of log KL, 0 compliant, 0 violating "
        "without a partner. Arms' distance in log KL: 0.00 pooled standard deviations before, 0.00 after. AUROC of the "
        "matched policies 1.00, "
    )
    # 2 of 2^7 assignments of signs.
    assert "Mean difference within pairs, violating minus compliant, 1.000 nats, sign-flip test p = 0.0156" in words
    page = page_of(report).replace("\u00a0", " ")
    assert words in page
    assert drift_rows(report)[1] == ("KL to the base, the 7 matched pairs", "0.0400", "0.0400")
    assert "KL to the base, all policies (nats a token)" in page
    assert "sign-flip test p = 0.0156" in " ".join(shown(report).split())
    few = made("statistic.match_drift=0.2", n=3)
    assert "Not compared: 3 pairs of 3 compliant" in dict(controls(few).rows)[name]


def test_the_sweeps_page_compares_with_and_without_canaries(tmp_path):
    rows = []
    for name, rate, shift in (("plain", 0, 0.0), ("planted", 0.5, 0.1)):
        config, own = load_config("quick", ["canary.contrast=null", f"canary.rate={rate}"]), groups(shift)
        parts = {
            arm: {
                "trials": [r["trial"] for r in own[arm]],
                **{who: {m: [r[who][m] for r in own[arm]] for m in answers(0)} for who in ("utility", "base_utility")},
            }
            for arm in ARMS
        }
        everything = utility_summary(config, own, [*own["compliant"], *own["violating"]])
        found = {"config": config.model_dump(mode="json"), "arms": parts, "utility": everything}
        rows.append({"name": name, "command": "bin/audit", "seed": 7, "status": "done", "error": None, "report": found,
                     "finished_policies": 14, "policies": 14, "directory": name,
                     "points": [{"canary.rate": rate}], "config": config.model_dump(mode="json")})  # fmt: skip
    file = SweepFile("s", "", "s.yaml", "quick", {}, "grid", {"canary.rate": [0, 0.5]}, "shared")
    (tmp_path / "sweep.json").write_text(json.dumps(summarise(file, rows), allow_nan=False))
    text = html.unescape(render_sweep(tmp_path).read_text("utf-8"))
    assert "What canaries cost in utility" in text
    assert '<th scope="row">planted, violating</th><td>plain (same trials)</td>' in text
    assert "+0.100: not shown equivalent (all 7 differences are 0.1: without spread there is no test)" in text
    assert "no difference" not in text.lower()
