"""A plan is refused for what would end the run at its start, and tells what this machine alone lacks."""

import json
import shutil
import sys

import pytest

from canaryjax.cli.plan import machine_obstacles, print_plan, study_examples
from canaryjax.config import load_config
from canaryjax.errors import UserError
from canaryjax.weights.checkpoint import EMBEDDED, load_model, load_tokenizer


def obstacles(*overrides):
    config = load_config("quick", ["study.compliant=1", "study.violating=1", *overrides])
    return machine_obstacles(config, study_examples(config))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["policy.max_completion_length=12"], "expected policy.max_completion_length of at least 1[0-9] tokens"),
        (["reward_model.max_response_tokens=6"], "reward_model.max_response_tokens of at least"),
        (["policy.max_prompt_length=60"], "evaluation pair, found none; raise policy.max_prompt_length or .*, such as"),
        (["reward_model.max_length=64"], r"a prompt of trial [01] does not fit.* reward_model\.max_length"),
    ],
)
def test_a_plan_is_refused_where_the_run_would_be(overrides, message, capsys):
    config = load_config("quick", ["study.compliant=1", "study.violating=1", *overrides])
    with pytest.raises(UserError, match=message) as caught:
        print_plan(config, None)
    assert "{" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_documents_that_the_vocabulary_cannot_write_are_refused(tmp_path):
    rows = [{"document": f"Document {i} is here. It ends.", "question": "Who?", "answer": "Me"} for i in range(60)]
    rows[7]["answer"] = "caf\u00e9"
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["data.kind=jsonl", f"data.path={tmp_path / 'd.jsonl'}", "data.documents=null"]
    with pytest.raises(UserError, match=r"d\.jsonl, line 8.*answer: .*U\+00E9"):
        obstacles(*words)


def test_what_this_machine_alone_lacks_is_told_under_the_plan(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    config = load_config("quick", ["study.mesh.policy=64", "output.report_to=[wandb]"])
    print_plan(config, "h100-80gb")
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("On this machine it would not")]
    assert len(told) == 2
    assert "expected the package wandb for output.report_to=wandb" in told[0]
    assert "expected a mesh of at most the" in told[1]


def test_a_plan_that_would_start_says_nothing_more(capsys):
    assert obstacles() == []
    assert obstacles("model.path=google/gemma-2b") == []  # whose weights are elsewhere, which `missing` tells


def test_a_base_without_a_tokenizer_is_told(tmp_path):
    config = json.loads((load_model(EMBEDDED).path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    (found,) = obstacles(f"model.path={tmp_path}")
    assert "expected a tokenizer beside" in found
    shutil.copy(load_model(EMBEDDED).path / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"eos_token_id": None}))
    (found,) = obstacles(f"model.path={tmp_path}")
    assert "expected an EOS id" in found


def test_a_tokenizer_without_weights_is_the_loaded_models():
    model = load_model(EMBEDDED)
    tokenizer, rows = load_tokenizer(EMBEDDED)
    assert rows == model.config.vocab_size
    assert tokenizer is not None
    assert model.tokenizer is not None
    assert (tokenizer.eos_ids, tokenizer.encode("FINAL: Rome").ids.tolist()) == (
        model.eos_ids,
        model.tokenizer.encode("FINAL: Rome").ids.tolist(),
    )
