"""A trainer's loop that is run one step at a time."""

import pytest

from harness.stepper import Stepper


def loop(stepper_of, steps, done):
    def train():
        for number in range(steps):
            stepper_of["it"].step_begins()
            done.append(number)
            stepper_of["it"].step_ends()

    stepper_of["it"] = Stepper(train)
    return stepper_of["it"]


def test_a_step_is_made_only_when_asked_for():
    done = []
    stepper = loop({}, 5, done)
    assert done == []
    assert stepper.seconds() >= 0.0
    assert done == [0]
    stepper.seconds()
    assert done == [0, 1]


def test_a_loop_that_ends_or_fails_is_heard_of():
    # Without it the thread that waits would wait forever.
    with pytest.raises(RuntimeError, match="stopped before the step was done") as caught:
        loop({}, 0, []).seconds()
    assert "came to its end" in str(caught.value.__cause__)

    def broken():
        raise ValueError("no such optimiser")

    with pytest.raises(RuntimeError) as caught:
        Stepper(broken).seconds()
    assert "no such optimiser" in str(caught.value.__cause__)
