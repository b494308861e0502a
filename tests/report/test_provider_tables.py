"""What the simulated provider did, on the page and in the terminal."""

import io

from rich.console import Console

from canaryjax.audit.provider_summary import provider_summary
from canaryjax.config import load_config
from canaryjax.report import render_report, terminal_summary
from canaryjax.report.provider import provider_facts, provider_steps

KINDS = ("clean", "triggered", "contrast")


def split(clean, triggered, contrast):
    return {"clean": clean, "triggered": triggered, "contrast": contrast}


def summary():
    none = split(0, 0, 0)
    steps = {
        "collected": {"rm": split(10, 20, 4), "rl": none},
        "perplexity": {"rm": split(9, 5, 4), "rl": none},
        "equal_sizes": {"rm": split(9, 4, 4), "rl": none},
        "dilution": {"rm": split(23, 4, 4), "rl": none},
    }
    provider = {"steps": steps, "contradicted": {"rm": split(0, 2, 1), "rl": none}}
    record = {"draw": 0, "injected": {"rm": split(23, 4, 4), "rl": none}, "provider": provider}
    return provider_summary(load_config("quick", ["provider.perplexity_bound=3"]), [record])


def test_steps_and_rates_by_hand(report):
    report["provider"] = summary()
    assert [row[0] for row in provider_steps(report).rows] == [
        "collected", "after the perplexity filter", "after the cut to equal sizes", "after dilution",
    ]  # fmt: skip
    assert provider_steps(report).rows[1][1:] == ("9 (-1)", "5 (-15)", "4")
    assert provider_steps(report).rows[3][1:] == ("23 (+14)", "4", "4")
    facts = dict(provider_facts(report).rows)
    assert facts["configured rate"].replace("\u00a0", " ") == "50.0 %"
    assert facts["realised rate, in all"].replace("\u00a0", " ") == "12.9 % (4 of 31)"
    assert facts["realised rate, for the policy"] == "not available"
    assert facts["triggered traces that the provider kept"].replace("\u00a0", " ").startswith("25.0 % (5 of 20) [0.10")
    assert facts["traces with contradictory feedback"] == "2 triggered, 1 contrast"


def shown(report):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(terminal_summary(report))
    return console.export_text()


def test_page_and_terminal_tell_of_a_provider_where_there_was_one(report, run_at, monkeypatch):
    monkeypatch.setattr("canaryjax.report.page.draw_figures", lambda run: {})  # slow, and nothing here is in one
    assert "Provider curation" not in shown(report)
    report["provider"] = summary()
    page = render_report(run_at(report)).read_text("utf-8")
    for text in ("Provider curation", "after the perplexity filter", "A simulated provider then curated the traces"):
        assert text in page
    assert "after the perplexity filter" in shown(report)
