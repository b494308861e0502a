"""The command lines: a mistake is one line and status 2, and is found before anything is timed."""

import dataclasses
import json
import os
import signal

import pytest

import gpu_check
import grpo_step
import large_model
import memory
import policies
import ppo_step
import rollout
import scoring
import study
import table
from canaryjax.cli.stop import SIGNALS
from canaryjax.errors import UserError
from harness.command import SIZES, check_writable, parse, run_script
from harness.shape import Shape

TOO_LONG = "x" * 300  # for a name in any file system, and for root too


@pytest.fixture
def ended(monkeypatch, capsys):
    """From a script's main function and its words to its exit status, output and messages."""
    statuses = []
    monkeypatch.setattr(os, "_exit", statuses.append)

    def run(main, *words):
        run_script(lambda: main([str(word) for word in words]))
        out, err = capsys.readouterr()
        return statuses.pop(), out, err

    return run


@pytest.mark.parametrize(
    ("main", "words", "said"),
    [
        (large_model.main, (), "the following arguments are required: MODEL"),
        (large_model.main, ("gemma_3",), "invalid choice: 'gemma_3'"),
        (large_model.main, ("gemma_2b", "--context", "31"), "unrecognized arguments: --context 31"),
        (policies.main, ("--width", "22"), "unrecognized arguments: --width 22"),
        (study.main, ("--vocab", "211"), "unrecognized arguments: --vocab 211"),
        (rollout.main, ("--nothing",), "unrecognized arguments: --nothing"),
        (rollout.main, ("--completion", "many"), "--completion: expected a number of at least 1, found many"),
        (rollout.main, ("--json",), "--json: expected one argument"),
        (memory.main, ("--json", "/"), "found a folder: /;"),
        (gpu_check.main, ("nothing",), "found ['nothing']"),
        (gpu_check.main, ("--width", "22"), "unrecognized arguments: --width"),
        (table.main, ("/nope",), "No such file or directory: /nope"),
        (table.main, ("/",), "Is a directory: /"),
        (table.main, ("--width",), "unrecognized arguments: --width"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(ended, main, words, said):
    status, out, err = ended(main, *words)
    assert (status, out) == (2, "")
    assert err.startswith("canaryjax: error: expected ")
    assert err.count("\n") == 1
    assert "; found" in err
    assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no results\n", "line 1: Expecting value"),
        ('{"name": "step"}\n', "line 1: an object without a result's names"),
        ("3\n", "line 1: no object"),
        ("\xe9", "codec can't decode"),
    ],
)
def test_a_file_that_holds_no_results_is_one_line(ended, tmp_path, text, said):
    (tmp_path / "some.jsonl").write_text(text, "latin-1")
    status, out, err = ended(table.main, tmp_path / "some.jsonl")
    assert (status, out) == (2, "")
    assert err.startswith("canaryjax: error: expected one result a line; found in ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("main", "said"), [(large_model.main, "gemma_2b"), (table.main, "--write"), (policies.main, "--against")]
)
def test_help_is_help(capsys, main, said):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert said in capsys.readouterr().out


def _helped(capsys, main):
    with pytest.raises(SystemExit):
        main(["--help"])
    return " ".join(capsys.readouterr().out.split())


def test_help_says_what_each_size_is_and_what_it_is_by_default(capsys):
    assert [field.name for field in dataclasses.fields(Shape)] == list(SIZES)
    assert "--context N tokens of a prompt; 1600 by default" in _helped(capsys, grpo_step.main)
    # Once "instead of 8192" and "instead of 8", while three and two are run.
    assert "vocabulary; 8192, 151936, 256000 in turn by default" in _helped(capsys, scoring.main)
    assert "vocabulary; where it is not itself varied, 8192 by default" in _helped(capsys, memory.main)
    assert "completions of a prompt; 1, 8 in turn by default" in _helped(capsys, ppo_step.main)


def test_help_names_no_option_that_does_nothing(capsys):
    # Once `--against` took peers "among none", and a rank changed nothing where no adapter is.
    for main, absent in (
        (memory.main, ("--against", "--repeats")),
        (study.main, ("--against", "--repeats")),
        (rollout.main, ("--rank",)),
        (scoring.main, ("--rank",)),
    ):
        said = _helped(capsys, main)
        assert not [option for option in absent if option in said]


def test_a_stop_is_one_line_and_status_1(ended):
    def stopped(_):
        os.kill(os.getpid(), signal.SIGINT)

    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        assert ended(stopped) == (1, "", "canaryjax: stopped by SIGINT\n")
    finally:
        for number, handler in handlers.items():  # a process that was stopped ignores them: it is on its way out
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing/found.jsonl", "found none; make it first"),
        ("file/found.jsonl", "found none; make it first"),
        ("", "found a folder"),
        (TOO_LONG, "File name too long"),
        (f"{TOO_LONG}/found.jsonl", "File name too long|found none"),  # as the Python has it
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_else(tmp_path, name, said):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=said):
        check_writable(tmp_path / name)
    with pytest.raises(UserError, match=said):
        parse(None, (), ["--json", str(tmp_path / name)])


def test_a_file_that_can_be_written_keeps_what_it_holds(tmp_path):
    (tmp_path / "found.jsonl").write_text(json.dumps({"name": "earlier"}))
    check_writable(tmp_path / "found.jsonl")
    assert json.loads((tmp_path / "found.jsonl").read_text()) == {"name": "earlier"}
