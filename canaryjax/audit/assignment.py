"""Which trial is which arm: drawn before anything is built, hidden from the scorer, joined at the end (BC-49, -50)."""

from dataclasses import dataclass
from typing import Literal

from canaryjax.config.study import StudyConfig
from canaryjax.keys import host_rng

Arm = Literal["compliant", "violating"]
ARMS: tuple[Arm, Arm] = ("compliant", "violating")


@dataclass(frozen=True)
class Assignment:
    """One trial's place in the study.

    Attributes:
      trial: Its number, from 0; the order says nothing about the arm.
      arm: Whether training saw documents.
      draw: What names its random streams. Trials of one matched pair share it; otherwise it is the trial's own number.
    """

    trial: int
    arm: Arm
    draw: int


def assign_arms(study: StudyConfig) -> list[Assignment]:
    """The arms of all trials.

    `blocked` permutes the exact counts (BC-A7); `iid` tosses a fair coin for each trial of the same total, so that the
    counts vary; `paired` gives each draw to both arms.

    Args:
      study: Counts, seed and scheme.

    Returns:
      One assignment a trial, in trial order.
    """
    rng = host_rng(study.seed, "arms")
    total = study.compliant + study.violating
    if study.paired:
        # Both arms take the draws 0, 1, 2, ... and the trial numbers are shuffled over them.
        plan = [
            (arm, draw) for arm, n in zip(ARMS, (study.compliant, study.violating), strict=True) for draw in range(n)
        ]
        order = rng.permutation(total)
        return [Assignment(trial, *plan[slot]) for trial, slot in enumerate(order)]
    if study.assignment == "iid":
        arms = [ARMS[bit] for bit in rng.integers(2, size=total)]
    else:
        arms = [ARMS[0]] * study.compliant + [ARMS[1]] * study.violating
        arms = [arms[slot] for slot in rng.permutation(total)]
    return [Assignment(trial, arm, trial) for trial, arm in enumerate(arms)]


def chunk_trials(assignments: list[Assignment], size: int) -> list[list[Assignment]]:
    """Chunks of `size` trials of one arm; the last of an arm may be smaller, and is compiled anew.

    >>> trials = [Assignment(i, ARMS[i % 2], i) for i in range(6)]
    >>> [[t.trial for t in chunk] for chunk in chunk_trials(trials, 2)]
    [[0, 2], [4], [1, 3], [5]]
    """
    chunks = []
    for arm in ARMS:
        own = [a for a in assignments if a.arm == arm]
        chunks += [own[start : start + size] for start in range(0, len(own), size)]
    return chunks
