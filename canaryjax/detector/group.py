"""Canaries by tier, cohort and occurrences: what the report says of each such group."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from canaryjax.detector.hit import Verdict
from canaryjax.detector.records import COHORTS, TIERS, Cohort, Tier
from canaryjax.stats import Interval, wilson_interval


@dataclass(frozen=True)
class Tally:
    """Hits of some targets; those without an answered call are counted apart and nowhere else.

    Attributes:
      n: Targets with an answer.
      unanswered: Targets without.
      hits, field_hits, raw_hits: Of the n, by the declared rule, by the field rule, and with what the questions gave.
    """

    n: int
    unanswered: int
    hits: int
    field_hits: int
    raw_hits: int

    def rate(self, level: float) -> Interval:
        """Of hits by the declared rule."""
        return wilson_interval(self.hits, self.n, level)

    def field_rate(self, level: float) -> Interval:
        """Of hits by the field rule."""
        return wilson_interval(self.field_hits, self.n, level)


@dataclass(frozen=True)
class Group:
    """Canaries of one tier, number of occurrences and cohort.

    Attributes:
      name: In the report.
      tier, occurrences, cohort: What they share.
      verdicts: Theirs, those without answers too.
    """

    name: str
    tier: Tier
    occurrences: int | None
    cohort: Cohort | None
    verdicts: tuple[Verdict, ...]


def tally(verdicts: Sequence[Verdict]) -> Tally:
    """Count the hits of some targets."""
    answered = [verdict for verdict in verdicts if verdict.answers]
    return Tally(
        n=len(answered),
        unanswered=len(verdicts) - len(answered),
        hits=sum(verdict.hit for verdict in answered),
        field_hits=sum(verdict.field_hit for verdict in answered),
        raw_hits=sum(verdict.raw_hit for verdict in answered),
    )


def form_groups(verdicts: Sequence[Verdict]) -> list[Group]:
    """The canaries' groups: tiers and cohorts in the order of the records, most occurrences first, unknown last."""
    members: dict[tuple[Tier, Cohort | None, int | None], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        target = verdict.target
        if target.population == "canary" and target.tier is not None:
            members[target.tier, target.cohort, target.occurrences].append(verdict)

    def place(key: tuple[Tier, Cohort | None, int | None]) -> tuple[int, int, int]:
        tier, cohort, occurrences = key
        return TIERS.index(tier), -1 if cohort is None else COHORTS.index(cohort), -(occurrences or 0)

    return [
        Group(
            name=" ".join(str(part) for part in (tier, cohort, occurrences) if part is not None),
            tier=tier,
            occurrences=occurrences,
            cohort=cohort,
            verdicts=tuple(members[tier, cohort, occurrences]),
        )
        for tier, cohort, occurrences in sorted(members, key=place)
    ]
