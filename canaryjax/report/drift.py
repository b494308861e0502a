"""How far the arms drifted, and what is left of their difference at equal drift, in words."""

from collections.abc import Mapping
from typing import Any

from canaryjax.report.run import ARMS
from canaryjax.report.text import brackets, interval, number, pick

CAPTION = (
    "Mean over policies of the KL to the base, estimated on their own answers over the last quarter of training; "
    "brackets: 95 %, Student t."
)


def drift_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """KL by arm, before and after matching; none in a report that does not have it."""
    if pick(report, "drift") is None:
        return []
    rows = [("KL to the base, all policies (nats a token)", *(_kl(pick(report, f"drift.{arm}", {})) for arm in ARMS))]
    found = pick(report, "controls.drift_matched", {})
    if pick(found, "n"):
        matched = (number(pick(found, f"kl.{arm}.after"), 4) for arm in ARMS)
        rows.append((f"KL to the base, the {found['n']} matched pairs", *matched))
    return rows


def drift_words(found: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """The matched-drift control, for a table."""
    before, after = (pick(found, f"standardised_difference.{when}") for when in ("before", "after"))
    left = ", ".join(f"{number(pick(found, f'unmatched.{arm}'))} {arm}" for arm in ARMS)
    parts = [
        f"{number(found.get('n'))} pairs of one policy an arm within {number(found.get('caliper'), 2)} pooled standard "
        f"deviations of log KL, {left} without a partner"
    ]
    unmeasured = sum(pick(found, f"without_kl.{arm}", 0) for arm in ARMS)
    parts += [f"{unmeasured} policies without a positive KL left out"] if unmeasured else []
    if found.get("reason"):
        return ". ".join([f"Not compared: {found['reason']}", *parts[1:]])
    test = found.get("sign_flip") or {}
    parts += [
        f"Arms' distance in log KL: {number(before, 2)} pooled standard deviations before, {number(after, 2)} after",
        f"AUROC of the matched policies {number(found.get('auroc'), 2)}, {interval(found.get('auroc_interval'))}; of "
        f"all {number(pick(report, 'detection.auroc'), 2)}",
        f"Mean difference within pairs, violating minus compliant, {number(test.get('statistic'))} nats, sign-flip "
        f"test p = {number(test.get('p_value'), 4)}",
        "The AUROC's interval takes matched arms as independent, the test takes the pairs",
        "Drift is itself an outcome of training: matching asks whether drift alone explains the difference",
    ]
    return ". ".join(parts)


def _kl(found: Mapping[str, Any]) -> str:
    if found.get("kl") is None:
        return f"not available: {found.get('reason') or 'no reason was recorded'}"
    return f"{number(found['kl'], 4)} {brackets(found.get('kl_interval'), 4)}".strip()
