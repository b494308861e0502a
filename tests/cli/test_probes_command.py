"""`canaryjax probes`: plans, mistakes, and score files from elsewhere, through the command itself."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from canaryjax.cli import main

TEXT = "the code is 12ab!"
SPANS = [("preamble", 0, 7), ("literal", 7, 12), ("secret", 12, 16), ("end", 16, 17)]


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["probes", *map(str, words)])
    out = capsys.readouterr()
    return ended.value.code, out.out, out.err


@pytest.fixture
def scores(tmp_path):
    """Two seeds of a model whose output is hostile, and their baseline, without a window to its end."""
    path = tmp_path / "scores.jsonl"
    rows = []
    for cell, seeds, baseline, by in (("base", (0,), None, 0.0), ("<b>tuned</b>", (0, 1), "base", 0.5)):
        for seed in seeds:
            for canary in (0, 1, 2):
                rows.append({
                    "cell": cell, "seed": seed, "canary": canary, "text": TEXT, "baseline": baseline,
                    "segments": [{"name": name, "start": start, "end": end} for name, start, end in SPANS],
                    "ids": [1, 2, 3, 4], "offsets": [[0, 7], [7, 12], [12, 16], [16, 17]],
                    "logps": [-0.5, -0.25, -0.125 - by - 0.01 * seed - 0.001 * canary, -0.5],
                    "outputs": [TEXT if baseline is None else "<script>alert(1)</script>[red]\x1b[2J\u202e"],
                })  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_scores_from_elsewhere_are_weighed_and_shown(tmp_path, scores, capsys):
    out = tmp_path / "run"
    words = ("--scores", scores, "--out", out, "reading.window=2", "reading.sweep=[1,3]", "statistics.resamples=99")
    status, shown, _ = run(capsys, *words)
    assert status == 0
    report = json.loads((out / "report.json").read_text())
    assert (report["schema"], report["model"], report["manifest"]) == ("canaryjax.probes/1", None, None)
    tuned = report["cells"][1]
    assert tuned["delta"]["window"]["value"] == 0.0
    assert tuned["delta"]["secret"]["value"] == pytest.approx(0.505)  # 0.5 and 0.51
    assert tuned["verdict"]["labels"] == ["behavioural damage", "window-truncation failure"]
    page = (out / "report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "\x1b" not in shown
    # Control characters, and those that turn the direction of what follows them.
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert "[red]\\x1b[2J\\u202e" in page
    assert sorted(path.name for path in (out / "figures").iterdir()) == [
        "levels.png", "parts.png", "profile.png", "sweep.png",
    ]  # fmt: skip
    assert "Window-truncation failure in 1 of 1 tuned cells" in page
    assert "report.html" in shown


def test_models_are_laid_side_by_side(tmp_path, scores, capsys):
    words = ("--scores", scores, "reading.window=2", "reading.sweep=[1,3]", "statistics.resamples=99")
    assert run(capsys, *words, "--out", tmp_path / "one", "name=first")[0] == 0
    assert "Beside other models" not in (tmp_path / "one" / "report.html").read_text()
    assert run(capsys, *words, "--out", tmp_path / "two", "--beside", tmp_path / "one", "name=second")[0] == 0
    page = (tmp_path / "two" / "report.html").read_text().split("Beside other models")[1]
    rows = page.split("</table>")[0].split("<tr>")[2:]
    assert [row.split("<td")[1].split(">")[1].split("<")[0] for row in rows] == ["second, run two", "first, run one"]
    assert all("+0.5050" in row and "0/6" in row for row in rows)
    status, _, said = run(capsys, *words, "--out", tmp_path / "three", "--beside", tmp_path / "none")
    assert (status, "report.json" in said) == (2, True)
    assert not (tmp_path / "three").exists()
    report = json.loads((tmp_path / "one" / "report.json").read_text())
    del report["cells"][1]["decomposition"]
    (tmp_path / "one" / "report.json").write_text(json.dumps(report))
    status, _, said = run(capsys, *words, "--out", tmp_path / "three", "--beside", tmp_path / "one")
    assert (status, said.count("\n")) == (2, 1)
    assert "expected the cells of a probe audit in" in said
    assert not (tmp_path / "three").exists()  # told before anything is trained


def test_a_plan_trains_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, shown, _ = run(capsys, "paper/probes_qwen2_5_1_5b", "--plan")
    assert status == 0
    # 3 sources x 3 step counts, 3 x 2 of the undertrained regime: 15 cells of 3 seeds.
    assert "15 (45 models)" in shown
    assert "65" in shown  # and two baselines, 15 of noise, 3 with the canaries among their rows
    assert "a100-40gb" in shown
    assert "Not here: the model qwen2.5-1.5b" in shown
    assert "132,125" in shown  # 100 + 25 that plant, 3 x 3 x 9,000 + 3 x 3 x 4,000 + 3 x 5,000
    assert list(tmp_path.iterdir()) == []
    status, shown, _ = run(capsys, "model.path=elsewhere", "--plan")
    assert (status, "not known: expected a model directory" in shown) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nonsense",), "expected a config file or one of ['paper/probes_llama3_2_1b'"),
        (("--scores", "none.jsonl"), "expected a file of scores, found none at none.jsonl"),
        (("--device", "l4-24gb"), "expected --device with --plan"),
        (("--plan", "--device", "phone"), "expected a device among"),
        (("--scores", "/proc/self/mem", "--out", "new"), "expected a readable file /proc/self/mem"),
        (("tuning.max_length=1",), "'tuning.max_length': expected at least 2"),
        (("--resume",), "expected --out DIR with --resume"),
        (("--resume", "--out", "none"), "expected a run to resume in none"),
        (("model.path=none", "--out", "new"), "expected a model directory or a .gguf file, found nothing at none"),
        (("canaries.preamble_tokens=3", "--out", "new"), "preamble of canaries.preamble_tokens=3 tokens, found 9"),
        (("canaries.prefix=é", "canaries.preamble='é'", "--out", "new"), "expected"),
    ],
)
def test_mistakes_end_in_one_line_and_leave_nothing_behind(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    status, _, said = run(capsys, *words)
    assert status == 2
    assert said.startswith("canaryjax: error: ") or "canaryjax: error: " in said
    assert message in said
    assert list(tmp_path.iterdir()) == []


def test_a_broken_score_file_names_its_line(capsys, tmp_path, scores):
    lines = scores.read_text().splitlines()
    scores.write_text("\n".join([*lines[:3], lines[3].replace("-0.25", "0.25"), *lines[4:]]) + "\n")
    status, _, said = run(capsys, "--scores", scores, "--out", tmp_path / "new")
    assert status == 2
    assert "line 4 of" in said
    assert not (tmp_path / "new").exists()


def test_the_readmes_score_file_is_weighed_as_it_stands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
    (rows,) = re.findall(r"```\n(\{\"cell\".*?)```", readme, re.DOTALL)
    (command,) = re.findall(r"canaryjax probes (--scores .*)", readme)
    (tmp_path / "scores.jsonl").write_text(rows)
    status, shown, _ = run(capsys, *shlex.split(command), "--out", "run")
    assert status == 0
    # The secret's one token went from 1 to 1.5 nats, and the window of two has half of that.
    assert "+0.2500 +0.5000" in shown
    assert "was not read (recall" in " ".join(shown.replace("│", " ").split())


def test_the_module_is_the_command(tmp_path):
    command = [sys.executable, "-m", "canaryjax.probes", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"COLUMNS": "200"})
    assert ended.returncode == 0
    assert "--scores" in ended.stdout
