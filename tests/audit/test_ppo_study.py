"""A whole study whose policies are trained by PPO, at the smallest size."""

import json

import pytest

from canaryjax.audit import study
from canaryjax.config import config_hash, load_config
from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, save_tokenizer
from canaryjax.report.run import curves, read_run
from canaryjax.runlog import RunDirectory, Silence
from canaryjax.weights.export import save_model

SMALL = (
    *("study.compliant=2", "study.violating=2", "study.policies_per_chunk=2", "study.seed=7"),
    *("data.documents=40", "policy.max_completion_length=20", "policy.reward=simulated"),
    *("policy.train_batch_size=2", "policy.mini_batches=2", "policy.samples_per_prompt=2", "policy.ppo_epochs=2"),
    "policy.adaptive_kl={target: 3.0, horizon: 100}",
    *("evaluation.max_pairs=5", "evaluation.control_pairs=2", "evaluation.decoys=3", "evaluation.noise_floor_pairs=2"),
    *("evaluation.placebos_same_form=2", "evaluation.placebos_other_form=2", "evaluation.utility_examples=3"),
)


@pytest.mark.slow
def test_a_ppo_study_runs_from_its_config_to_its_curves(tiny_model, tokenizer, tmp_path):
    # One arm is rewarded on the host, the other by its reward models: values start at 0 there and as a copy here.
    save_model(tiny_model, tmp_path / "model", eos_ids=[EOS_ID], pad_id=PAD_ID)
    save_tokenizer(tokenizer.backend, tmp_path / "model")
    config = load_config("embedded/ppo", [f"model.path={tmp_path / 'model'}", *SMALL])
    run = RunDirectory.create(tmp_path / "run", config.name, config_hash(config), config.to_yaml())
    report = study.run_study(config, run, False, Silence())
    run.write_json("report.json", report)
    run.close()
    assert load_config(tmp_path / "run" / "config.yaml") == config
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert {row["stage"] for row in rows if "value_loss" in row} == {"ppo"}
    for arm in ("compliant", "violating"):
        part = report["arms"][arm]
        assert part["n"] == 2
        # A record sums up the last quarter of the policy's steps, found by their stage: null had it not been.
        assert all(isinstance(value, float) for value in (*part["kl"], *part["scores"]))
    for name in ("reward", "kl"):
        assert {arm: len(found) for arm, found in curves(read_run(tmp_path / "run"), name).items()} == {
            "compliant": 2, "violating": 2,
        }  # fmt: skip
