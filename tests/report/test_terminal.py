"""The summary in a terminal: plain text holds the verdict, counts and reasons; names are not markup."""

import io

from rich.console import Console

from canaryjax.report import judge, terminal_summary


def _shown(report, width=200):
    console = Console(width=width, record=True, force_terminal=False, file=io.StringIO())
    console.print(terminal_summary(report))
    return console.export_text()


def test_summary_holds_verdict_counts_and_reasons(report):
    text = _shown(report)
    rate = report["detection"]["tpr"]
    assert judge(report).headline[:80] in text
    assert f"{rate['count']} of {rate['n']}" in text
    assert "not run: run `bin/audit embedded/null`" in text
    assert report["warnings"][0] in text


def test_names_are_not_markup(report):
    report["name"], report["warnings"] = "[red]x[/nonsense]", ["[bold]w[/nonsense]"]
    report["controls"]["null"]["reason"] = "[/x]"
    text = _shown(report)
    assert "[red]x[/nonsense]" in text
    assert "[bold]w[/nonsense]" in text


def test_a_base_in_bfloat16_says_what_that_costs(report):
    report["model"] = {"dtype": "bfloat16"}
    report["noise_floor"]["bfloat16"] = {
        "max_abs_nats": 0.0625, "median_abs_nats": 0.03125, "max_abs_nats_per_token": 0.0078, "pairs": 7,
        "median_abs_nats_per_token": 0.0039, "max_abs_score": 0.125, "reason": None,
    }  # fmt: skip
    text = " ".join(_shown(report).split())
    assert "differs by at most 0.062 nats (median 0.031), a token of it by at most 0.008" in text
    assert "a pair's score by at most 0.125, over 7 pairs" in text
    report["noise_floor"]["bfloat16"] = {"max_abs_nats": None, "reason": "a float32 copy takes 90 GB"}
    assert "bfloat16 against float32: not measured: a float32 copy takes 90 GB." in _shown(report)
    report["model"] = {"dtype": "float32"}
    assert "bfloat16" not in _shown(report)


def test_a_report_of_nulls_is_shown(report):
    assert "there is no AUROC" in _shown({"schema": report["schema"], "arms": None})
