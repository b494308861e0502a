"""`score` and `generate` print what the Python calls return, on the model that ships."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import canaryjax
from canaryjax.cli import main

MODEL = Path(canaryjax.__file__).parent / "embedded" / "model"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (MODEL / "config.json").is_file(), reason="the embedded model is not in this checkout"),
]
CODE = "import sys; from canaryjax.cli import main; main(sys.argv[1:])"


def _rows(*words):
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_score_prints_a_row_per_continuation(tmp_path):
    asked = [
        {"prompt": "FINAL:", "continuation": [" Not found", " A B"]},
        {"prompt": "Question: A", "continuation": " B"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    rows = _rows("score", str(MODEL), "--input", str(tmp_path / "in.jsonl"))
    assert [(row["prompt"], row["continuation"]) for row in rows] == [(0, " Not found"), (0, " A B"), (1, " B")]
    model = canaryjax.load_model(MODEL)
    for row, prompt in zip(rows, ["FINAL:", "FINAL:", "Question: A"], strict=True):
        expected = canaryjax.score(model, [prompt], [row["continuation"]])[0]
        assert row["ids"] == [int(i) for i in expected.ids]
        assert row["logps"] == pytest.approx([float(x) for x in expected.logps], abs=1e-5)
        assert row["total"] == pytest.approx(sum(row["logps"]), abs=1e-9)


@pytest.mark.parametrize(
    ("option", "wrong", "allowed"),
    [
        ("--max-new-tokens", "0", "from 1 to 131072"),
        ("--max-new-tokens", "99999999999", "from 1 to 131072"),  # a traceback, once
        ("--temperature", "-1", "from 0.0 to 1000000.0"),
        ("--temperature", "nan", "from 0.0 to 1000000.0"),
        ("--temperature", "1e7", "from 0.0 to 1000000.0"),
        ("--top-p", "0", "from 1e-06 to 1.0"),
        ("--top-p", "2", "from 1e-06 to 1.0"),
        ("--num-samples", "0", "from 1 to 65536"),
        ("--seed", "-1", "from 0 to 9223372036854775807"),
    ],
)
def test_a_number_out_of_range_names_its_option_and_range(capsys, option, wrong, allowed):
    with pytest.raises(SystemExit) as caught:
        main(["generate", "embedded", "--prompt", "x", option, wrong])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"canaryjax: error: expected {option} {allowed}, found ")


def test_generate_prints_a_row_per_sample():
    rows = _rows("generate", str(MODEL), "--prompt", "Question: A", "--num-samples", "2", "--temperature", "1",
                 "--max-new-tokens", "5")  # fmt: skip
    assert [(row["prompt"], row["sample"]) for row in rows] == [(0, 0), (0, 1)]
    assert all(len(row["ids"]) == len(row["logps"]) <= 5 for row in rows)
    assert all(logp <= 0 for row in rows for logp in row["logps"])
