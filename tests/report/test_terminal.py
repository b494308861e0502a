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


def test_a_report_of_nulls_is_shown(report):
    assert "there is no AUROC" in _shown({"schema": report["schema"], "arms": None})
