"""Arms are drawn before anything is built, in exact blocks unless asked otherwise."""

import subprocess
import sys

from canaryjax.audit.assignment import assign_arms, chunk_trials
from canaryjax.config.study import StudyConfig


def counts(assignments):
    return [sum(a.arm == arm for a in assignments) for arm in ("compliant", "violating")]


def test_blocks_hold_the_exact_counts_and_mix_the_order():
    assignments = assign_arms(StudyConfig(seed=3, compliant=7, violating=5))
    assert counts(assignments) == [7, 5]
    assert [a.trial for a in assignments] == list(range(12))
    # An unshuffled plan would give all compliant trials the lowest numbers, and the number would tell the arm.
    assert {a.arm for a in assignments[:7]} == {"compliant", "violating"}
    assert all(a.draw == a.trial for a in assignments)


def test_a_fair_coin_gives_counts_that_vary():
    totals = {
        counts(assign_arms(StudyConfig(seed=s, compliant=5, violating=5, assignment="iid")))[0] for s in range(20)
    }
    assert len(totals) > 2


def test_pairs_share_their_draw_across_arms():
    assignments = assign_arms(StudyConfig(seed=1, compliant=4, violating=4, paired=True))
    draws = {arm: sorted(a.draw for a in assignments if a.arm == arm) for arm in ("compliant", "violating")}
    assert draws == {"compliant": [0, 1, 2, 3], "violating": [0, 1, 2, 3]}


def test_the_draw_does_not_depend_on_the_hash_seed():
    code = (
        "from canaryjax.audit.assignment import assign_arms; from canaryjax.config.study import StudyConfig; "
        "print(''.join(a.arm[0] for a in assign_arms(StudyConfig(seed=9))))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert found.pop().strip().count("c") == 10


def test_chunks_hold_one_arm_each_and_lose_nobody():
    assignments = assign_arms(StudyConfig(seed=5, compliant=7, violating=3))
    chunks = chunk_trials(assignments, 3)
    assert [len(chunk) for chunk in chunks] == [3, 3, 1, 3]
    assert all(len({a.arm for a in chunk}) == 1 for chunk in chunks)
    assert sorted(a.trial for chunk in chunks for a in chunk) == list(range(10))
