"""What the numbers may be read as: sentences that a rule chooses, never stronger than the tests behind them."""

from collections.abc import Mapping, Sequence
from typing import Any

FRESH = (
    "No tier can be told from the floor. For a site that is days old this is what is expected: the baseline that later "
    "runs, on a fixed schedule, are compared with. It does not show that the site was not trained on."
)
ONCE = (
    "For sentences that stood on the site once the posterior is pessimistic by construction: no sentence seen once "
    "reaches the recall of famous facts. There the finding is the curve over the rungs, not the number."
)
LIMITATIONS = (
    "That nothing is recalled is weak evidence: a model can have been trained on a page and not give it back.",
    "A maker can filter or weigh down sentences such as these; that would show as a floor under a log full of its "
    "verified fetches.",
    "Famous facts calibrate the recall of what stands in many places, not of the rare sentences that canaries are.",
    "Membership by log-probs needs a backend that gives them, and is noisy on large models.",
    "Only what is asked about is found: a model that took up the site's manner without one of its facts looks clean.",
)


def reading(
    trend: Mapping[str, Any],
    floor: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
    contrast: Mapping[str, Any] | None,
    alpha: float,
) -> list[str]:
    """Sentences of interpretation.

    Args:
      trend, floor: Both tests, as the report holds them.
      groups: As the report holds them.
      contrast: Of linked pages over sitemap-only ones: its `holm_p`; None where one of them has no answers.
      alpha: Level at this look.
    """
    raised = [group for group in groups if _at_most(group["holm_p"], alpha)]
    texts = [_primary(trend, alpha)]
    if floor["below_alpha"]:
        texts.append(
            "Sentences of the site and its ladder together show more than the never-published ones do, after Holm's "
            f"correction with the groups (p = {floor['holm_p']:.2g})."
        )
    if raised:
        names = ", ".join(group["name"] for group in raised)
        texts.append(f"Hit rates above the floor after Holm's correction: {names}.")
    if not (raised or trend["below_alpha"] or floor["below_alpha"]):
        texts.append(FRESH)
    texts += _cohorts(raised, groups, contrast, alpha)
    if any(group["occurrences"] == 1 for group in groups):
        texts.append(ONCE)
    return texts


def _at_most(p_value: float | None, alpha: float) -> bool:
    return p_value is not None and p_value <= alpha


def _primary(trend: Mapping[str, Any], alpha: float) -> str:
    if trend["p"] is None:
        return f"The primary test, the trend over the ladder, has no result: {trend['reason']}."
    level = f"p = {trend['p']:.2g}, level {alpha:.2g} at this look"
    if trend["below_alpha"]:
        return f"Recall rises with the number of times a sentence stood on the site (primary test, {level})."
    return f"The primary test does not show that recall rises with the number of occurrences ({level})."


def _cohorts(
    raised: Sequence[Mapping[str, Any]],
    groups: Sequence[Mapping[str, Any]],
    contrast: Mapping[str, Any] | None,
    alpha: float,
) -> list[str]:
    above = {group["cohort"] for group in raised if group["cohort"] is not None}
    asked = {group["cohort"] for group in groups if group["cohort"] is not None and group["n"]}
    texts = []
    if "linked" in above and "sitemap" in asked and "sitemap" not in above:
        if contrast is not None and _at_most(contrast["holm_p"], alpha):
            texts.append(
                "Linked pages stand above the floor and show more than sitemap-only ones do, which are not told from "
                "it: so it looks where a crawler follows links and passes the sitemap over."
            )
        else:
            texts.append(
                "Linked pages stand above the floor and sitemap-only pages are not told from it, but the difference "
                "between the two may be chance: whether the crawler reads the sitemap is open."
            )
    if "sitemap" in above:
        texts.append("Sitemap-only pages stand above the floor: whoever collected them reads the sitemap.")
    if "honeypot" in above:
        texts.append(
            "Honeypot pages stand above the floor: a crawler followed an invisible link to pages that robots.txt "
            "forbids. The request log has the rows of whoever fetched them."
        )
    return texts
