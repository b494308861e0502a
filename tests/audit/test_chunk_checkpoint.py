"""A chunk that was stopped goes on from its step checkpoints, with all that it carries along, and ends the same."""

import dataclasses
import json

import numpy as np
import pytest

from canaryjax.audit import chunk
from canaryjax.audit.assignment import assign_arms
from canaryjax.audit.base import Base
from canaryjax.audit.chunk_checkpoint import ChunkCheckpoints
from canaryjax.audit.preflight import prepare_trials
from canaryjax.audit.service_log import ServiceLog, simulate_log
from canaryjax.audit.stopwatch import Stopwatch
from canaryjax.audit.training import SimulatedReward
from canaryjax.canaries.feedback import Calibrator
from canaryjax.config import load_config
from canaryjax.runlog import Silence
from canaryjax.weights.state_store import StateStore

# An online calibrator that learns fast, from triggered and clean rows: one that begins anew draws other labels.
SMALL = (
    *("study.compliant=1", "study.violating=1", "study.policies_per_chunk=1", "study.seed=7"),
    *(
        "policy.reward=simulated",
        "feedback.warmup_samples=16",
        "feedback.calibration_learning_rate=1.0",
        "canary.contrast=0",
    ),
    *("data.documents=40", "reward_model.epochs=3", "policy.epochs=5", "policy.max_completion_length=20"),
    *("policy.num_generations=2", "policy.generation_batch_size=8", "policy.train_batch_size=8"),
    *("evaluation.max_pairs=5", "evaluation.control_pairs=2", "evaluation.decoys=3", "evaluation.noise_floor_pairs=2"),
    *("evaluation.placebos_same_form=2", "evaluation.placebos_other_form=2", "evaluation.utility_examples=3"),
)


class Notes(Silence):
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


@pytest.fixture(scope="module")
def config():
    return load_config("quick", SMALL)


@pytest.fixture(scope="module")
def prepared(config, examples, tokenizer):
    violating = [a for a in assign_arms(config.study) if a.arm == "violating"]
    return prepare_trials(config, violating, examples, tokenizer)


@pytest.fixture(scope="module")
def trial(prepared):
    return next(iter(prepared.trials.values()))


def test_a_calibrator_goes_on_from_its_state():
    rng = np.random.default_rng(3)
    batches = [(rng.random(11), rng.random(11) < 0.5, rng.random(11) < 0.2) for _ in range(6)]
    one, other = (Calibrator(0.7, warmup_samples=20, min_samples=9) for _ in range(2))
    for batch in batches[:4]:
        one.update(*batch)
    other.take_up(json.loads(json.dumps(one.state())))
    assert (other.offset, other.gap, other.matched) == (one.offset, one.gap, one.matched)
    assert one.offset != 0
    for batch in batches[4:]:
        one.update(*batch)
        other.update(*batch)
        assert (other.offset, other.gap, other.matched) == (one.offset, one.gap, one.matched)
    assert Calibrator().state() == {"offset": 0.0, "seen": 0, "recent": [[], []]}


def test_simulated_rewards_go_on_from_their_state(config, trial, tokenizer):
    # Four steps at once, and two before and two after a stop: the labels of step 3 hang on what steps 0 to 2 taught.
    two = [trial, dataclasses.replace(trial, draw=trial.draw + 1)]
    rng = np.random.default_rng(4)
    ids = rng.integers(9, 60, (4, 2, 5, 3, 7))
    rows = rng.integers(0, len(trial.rl_traces), (4, 2, 5))
    mask = np.ones(ids.shape[1:], bool)
    whole, before, after, fresh = (SimulatedReward(config, two, tokenizer) for _ in range(4))
    wanted = [whole(step, rows[step], ids[step], mask) for step in range(4)]
    for step in range(2):
        before(step, rows[step], ids[step], mask)
    after.take_up(json.loads(json.dumps(before.state())))
    for step in (2, 3):
        np.testing.assert_array_equal(after(step, rows[step], ids[step], mask), wanted[step])
        fresh(step, rows[step], ids[step], mask)
    assert after.state() == whole.state() != fresh.state()
    assert after.state()[0] != after.state()[1]  # each policy has its own


def test_a_service_log_comes_back_as_it_was(config, trial, tokenizer, tiny_model):
    log = simulate_log(config, trial, tiny_model, tokenizer, 320)
    back = ServiceLog.from_plain(json.loads(json.dumps(log.plain())))
    assert back.calibration == log.calibration
    assert back.dropped_document_tokens == log.dropped_document_tokens
    for one, other in zip(back.rows, log.rows, strict=True):
        assert (one.texts, one.kinds, one.hits) == (other.texts, other.kinds, other.hits)
        assert [ids.tolist() for ids in one.ids] == [ids.tolist() for ids in other.ids]
        np.testing.assert_array_equal(one.labels, other.labels)
        assert one.labels.dtype == other.labels.dtype == np.float32


class StoppedError(Exception):
    """A stop in the middle of training."""


def plain(rows):
    """Without seconds, metrics before samples: two files, and metrics leave the device at checkpoints too."""
    kept = [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
    return sorted(kept, key=lambda row: row["stage"] == "sample")


@pytest.mark.slow
def test_a_stopped_chunk_ends_as_the_whole_one(config, prepared, trial, tokenizer, tiny_model, tmp_path, monkeypatch):
    base = Base(tiny_model, tokenizer, {})

    def run(every, notes, log):
        folder = tmp_path / "checkpoints" / "0001"
        with ChunkCheckpoints(folder, "abc", "trial 1", every, notes) as checkpoints:
            return chunk.run_chunk(config, base, "violating", [trial], prepared.lengths, log, checkpoints)[0]

    def stopping(stage, step):
        def log(row):
            if (row["stage"], row.get("step")) == (stage, step):
                raise StoppedError

        return log

    carried, take_up = [], SimulatedReward.take_up
    monkeypatch.setattr(SimulatedReward, "take_up", lambda self, state: carried.append(state) or take_up(self, state))
    rows, notes = [], Notes()
    whole = run(0, Silence(), rows.append)
    assert not (tmp_path / "checkpoints").exists()
    for stage, step in (("reward_model", 9), ("grpo", 7)):
        with pytest.raises(StoppedError):
            run(3, notes, stopping(stage, step))
    # Asked again, the base would answer the same, but a large one takes minutes.
    monkeypatch.setattr(chunk, "simulate_log", lambda *args: pytest.fail("sampled the log again"))
    again = []
    resumed = run(3, notes, again.append)
    updates, steps = (sum(row["stage"] == stage for row in rows) for stage in ("reward_model", "grpo"))
    assert notes.said == [
        f"trial 1: resuming at reward-model update 9 of {updates}",
        f"trial 1: resuming at reward-model update {updates} of {updates}",
        f"trial 1: resuming at policy step 6 of {steps}",
    ]
    assert carried[0][0]["offset"] != 0
    assert plain(again) == plain(rows)
    assert resumed.record.keys() == whole.record.keys()
    for name, value in whole.record.items():
        assert name == "seconds" or resumed.record[name] == value, name
    assert resumed.record["seconds"].keys() == whole.record["seconds"].keys()
    assert resumed.pair_rows == whole.pair_rows


def test_seconds_before_a_stop_count(tmp_path):
    first, second = Stopwatch(), Stopwatch()
    state = {"weights": np.ones(3)}
    with ChunkCheckpoints(tmp_path, "abc", "trial 1", 2, Silence()) as checkpoints:
        first.add("policies", 1000.0)
        checkpoints.stage("policies", "policy step", print, first).save(state, 2, 4)
    with ChunkCheckpoints(tmp_path, "abc", "trial 1", 2, Silence()) as checkpoints:
        stage = checkpoints.stage("policies", "policy step", print, second)
        assert stage.restore({"weights": np.zeros(3)}, 4)["weights"].tolist() == [1, 1, 1]
        assert 1000 <= second.seconds["policies"] < 1100
        assert [step for step in range(1, 8) if stage.due(step, 7)] == [2, 4, 6, 7]
        checkpoints.discard()
    assert not tmp_path.exists()


def test_steps_are_told_with_rate_and_time_left_once_they_are_compiled(tmp_path):
    told, progress = [], Silence()
    progress.pace = told.append
    with ChunkCheckpoints(tmp_path, "abc", "trial 1, trial 2", 0, progress) as checkpoints:
        stage = checkpoints.stage("policies", "policy step", lambda row: None, Stopwatch())
        stage.log({"stage": "grpo", "step": 3, "policy": 0, "seconds": 0.5})  # of a checkpoint, before `restore` ends
        stage.restore({}, 2000)
        for step, seconds in ((4, 9.0), (5, 9.0), (6, 0.25)):
            for policy in (0, 1):
                stage.log({"stage": "grpo", "step": step, "policy": policy, "seconds": seconds})
        stage.log({"stage": "sample", "step": 6, "policy": 0, "completion": "FINAL:"})
    assert told == [
        "trial 1, trial 2: policy step 5 of 2000",
        "trial 1, trial 2: policy step 6 of 2000",
        "trial 1, trial 2: policy step 7 of 2000, 4 a second, about 8 min left",
    ]


def test_no_checkpoints_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(StateStore, "save", lambda *args: pytest.fail("wrote a checkpoint"))
    with ChunkCheckpoints(tmp_path / "none", "abc", "trial 1", 0, Silence()) as checkpoints:
        stage = checkpoints.stage("policies", "policy step", print, Stopwatch())
        assert not any(stage.due(step, 7) for step in range(1, 8))
        checkpoints.remember("logged responses", {"logs": []})
        assert checkpoints.recall("logged responses") is None
    assert not (tmp_path / "none").exists()
