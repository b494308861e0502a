"""The agreement column must fail whenever two stacks compute different things."""

import numpy as np
import pytest

from harness.agreement import Agreement

LOGPS = np.array([[-0.5, -7.0, -131.0], [-2.0, 0.0, -11.0]])
GRADIENTS = {"a": np.full((2, 3), 5.0), "b": np.full((7,), 1e-6)}


def test_equal_answers_agree():
    same = {"logps": LOGPS, "sampled_ids": np.arange(5), "loss": -0.3, "gradients": GRADIENTS}
    agreement = Agreement(same, same)
    assert agreement.holds
    assert agreement.record()["checks"]["loss"] == {"difference": 0.0, "tolerance": 1e-4}


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("logps", LOGPS + np.array([[0, 0, 0], [3e-5, 0, 0]]), LOGPS),  # more than 1e-5 of 2 nats
        ("logps", np.where(LOGPS == 0.0, np.nan, LOGPS), LOGPS),  # NaN is within nothing
        ("logps", LOGPS[:, :2], LOGPS),
        ("logps", LOGPS[:0], LOGPS[:0]),  # nothing was compared
        ("reference_logps", None, LOGPS),
        ("sampled_ids", np.array([1, 2, 4]), np.array([1, 2, 3])),
        ("loss", 0.1002, 0.1),
        ("gradient_norm", np.array([1.0, 2.001]), np.array([1.0, 2.0])),
        ("gradients", {"a": GRADIENTS["a"]}, GRADIENTS),
        ("gradients", GRADIENTS | {"b": np.zeros(7)}, GRADIENTS),  # a tensor so small that one norm would hide it
        ("gradients", GRADIENTS | {"a": GRADIENTS["a"].T}, GRADIENTS),
        ("gradients", {"a": np.zeros(3)}, {"a": np.zeros(3)}),  # no gradient at all agrees with anything
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in scalar divide:RuntimeWarning")
def test_other_answers_do_not(name, ours, theirs):
    answers = {} if ours is None else {name: ours}
    agreement = Agreement(answers, {name: theirs})
    assert not agreement.holds
    assert agreement.record()["holds"] is False


def test_a_difference_relative_to_a_large_log_prob_is_allowed():
    # 1e-5 of 131 nats is 1.3e-3: float32 carries no more digits there.
    assert Agreement({"logps": LOGPS - np.array([[0, 0, 1e-3], [0, 0, 0]])}, {"logps": LOGPS}).holds


def test_no_answer_agrees_with_nothing():
    assert not Agreement({"logps": LOGPS}, {}).holds
