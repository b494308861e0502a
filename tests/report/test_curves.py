"""Training curves: policy stages only, joined to arms by trial, mean over policies at each step."""

import numpy as np

from canaryjax.report.controls_figures import _mean_curve
from canaryjax.report.run import Run, curves, read_run


def test_curves_join_arms_by_trial(report, run_at):
    run = read_run(run_at(report))
    reward = curves(run, "reward")
    # Reading the reward model's rows too, or joining by order, would mix these up.
    assert {arm: sorted(trials) for arm, trials in reward.items()} == {
        "compliant": list(range(10)),
        "violating": list(range(10, 20)),
    }
    steps, values = reward["violating"][13]
    assert steps.tolist() == list(range(0, 56, 4))
    assert values.shape == (14,)


def test_rows_without_an_arm_or_a_number_are_left_out(tmp_path):
    rows = [
        {"stage": "policy", "trial": 1, "step": 0, "reward": None},
        {"stage": "policy", "trial": 1, "step": 4, "reward": 2.0},
        {"stage": "policy", "trial": 9, "step": 0, "reward": 5.0},
        {"stage": "policy", "trial": [1], "step": 0, "reward": 5.0},
        {"stage": "policy", "trial": 1, "step": "x", "reward": 5.0},
    ]
    found = curves(Run(tmp_path, {}, rows, {1: "violating"}), "reward")
    assert found["compliant"] == {}
    assert [part.tolist() for part in found["violating"][1]] == [[4.0], [2.0]]


def test_mean_curve_averages_the_policies_that_logged_a_step():
    one = (np.array([0.0, 2.0]), np.array([1.0, 3.0]))
    two = (np.array([2.0, 4.0]), np.array([5.0, 7.0]))
    steps, means = _mean_curve([one, two])
    assert steps.tolist() == [0.0, 2.0, 4.0]
    assert means.tolist() == [1.0, 4.0, 7.0]
