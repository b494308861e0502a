"""`canaryjax detector report DIR` writes beside report.json, prints the tables, and ends as all commands do."""

import json

import pytest

from canaryjax.cli import main


def _run(*words):
    with pytest.raises(SystemExit) as end:
        main(["detector", "report", *map(str, words)])
    return end.value.code


def test_the_command_writes_everything_from_the_report_alone(made, folder_of, capsys):
    folder = folder_of(made())
    assert _run(folder) == 0
    assert {path.name for path in folder.iterdir()} == {"report.json", "report.html", "hits.json", "figures"}
    shown = capsys.readouterr().out.replace("\u00a0", " ")
    for expected in ("recall rises with exposure", "Repetition ladder", "Vendor: one sentence", "9 of 13"):
        assert expected in shown, expected
    assert "report.html" in shown
    assert "hits.json" in shown
    assert json.loads((folder / "hits.json").read_text())["schema"] == "canaryjax.detector.hits/1"


def test_a_folder_without_a_report_is_the_users_mistake(tmp_path, capsys):
    assert _run(tmp_path) == 2
    assert "expected the file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("level",), "abc"),
        (("calls",), "abc"),
        (("look",), [7]),
        (("look", "alpha"), 10**400),
        (("populations", "canary"), "abc"),
        (("model", "capabilities"), 7),
        (("fetches", "during_run"), [None]),
        (("name",), float("nan")),
    ],
)
def test_a_report_that_was_edited_is_the_users_mistake(made, folder_of, capsys, path, value):
    report = made()
    section = report
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    folder = folder_of({})
    (folder / "report.json").write_text(json.dumps(report))
    assert _run(folder) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"canaryjax: error: expected {folder / 'report.json'} as `canaryjax detector probe` wrote it")
    assert err.count("\n") == 1
    assert "write it anew by detector probe --resume" in err


def test_a_name_does_not_steer_the_terminal(made, folder_of, capsys):
    report = made()
    report["model"]["label"] = "\x1b]0;red\x07[bold]\u202e"
    assert _run(folder_of(report)) == 0
    shown = capsys.readouterr().out
    assert not set("\x1b\x07\u202e") & set(shown)
    assert r"\x1b]0;red\x07[bold]\u202e" in shown.replace("\n", "")
