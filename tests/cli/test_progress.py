"""Progress off a terminal is plain lines with counts; on one, a bar; both take the same calls."""

import io

from rich.console import Console

from canaryjax.cli.progress import PlainProgress, Rate, TerminalProgress, watching


def _drive(progress):
    progress.stage("loading")
    progress.stage("policies", 3)
    progress.advance(0)
    progress.pace("trial [1] step 1 of 2")
    progress.advance(2, "trial [1]")
    progress.advance(1, "trial 2")
    progress.note("note [bold]x[/nonsense]")


def test_plain_lines_have_counts_and_no_control_characters():
    out = io.StringIO()
    with watching(Console(file=out, width=40)) as progress:
        assert isinstance(progress, PlainProgress)
        _drive(progress)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["loading", "policies: 0 of 3 policies"]
    # A line only at the end here: the last one is never swallowed by the pause between lines.
    assert lines[2].startswith("policies: 3 of 3 policies in ")
    assert lines[2].endswith("; trial 2")
    assert lines[3] == "note [bold]x[/nonsense]"
    assert "\x1b" not in out.getvalue()


def test_a_terminal_gets_a_bar_with_counts():
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system=None)
    with watching(console) as progress:
        assert isinstance(progress, TerminalProgress)
        _drive(progress)
    assert "policies" in out.getvalue()
    assert "3/3" in out.getvalue()
    assert "note [bold]x[/nonsense]" in out.getvalue()


def test_time_left_leaves_out_compilation_and_what_an_earlier_call_did():
    rate = Rate(11, 3, 2)
    rate.advance(1, 50.0)
    assert rate.left(50.0) is None  # two workers compiled side by side: the second one's end says no more
    rate.advance(1, 53.0)
    assert rate.left(53.0) is None
    rate.advance(2, 67.0)
    # Seven seconds each, four left; all the seconds over all that is done would give 38, over this call's own 67.
    assert rate.left(67.0) == 28.0
    assert rate.left(70.0) == 25.0
    rate.advance(1, 78.0)
    assert rate.left(99.0) == 4.0
    assert rate.left(1000.0) == 0.0
    assert Rate(None, 0, 1).left(1.0) is None


def test_a_rate_is_told_with_the_time_left():
    rate = Rate(11, 3, 1)
    assert rate.words(40.0, False) == ""
    rate.advance(1, 50.0)
    assert rate.words(50.0, False) == ""
    rate.advance(2, 64.0)  # seven seconds each; with compilation it would be 21
    assert rate.words(64.0, False) == "514 policies/h, about 35 s left"
    rate.advance(1, 7264.0)
    assert rate.words(7264.0, False) == "1.5 policies/h, about 2 h 40 min left"
    rate.advance(4, 7300.0)
    assert rate.words(7300.0, True) == "3.5 policies/h"


def test_both_displays_tell_the_rate(monkeypatch):
    for terminal in (False, True):
        out = io.StringIO()
        with watching(Console(file=out, width=200, force_terminal=terminal, color_system=None)) as progress:
            progress.stage("policies", 7)
            monkeypatch.setattr("canaryjax.cli.progress.LINE_EVERY", 0.0)
            for _ in range(3):
                progress.advance(1, "trial 1")
        assert " policies/h" in out.getvalue(), terminal
        assert ("about 0 s left" in out.getvalue()) != terminal  # a bar that has ended says no more of that


def test_a_long_policy_is_not_silent(monkeypatch):
    now = 1000.0
    monkeypatch.setattr("canaryjax.cli.progress.time.monotonic", lambda: now)
    out = io.StringIO()
    progress = PlainProgress(Console(file=out, width=200))
    progress.stage("policies", 7)
    for second in range(1, 150):
        now = 1000.0 + second
        progress.pace(f"trial 4: policy step {second} of 900")
    assert out.getvalue().splitlines()[1:] == [
        "trial 4: policy step 60 of 900",
        "trial 4: policy step 120 of 900",
    ]


def test_policies_of_an_earlier_call_are_counted_and_not_announced_as_new():
    out = io.StringIO()
    with watching(Console(file=out, width=40)) as progress:
        progress.stage("policies", 5, done=3)
        progress.advance(2, "trial 4")
    lines = out.getvalue().splitlines()
    assert lines[0] == "policies: 3 of 5 policies"
    assert lines[1].startswith("policies: 5 of 5 policies in ")
    assert len(lines) == 2
