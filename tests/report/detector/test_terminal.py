"""The summary in a terminal: verdict, a table per tier, reasons; names are not markup."""

import io

from rich.console import Console

from canaryjax.report.detector_terminal import detector_summary


def _shown(report, width=80):
    console = Console(width=width, record=True, force_terminal=False, file=io.StringIO())
    console.print(detector_summary(report))
    return console.export_text().replace("\u00a0", " ")


def _words(text):
    return " ".join(text.split())


def test_summary_holds_the_verdict_and_a_table_per_tier(made):
    text = _shown(made(failed=31))
    lines = text.splitlines()
    assert "recall rises with exposure" in text
    titles = ["Cohorts: how a page can be found", "Repetition ladder: how often", "Vendor: one sentence"]
    places = [next(at for at, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert places == sorted(places)
    at = next(at for at, line in enumerate(lines) if line.startswith("300 times"))
    # In 80 columns each number stands whole, with its name above it; a group has two lines and a pessimistic one three.
    assert _words(lines[at]) == "300 times 9 of 13 0.69 [0.42, 0.87] 1.9e-05 10 of 13 7.84e+12"
    assert _words(lines[at + 1]) == "+0.69 [0.38, 0.87] 1.7e-04 1.23 above 99.9 %"
    once = next(at for at, line in enumerate(lines) if line.startswith("2 unanswered"))
    assert lines[once - 1].startswith("once ")
    assert lines[once + 1].strip() == "pessimistic"
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    for expected in ("Prior 50 %: verified crawlers", "31 (status 429 after 6 retries: 31)", "holds 2 torn lines."):
        assert expected in _words(text), expected
    floor = next(line for line in lines if line.startswith("never published"))
    assert _words(floor) == "never published (floor) 0 of 20 0.00 [0.00, 0.16] 0 of 20 0.00 [0.00, 0.16]"


def test_the_longest_names_and_numbers_have_room(made):
    text = _shown(made(rungs={300: (130, 110), 1: (17, 0)}, cohorts={"honeypot": (111, 0)}, floor=(11, 20)))
    assert "…" not in text
    for expected in ("honeypot pages,", "110 of 130 0.85 [0.77, 0.90]", "-0.55 [-0.74, -0.34]", "below 0.0001 %"):
        assert expected in _words(text), expected


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
