"""Kill -9 at any moment, then --resume: the study ends bit for bit as one that nobody touched."""

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID, save_tokenizer
from canaryjax.weights.export import save_model

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
EVERY = 3
# One policy an arm, side by side: one learns from its reward model, the other from feedback on the host, whose
# calibrator learns so fast that a lost one draws other labels.
SMALL = (
    *("study.compliant=1", "study.violating=1", "study.policies_per_chunk=1", "study.seed=7"),
    *(f"study.checkpoint_every={EVERY}", "policy.reward=simulated"),
    *("feedback.warmup_samples=16", "feedback.calibration_learning_rate=1.0", "canary.contrast=0"),
    *("data.documents=40", "reward_model.epochs=3", "policy.epochs=5", "policy.max_completion_length=20"),
    *("model.warm_start.documents=8", "model.warm_start.batch_size=2", "model.warm_start.epochs=2"),
    *("policy.num_generations=2", "policy.generation_batch_size=8", "policy.train_batch_size=8"),
    *("evaluation.max_pairs=5", "evaluation.control_pairs=2", "evaluation.decoys=3", "evaluation.noise_floor_pairs=2"),
    *("evaluation.placebos_same_form=2", "evaluation.placebos_other_form=2", "evaluation.utility_examples=3"),
    *(
        "output.save_adapters=true",
        "output.sample_every=2",
    ),
    *(["output.report_to=[tensorboard]"] if importlib.util.find_spec("tensorboardX") else []),
)
SEED = 20261130
# A study is killed again and again before it may end, then the next: at the how manieth event of which kind after the
# start at most, and at most how many seconds later. Kinds stand in the order in which a study comes to them.
KINDS = (
    *[("step warm_start", 4, 0.05), ("step reward_model", 9, 0.05), ("step reward_model", 9, 0.05), ("save ", 5, 0.05)],
    *[("step grpo", 7, 0.1), ("step grpo", 7, 0.1), ("save ", 3, 0.05), ("measure", 5, 0.3), ("write trials", 2, 0.01)],
    ("report", 1, 0.2),
)


def moments():
    """Twenty of them: kind, number after the start, seconds."""
    rng = random.Random(SEED)
    return [(kind, rng.randint(1, most), rng.uniform(0, longest)) for kind, most, longest in 2 * KINDS]


class Runner:
    """Starts runs, follows their events, and kills them."""

    def __init__(self, writes):
        # Killed while it writes to the cache that all tests share, a run would leave half a program there.
        cached = {} if writes else {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000"}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("killable.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **cached},
        )  # fmt: skip

    def run(self, log, words, kind=None, count=0, delay=0.0):
        """Runs to the end, or to `delay` seconds after the `count`-th event of a kind; gives status and events."""
        self._process.stdin.write(json.dumps([str(log), "audit", *words]) + "\n")
        self._process.stdin.flush()
        pid, events = None, []
        for line in self._process.stdout:
            event = line.strip()
            if event.startswith("pid "):
                pid = int(event.split()[1])
            elif event.startswith("end "):
                return int(event.split()[1]), events
            else:
                events.append(event)
                if kind is not None and event.startswith(kind):
                    count -= 1
                    if count == 0:
                        time.sleep(delay)
                        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                            os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"expected an end, found none; the last events: {events[-9:]}")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture
def words(tiny_model, tokenizer, tmp_path):
    save_model(tiny_model, tmp_path / "model", eos_ids=[EOS_ID], pad_id=PAD_ID)
    save_tokenizer(tokenizer.backend, tmp_path / "model")
    return ["quick", f"model.path={tmp_path / 'model'}", *SMALL]


def outcome(path):
    """What a study has found, without its timings; files byte for byte."""
    found = {name: (path / name).read_bytes() for name in ("scores.jsonl", "pairs.parquet", "base.json")}
    found |= {str(file.relative_to(path)): file.read_bytes() for file in sorted((path / "adapters").rglob("*.*"))}
    for name, timing in (("trials.jsonl", "timings"), ("metrics.jsonl", "seconds")):
        rows = [json.loads(line) for line in (path / name).read_text("utf-8").splitlines()]
        plain = [{key: value for key, value in row.items() if key != timing} for row in rows]
        # Chunks side by side write their rows in turn: each trial's are in order, trials are not.
        found[name] = sorted(plain, key=lambda row: row.get("trial", -1))
    samples = [json.loads(line) for line in (path / "samples.jsonl").read_text("utf-8").splitlines()]
    found["samples.jsonl"] = sorted(samples, key=lambda row: row["trial"])
    return found


def stages(events):
    """Steps begun, and steps whose checkpoint was written, by policy and stage."""
    steps, saved = defaultdict(list), {}
    names = {"reward_model": "reward-models", "grpo": "policies", "warm_start": "updates"}
    for event in events:
        match event.split():
            case ["step", stage, step, who]:
                steps[f"{who}/{names[stage]}"].append(int(step))
            case ["saved", where, step]:
                saved[where] = int(step)
    return steps, saved


def check_start(events, saved):
    """Every stage went on from its newest checkpoint: no step that one holds was made again."""
    steps, now = stages(events)
    for where, begun in steps.items():
        first = saved.get(where, 0)
        # The kill may have come between the end of a checkpoint and word of it.
        assert begun[0] in (first, first + EVERY), (where, begun, saved)
        assert begun == list(range(begun[0], begun[0] + len(begun)))
    return saved | now


def check_end(path, whole):
    """A finished study is the one that nobody touched, and has nothing left over."""
    found = outcome(path)
    assert found.keys() == whole.keys()
    for name, content in whole.items():
        assert found[name] == content, name
    assert not [file.name for file in path.rglob("*") if "tmp" in file.name or file.name == "checkpoints"]


def test_kills_at_twenty_moments_change_nothing(words, tmp_path, request):
    said = tmp_path / "said"
    with Runner(writes=True) as runner:
        status, events = runner.run(said, [*words, "--out", str(tmp_path / "whole")])
    assert status == 0, said.read_text()
    whole = outcome(tmp_path / "whole")
    rows = sum(len(steps) for steps in stages(events)[0].values())
    assert len(whole["metrics.jsonl"]) == rows + 2  # and what is held out of each policy's reward rows
    studies, taken_up, path, saved = 0, 0, None, {}

    def run(*moment):
        nonlocal saved, taken_up
        said.unlink(missing_ok=True)
        resume = ["--resume"] if path.exists() else []
        status, events = runner.run(said, [*words, "--out", str(path), *resume], *moment)
        assert status in (0, -signal.SIGKILL), said.read_text()
        saved = check_start(events, saved)
        taken_up += said.read_text().count(": resuming at ")
        if status == 0:
            check_end(path, whole)
            if importlib.util.find_spec("tensorboardX"):  # each row once there, too
                there, wanted = request.getfixturevalue("mirrored")(path)
                assert there == wanted
        return status, events

    with Runner(writes=False) as runner:
        for kind, count, delay in moments():
            status, events = (0, []) if path is None else run(kind, count, delay)
            if status == 0:  # it came to its end before such a moment: the next study comes to it
                studies, path, saved = studies + 1, tmp_path / f"killed-{studies}", {}
                status, events = run(kind, count, delay)
            print(f"killed {delay:.3f} s after number {count} of {kind!r}; the last event: {events[-1]!r}")
            assert status == -signal.SIGKILL
        assert run()[0] == 0
    assert studies >= 2
    # Most starts take up the reward models and the policies of both trials.
    assert taken_up >= 20
