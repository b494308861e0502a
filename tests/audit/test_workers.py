"""Chunks side by side: each once, from both ends, and no error lost."""

import threading

import pytest

from canaryjax.audit.workers import run_from_both_ends
from canaryjax.rl.programs import once


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_every_item_is_run_once(workers):
    done = []
    run_from_both_ends(range(7), done.append, workers)
    assert sorted(done) == list(range(7))


def test_two_workers_begin_at_the_two_ends_and_meet():
    together = threading.Barrier(2, timeout=30)
    pairs = []

    def run(item):
        if together.wait() == 0:
            pairs.append(set())
        together.wait()
        pairs[-1].add(item)
        together.wait()

    run_from_both_ends(range(6), run, 2)
    assert pairs == [{0, 5}, {1, 4}, {2, 3}]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_ends_the_rest_and_is_raised(workers):
    begun = []

    def run(item):
        begun.append(item)
        if item == 0:
            raise KeyboardInterrupt("stopped")

    with pytest.raises(KeyboardInterrupt, match="stopped"):
        run_from_both_ends(range(1000), run, workers)
    assert len(begun) < 1000


def test_threads_that_ask_together_get_one_program():
    started = threading.Barrier(4, timeout=30)
    found = []

    @once
    def make(number):
        return object()

    def ask():
        started.wait()
        found.append(make(1))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert make(2) is not found[0]
