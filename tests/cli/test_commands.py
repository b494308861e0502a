"""Commands end in one way for each kind of mistake: status 2, one line, no traceback, nothing written."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from canaryjax.cli import app, audit
from canaryjax.cli.audit import split_words
from canaryjax.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def run(*words, cwd, program="canaryjax.audit", env=None):
    return subprocess.run(
        [sys.executable, "-m", program, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=300, env=env
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.yaml"], "found no file 'nowhere.yaml'"),
        (["canary.rat=0.1"], "did you mean 'canary.rate'?"),
        (["quick", "canary.rate=1.5"], "'canary.rate'"),
        (["quick", "embedded/null"], "expected one config and items key=value, found ['quick', 'embedded/null']"),
        (["--resume"], "expected --out DIR with --resume, found none"),
        (["--out", "taken"], "found other files (notes.txt); give another --out"),
        (["--out", "fresh", "--resume"], "in fresh, found no such directory; check --out, or leave out --resume"),
        (["--out", "taken", "--resume"], "in taken, found no run.json there; check --out, or leave out --resume"),
        (["quick", "canary.rate"], "found 'canary.rate'; write canary.rate=VALUE to set it"),
        (["canary.rate", "quick"], "found 'canary.rate'; write canary.rate=VALUE to set it"),
        ([".canary=3"], "expected an override of the form key=value, found '.canary=3'"),
        (["--plan", "data.documents=1000000000"], "expected documents of at most 20000 with kind=embedded"),
        (
            ["--plan", "data.kind=jsonl", "data.path=taken"],
            "files in the folder taken, found notes.txt; check data.path",
        ),
        (["--bad"], "No such option: --bad (see canaryjax audit --help)"),
        (["--plan", "--device", "abacus", "model.path=gemma-2b"], "found 'abacus'"),
        (["--plan", "model.path=unheard-of"], "found 'unheard-of'; set model.path"),
        # Asking the system about such names is an error of its own, once a traceback.
        (["x" * 300], "found no file 'xxx"),
        (["model.path=" + "x" * 300], "'model.path': expected names of at most 255 bytes in a path, found one of 300"),
        (["data.kind=jsonl", "data.path=a/" + "x" * 300], "'data.path': expected names of at most 255 bytes"),
        (["--out", "x" * 300], "too long"),
        (["--device", "l4-24gb"], "expected --device with --plan, found --device l4-24gb alone; it only sets"),
        (["--plan", "--resume"], "expected --plan without --resume, found both; a plan runs nothing"),
        (["--profile", "trace", "--plan"], "expected --profile without --plan, found both; a plan runs no step: leave"),
        (["--profile", "taken/notes.txt"], "expected a folder for --profile, found "),
        (["--profile", "taken/notes.txt/deep"], "notes.txt/deep: Not a directory; give another"),
        (
            ["--profile", "fresh/trace", "--out", "fresh"],
            "of the run directory fresh, found fresh/trace; a run",
        ),
        (["--profile", "x" * 300], "expected a folder for --profile, found xxx"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(tmp_path, words, message):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.startswith("canaryjax: error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["notes.txt", "taken"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["score", "model"], "expected --prompt and --continuation, or --input FILE"),
        (["score", "model", "--prompt", "a", "--continuation", "b", "--input", "x"], "found both; leave one out"),
        (["score", "model", "--input", "none.jsonl"], "expected a JSONL file at none.jsonl, found none"),
        (["score", "model", "--input", "x" * 300], "expected a JSONL file at xxx"),
        (["score", "x" * 300, "--prompt", "a", "--continuation", "b"], "file name too long"),
        (["score", "model", "--input", "bad.jsonl"], "bad.jsonl, line 2: expected one JSON object"),
        (["score", "model", "--input", "gap.jsonl"], "gap.jsonl, line 1: expected the text 'continuation', found 3"),
        (
            ["generate", "model", "--input", "twice.jsonl"],
            "twice.jsonl, line 1: expected each key once, found 'prompt'",
        ),
        (["generate", "model"], "expected either --prompt or --input FILE"),
        (["generate", "model", "--prompt", "a", "--num-samples", "0"], "--num-samples"),
        (["generate"], "Missing argument"),
        (["sweep"], "Missing argument"),
        (["sweep", "figur3"], "found no file 'figur3'; did you mean 'figure3'?"),
        (["sweep", "tiny", "canary.rate=1"], "where it would have no effect; leave it out of one of the two"),
        (["sweep", "tiny", "--resume"], "expected --out DIR with --resume, found none; name the sweep's directory"),
        (["frobnicate"], "No such command 'frobnicate'"),
    ],
)
def test_other_commands_end_the_same_way(tmp_path, words, message):
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a", "continuation": "b"}\n{"prompt": \n')
    (tmp_path / "twice.jsonl").write_text('{"prompt": "a", "prompt": "b"}\n')
    (tmp_path / "gap.jsonl").write_text('{"prompt": "a", "continuation": 3}\n')
    code = "import sys; from canaryjax.cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2, done.stderr
    assert message.lower() in done.stderr.lower()
    assert done.stderr.startswith("canaryjax: error: ")
    assert done.stderr.count("\n") == 1


def test_help_and_plain_usage(tmp_path):
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "--resume" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_command_line_starts_without_heavy_imports():
    # An import of jax at the top of a command would make --help take seconds.
    code = (
        "import sys\nfrom canaryjax.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print([m for m in ('jax', 'flax', 'transformers', 'matplotlib', 'scipy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_plan_needs_no_weights_and_makes_no_run(tmp_path):
    done = run("model.path=google/gemma-2b", "--plan", "--device", "h100-80gb", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "h100-80gb" in done.stdout
    assert "hours" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_words_are_split_into_config_and_values(tmp_path, monkeypatch):
    assert split_words([]) == ("quick", [])
    assert split_words(["canary.rate=0.1", "embedded/null", "name=x"]) == (
        "embedded/null",
        ["canary.rate=0.1", "name=x"],
    )
    monkeypatch.chdir(tmp_path)
    Path("a=b.yaml").write_text("name: x")
    assert split_words(["a=b.yaml"]) == ("a=b.yaml", [])  # a file that is there is a config, whatever its name
    with pytest.raises(UserError):
        split_words(["one", "two"])


def test_a_long_override_is_no_path(tmp_path):
    words = f"description={'long ' * 80}"
    assert split_words([words]) == ("quick", [words])
    done = run(words, "model.path=gemma-2b", "--plan", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_place_of_the_report_is_not_markup(tmp_path, monkeypatch, capsys):
    # As markup, "[run]" would vanish from the path and "[/run]" would end in a traceback after hours of work.
    for name in ("plain[run]", "odd[/run]"):
        folder = tmp_path / name
        monkeypatch.setattr("canaryjax.audit.study.run_study", lambda *_: {"schema": "canaryjax.audit/1"})
        audit.audit(["quick"], out=folder)
        assert f"{name}/report.html" in capsys.readouterr().out.replace("\n", "")


def test_the_seconds_of_a_stopped_call_count_in_the_runs(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("canaryjax.audit.study.run_study", stop)
    with pytest.raises(KeyboardInterrupt):
        audit.audit(["quick"], out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seconds"] > 0


def test_a_fault_of_ours_is_status_1_with_a_traceback(tmp_path):
    code = (
        "import sys\nfrom canaryjax.cli import app\n"
        "@app.app.command('fail')\ndef fail():\n    raise RuntimeError('ours')\n"
        "app.main(['fail'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "RuntimeError: ours" in done.stderr


def test_a_long_message_keeps_its_beginning_and_its_remedy(monkeypatch, capsys):
    # Names and values of a file stand in messages: a key of a megabyte filled the terminal.
    def fail(_):
        raise UserError(f"rows.jsonl, line 1: found {'k' * 10**6}; add it")

    monkeypatch.setattr(app, "_run", fail)
    with pytest.raises(SystemExit, match="2"):
        app.main([])
    told = capsys.readouterr().err
    assert told.startswith("canaryjax: error: rows.jsonl, line 1: found kkk")
    assert told.endswith("kkk; add it\n")
    assert len(told) < 2000


def test_a_full_disk_is_the_users_and_another_system_error_is_ours():
    # Figures and adapters are written by libraries that know nothing of the run directory's own messages.
    code = (
        "import errno\nfrom canaryjax.cli import app\n"
        "@app.app.command('fill')\ndef fill(number: int):\n"
        "    raise OSError(number, 'No space left', 'figures/a.png')\n"
        "app.main(['fill', '{}'])"
    )
    full, odd = (
        subprocess.run([sys.executable, "-c", code.format(number)], capture_output=True, text=True, timeout=300)
        for number in (errno.ENOSPC, errno.EBADF)
    )
    assert full.returncode == 2
    assert full.stderr.startswith("canaryjax: error: expected to read and write figures/a.png, found: No space left")
    assert full.stderr.count("\n") == 1
    assert odd.returncode == 1
    assert "Traceback" in odd.stderr


@pytest.mark.parametrize("place", ["no-such-folder", "empty", "bad"])
def test_a_model_that_cannot_be_read_leaves_no_run_behind(tmp_path, place):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").symlink_to("nowhere")
    done = run(f"model.path=./{place}", "--out", "new", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_mistake_in_the_data_leaves_no_run_behind(tmp_path):
    # A directory left there would refuse the corrected run as "another run".
    (tmp_path / "mine.jsonl").write_text('{"id": "a", "document": "One.", "question": "What?", "answer": "One"}\n{"id"')
    done = run("data.kind=jsonl", "data.path=mine.jsonl", "data.documents=null", "--out", "new", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine.jsonl, line 2" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()
