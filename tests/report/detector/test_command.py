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
