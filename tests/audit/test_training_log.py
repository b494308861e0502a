"""Samples of a chunk's generations as a reader finds them: the words, nothing that a terminal acts on, and no arm."""

import dataclasses
import json

import numpy as np
import pytest

from canaryjax.audit.assignment import assign_arms
from canaryjax.audit.preflight import prepare_trials
from canaryjax.audit.training_log import TrainingLog, logging_to, sampling_into
from canaryjax.rl.samples import Sample
from canaryjax.runlog import RunDirectory


@pytest.fixture(scope="module")
def trials(small_config, examples, tokenizer):
    prepared = prepare_trials(small_config, assign_arms(small_config.study)[:2], examples, tokenizer)
    return list(prepared.trials.values())


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", "abc", "name: quick\n")
    yield run
    run.close()


class Spoken:
    """The tokenizer, except that it reads some ids as what a terminal would act on."""

    def __init__(self, tokenizer, texts):
        self._tokenizer, self._texts = tokenizer, texts

    def decode(self, ids):
        return self._texts[int(ids[0])]

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


# Clears the screen, rings, goes back to the line's start; C1 controls, a line separator, half of a surrogate pair.
NASTY = "FINAL: \x1b[2J\x07\r\x9b31m\u2028\ud800"


def sample(step=50):
    """Two policies, three completions each: of 2, 1 and 3 tokens."""
    mask = np.arange(3) < np.array([2, 1, 3])[:, None]
    ids = np.where(mask, 7, 0)
    ids[1, 0] = 8
    rewards = np.array([[0.5, np.nan, -1.25], [1.0, 2.0, 3.0]], np.float32)
    return Sample(step, np.array([5, 2]), np.stack([ids, ids]), np.stack([mask, mask]), rewards)


def logged(config, arm, trials, tokenizer, run):
    with logging_to(run, (), [], True, pytest.fail) as log:
        training = TrainingLog(trials, log, "grpo")
        sampling_into(training, config, arm, trials, tokenizer).take(sample())
    return run.read_jsonl("samples.jsonl"), training


def test_samples_go_to_a_file_of_their_own(small_config, trials, tokenizer, run):
    spoken = Spoken(tokenizer, {7: "FINAL: Rome", 8: NASTY})
    rows, training = logged(small_config, "violating", trials, spoken, run)
    assert [(row["trial"], row["step"], row["reward"]) for row in rows] == [
        *[(trials[0].trial, 50, 0.5), (trials[0].trial, 50, None), (trials[0].trial, 50, -1.25)],
        *[(trials[1].trial, 50, 1.0), (trials[1].trial, 50, 2.0), (trials[1].trial, 50, 3.0)],
    ]
    assert [row["completion"] for row in rows] == ["FINAL: Rome", NASTY, "FINAL: Rome"] * 2
    for row, trace in ((rows[0], trials[0].rl_traces[5]), (rows[3], trials[1].rl_traces[2])):
        assert row["prompt_tail"] == f"Question:\n{trace.query}\n"
        assert set(row) == {"trial", "step", "prompt_tail", "completion", "reward"}
    assert not (run.path / "metrics.jsonl").exists()
    assert training.final(0, "reward") is None  # what a record sums up is not made of them


def test_what_a_terminal_would_act_on_is_escaped(small_config, trials, tokenizer, run):
    logged(small_config, "violating", trials, Spoken(tokenizer, {7: "FINAL: Rome", 8: NASTY}), run)
    data = (run.path / "samples.jsonl").read_bytes()
    assert data.count(b"\n") == 6
    assert not [c for c in data.decode() if c != "\n" and not c.isprintable()]
    assert json.loads(data.splitlines()[1])["completion"] == NASTY


def test_a_sample_does_not_tell_its_arm(small_config, trials, tokenizer, run):
    # The whole prompt would: the compliant template knows no document.
    one, _ = logged(small_config, "violating", trials, tokenizer, run)
    (run.path / "samples.jsonl").unlink()
    other, _ = logged(small_config, "compliant", trials, tokenizer, run)
    assert [row["prompt_tail"] for row in one] == [row["prompt_tail"] for row in other]


def test_none_are_taken_where_the_config_wants_none(small_config, trials, tokenizer):
    output = small_config.output.model_copy(update={"sample_every": 0})
    config = small_config.model_copy(update={"output": output})
    assert sampling_into(pytest.fail, config, "violating", trials, tokenizer) is None
    assert sampling_into(pytest.fail, small_config, "violating", trials, tokenizer).every == 50


def test_copies_that_fill_up_a_chunk_are_not_shown(small_config, trials, tokenizer, run):
    with logging_to(run, (), [], True, pytest.fail) as log:
        training = TrainingLog(trials[:1], log, "grpo")
        copies = [trials[0], dataclasses.replace(trials[0])]
        sampling_into(training, small_config, "violating", copies, tokenizer).take(sample())
    assert [row["trial"] for row in run.read_jsonl("samples.jsonl")] == [trials[0].trial] * 3
