"""A study whose policies are spread over two simulated devices, from the command line."""

import json
import subprocess
import sys

import pytest

from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, save_tokenizer
from canaryjax.weights.export import save_model

pytestmark = pytest.mark.slow
SMALL = (
    *("study.compliant=1", "study.violating=3", "study.seed=7", "data.documents=40"),
    *("model.warm_start.documents=8", "model.warm_start.batch_size=8", "model.warm_start.epochs=1"),
    # Adam makes steps of the whole rate of entries whose gradient is rounding, and those differ between meshes: at 5e-4
    # a few entries in a thousand came to differ by 2e-4 after three updates, and scores by 4e-4.
    *("policy.max_completion_length=20", "policy.optimizer.learning_rate=3e-5"),
    *("policy.num_generations=2", "policy.generation_batch_size=8", "policy.train_batch_size=8"),
    *("reward_model.optimizer.learning_rate=5e-4", "reward_model.max_response_tokens=20"),
    *("evaluation.max_pairs=5", "evaluation.control_pairs=2", "evaluation.decoys=3", "evaluation.noise_floor_pairs=2"),
    *("evaluation.placebos_same_form=2", "evaluation.placebos_other_form=2", "evaluation.utility_examples=3"),
)
TOLERANCE = 1e-4  # nats, on scores that are means of sums over some ten tokens: 1e-5 a token


@pytest.fixture(scope="module")
def runs(tiny_model, tokenizer, simulated, tmp_path_factory):
    """Two runs of one study: on a mesh of two devices, and on one."""
    folder = tmp_path_factory.mktemp("mesh")
    save_model(tiny_model, folder / "model", eos_ids=[EOS_ID], pad_id=PAD_ID)
    save_tokenizer(tokenizer.backend, folder / "model")
    for name, words in (("mesh", ["study.mesh.policy=2"]), ("one", [])):
        words = ["quick", f"model.path={folder / 'model'}", *SMALL, *words, "--out", str(folder / name)]
        done = subprocess.run(
            [sys.executable, "-m", "canaryjax.audit", *words],
            env=simulated(2),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-4000:]
    return folder / "mesh", folder / "one"


def rows(path, name):
    return [json.loads(line) for line in (path / name).read_text("utf-8").splitlines()]


def test_policies_on_two_devices_score_as_on_one(runs):
    on_mesh, on_one = (rows(path, "trials.jsonl") for path in runs)
    assert len(on_mesh) == 4
    for a, b in zip(on_mesh, on_one, strict=True):
        assert (a["trial"], a["arm"], a["canary"], a["utility"]) == (b["trial"], b["arm"], b["canary"], b["utility"])
        assert a["scores"] == pytest.approx(b["scores"], abs=TOLERANCE)
        assert a["rm_bias"] == pytest.approx(b["rm_bias"], abs=TOLERANCE)


def test_nothing_is_kept_of_the_copies_that_fill_up_a_chunk(runs):
    # Arms of one and three policies on two devices: both end with a chunk of one, trained beside its copy.
    steps = [
        sorted((r["trial"], r["stage"], r["step"]) for r in rows(path, "metrics.jsonl") if "trial" in r and "step" in r)
        for path in runs
    ]
    assert steps[0] == steps[1]
    assert len(set(steps[0])) == len(steps[0])


def test_the_opening_remembers_the_mesh(runs):
    found = [json.loads((path / "opening.json").read_text("utf-8")) for path in runs]
    assert found[0]["mesh"] == {"policy": 2, "data": 1, "model": 1}
    assert found[0]["policies_per_chunk"] == 2
    assert found[1]["mesh"] == {"policy": 1, "data": 1, "model": 1}
