"""From the two control rates to a group: normalised rate, Bayes factor, posterior probability."""

from dataclasses import dataclass
from typing import Any

from canaryjax.detector.prior import Prior
from canaryjax.stats import beta_binomial_ratio, jeffreys_rate, rogan_gladen


@dataclass(frozen=True)
class Controls:
    """Hits under the field rule, which alone holds for famous facts, and numbers of both controls.

    Attributes:
      floor_hits, floor_n: Of the negatives.
      ceiling_hits, ceiling_n: Of the positives.
    """

    floor_hits: int
    floor_n: int
    ceiling_hits: int
    ceiling_n: int

    @property
    def floor(self) -> float | None:
        return self.floor_hits / self.floor_n if self.floor_n else None

    @property
    def ceiling(self) -> float | None:
        return self.ceiling_hits / self.ceiling_n if self.ceiling_n else None

    @property
    def reason(self) -> str | None:
        """Why nothing can be set against them, or None."""
        return rogan_gladen(0.0, self.floor, self.ceiling).reason


def normalised(hits: int, n: int, controls: Controls) -> dict[str, Any]:
    """Rate of a group between the floor, 0, and the ceiling, 1; null with a reason where they are not two.

    Args:
      hits, n: Of the group, under the field rule as the controls.
      controls: Both control rates.
    """
    return rogan_gladen(hits / n if n else None, controls.floor, controls.ceiling).to_dict()


def hit_ratios(controls: Controls) -> tuple[float, float]:
    """Likelihood ratios of a single hit and a single miss with Jeffreys-smoothed control rates plugged in.

    They show what one sentence weighs. The posterior does not multiply them: it integrates over both rates.

    >>> [round(ratio, 3) for ratio in hit_ratios(Controls(0, 20, 5, 8))]
    [25.667, 0.398]
    """
    floor = jeffreys_rate(controls.floor_hits, controls.floor_n)
    ceiling = jeffreys_rate(controls.ceiling_hits, controls.ceiling_n)
    return ceiling / floor, (1 - ceiling) / (1 - floor)


def posterior(hits: int, n: int, controls: Controls, prior: Prior, occurrences: int | None) -> dict[str, Any]:
    """Probability that a group was trained on: prior odds times how much likelier its hits are at the ceiling's rate
    than at the floor's.

    Args:
      hits, n: Of the group, under the field rule.
      controls: Both control rates; their uncertainty is integrated out.
      prior: Of the group.
      occurrences: Of the group's sentences. Famous facts recur far oftener than once, so at 1 no group can reach their
        rate, and the result says that it is pessimistic.
    """
    reason = controls.reason or (None if n else "no target of the group was answered")
    found: dict[str, Any] = {
        "prior": prior.value,
        "prior_source": prior.source,
        "bayes_factor": None,
        "per_hit": None,
        "per_miss": None,
        "probability": None,
        "pessimistic": occurrences == 1,
        "reason": reason,
    }
    if reason is None:
        factor = beta_binomial_ratio(
            hits, n, controls.ceiling_hits, controls.ceiling_n, controls.floor_hits, controls.floor_n
        )
        found["bayes_factor"] = factor
        found["per_hit"], found["per_miss"] = hit_ratios(controls)
        for_it = prior.value * factor
        found["probability"] = for_it / (for_it + (1 - prior.value))
    return found
