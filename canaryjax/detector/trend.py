"""The declared tests by permutation: the trend over the ladder, which is the primary one, and the floor.

Both score a target by its evidence (`Verdict.evidence`), the hit rule before its threshold. A ladder holds a few
sentences a rung; of hits alone three in the top rung may be needed before anything could be found, while a memory of
part of a sentence is lost. One lucky answer still moves nothing, and chance guesses cannot make a finding: rungs and
roles were dealt by lot, so the permutation test is exact whatever the scores' law.
"""

import math
from collections.abc import Sequence
from typing import Any

from canaryjax.detector.hit import Verdict
from canaryjax.errors import UserError
from canaryjax.stats import DoseTest, dose_permutation

PUBLISHED = ("site", "ladder")  # tiers that the floor test holds against the negatives


def ladder_trend(verdicts: Sequence[Verdict], permutations: int) -> DoseTest:
    """Test that evidence rises with log10 of the occurrences over the ladder's rungs.

    Args:
      verdicts: Of all targets; those without answers are left out.
      permutations: Random allocations of rungs where there are too many to go through all.

    Raises:
      UserError: A ladder canary without occurrences.
    """
    ladder = [verdict for verdict in verdicts if verdict.target.tier == "ladder" and verdict.answers]
    doses = []
    for verdict in ladder:
        if not verdict.target.occurrences:
            raise UserError(
                f"expected occurrences of 1 or more of every ladder canary, found {verdict.target.occurrences} of "
                f"{verdict.target.key}; restore the manifest"
            )
        doses.append(math.log10(verdict.target.occurrences))
    return dose_permutation(doses, [verdict.evidence for verdict in ladder], permutations)


def floor_test(verdicts: Sequence[Verdict], permutations: int) -> DoseTest:
    """Test that sentences of the site and its ladder show more evidence than negatives, by permutation of the roles.

    Args, raises: As `ladder_trend`.
    """
    kept = [
        verdict
        for verdict in verdicts
        if verdict.answers and (verdict.target.population == "negative" or verdict.target.tier in PUBLISHED)
    ]
    roles = [0.0 if verdict.target.population == "negative" else 1.0 for verdict in kept]
    return dose_permutation(roles, [verdict.evidence for verdict in kept], permutations)


def as_record(test: DoseTest, alpha: float, p_value: float | None) -> dict[str, Any]:
    """A test as the report holds it.

    Args:
      test: As it came.
      alpha: Level at this look.
      p_value: What is held against the level: the test's own, or after Holm's correction.
    """
    return {
        "statistic": test.statistic,
        "p": test.p_value,
        "method": test.method,
        "permutations": test.permutations,
        "n": test.n,
        "alpha": alpha,
        "below_alpha": None if p_value is None else p_value <= alpha,
        "reason": test.reason,
    }
