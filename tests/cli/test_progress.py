"""Progress off a terminal is plain lines with counts; on one, a bar; both take the same calls."""

import io

from rich.console import Console

from canaryjax.cli.progress import PlainProgress, TerminalProgress, watching


def _drive(progress):
    progress.stage("loading")
    progress.stage("policies", 3)
    progress.advance(0)
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
