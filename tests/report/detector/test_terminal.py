"""The summary in a terminal: verdict, a table per tier, reasons; names are not markup."""

import io

from rich.console import Console

from canaryjax.report.detector_terminal import detector_summary


def _shown(report, width=240):
    console = Console(width=width, record=True, force_terminal=False, file=io.StringIO())
    console.print(detector_summary(report))
    return console.export_text().replace("\u00a0", " ")


def test_summary_holds_the_verdict_and_a_table_per_tier(made):
    text = _shown(made(failed=31))
    lines = text.splitlines()
    assert "recall rises with exposure" in text
    titles = ["Cohorts: how a page can be found", "Repetition ladder: how often", "Vendor: one sentence"]
    places = [next(at for at, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert places == sorted(places)
    rung = next(line for line in lines if line.startswith("300 times"))
    for expected in ("9 of 13", "0.69", "+0.69", "1.9e-05", "1.23", "50 %", "above 99.9 %"):
        assert expected in rung, expected
    for expected in ("pessimistic by", "status 429 after 6 retries: 31", "The request log holds 2 torn lines."):
        assert expected in text, expected


def test_names_are_not_markup(made):
    report = made(name="[red]x[/nonsense]", warnings=["[bold]w[/nonsense]"])
    report["groups"][0]["posterior"]["prior_source"] = "[/x]"
    report["groups"][0]["tier"] = "[blue]t[/nonsense]"
    text = _shown(report)
    for expected in ("[red]x[/nonsense]", "[bold]w[/nonsense]", "[/x]", "[blue]t[/nonsense]"):
        assert expected in text


def test_nothing_measured_is_said(made):
    text = _shown({"schema": "canaryjax.detector/1"})
    assert "has no result: no reason was recorded" in text
    assert "None" not in text
