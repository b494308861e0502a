"""What a resumed run takes over from the one that was stopped, and what it does again."""

import pytest

from canaryjax.audit import study
from canaryjax.audit.assignment import Assignment
from canaryjax.runlog import RunDirectory, Silence, cores


class Notes(Silence):
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", "quick", "abc", "name: quick\n")
    yield run
    run.close()


@pytest.mark.parametrize("kept_warm_start", [True, False])
def test_metrics_of_what_is_trained_again_leave_the_log(run, kept_warm_start):
    warm = [{"stage": "warm_start", "step": 0, "loss": 0.1 + 0.2}]
    done = [{"trial": 4, "stage": "grpo", "step": step, "kl": 1e-7 * step} for step in range(3)]
    stale = [{"trial": trial, "stage": "reward_model", "step": 0} for trial in (1, 7)]
    for row in warm + stale[:1] + done + stale[1:]:
        run.append_jsonl("metrics.jsonl", row)
    if kept_warm_start:
        (run.path / study.WARM_START).mkdir()
    # Trial 7 ended before the stop, but its chunk is run again with trial 1: kept, its steps would stand there twice.
    study._drop_stale_metrics(run, [[Assignment(1, "violating", 1), Assignment(7, "violating", 7)]])
    assert run.read_jsonl("metrics.jsonl") == (warm if kept_warm_start else []) + done


def test_another_number_of_threads_is_told_and_the_chunk_size_kept(run, small_config, tiny_model, examples):
    def opening(config, resume):
        notes = Notes()
        return study._opening(config, tiny_model.config, examples, run, resume, notes), notes.said

    sizes = (small_config.study.model_copy(update={"policies_per_chunk": n}) for n in (3, 2))
    first, other = (small_config.model_copy(update={"study": section}) for section in sizes)
    assert opening(first, False) == (3, [])
    assert opening(other, True) == (3, [])
    kept = run.read_json("opening.json")
    assert kept["threads"] == cores()
    run.write_json("opening.json", kept | {"threads": 61})
    size, said = opening(other, True)
    assert size == 3
    assert len(said) == 1
    assert f"begun with 61 threads and goes on with {cores()}" in said[0]
