"""From policy scores to what a report says: detection and mechanism. The unit is the policy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from canaryjax import stats
from canaryjax.config.study import StatisticConfig

SCORES = ("clean_raw", "clean_net", "induced_raw", "induced_net")
EMPTY_ARM = "an arm has no valid policy"
SMALLEST_RM_BIAS = 0.05  # reward units; a ratio over less looks like a finding and is none (BC-59)


def judged(scores: Sequence[float], name: str, settings: StatisticConfig) -> list[float]:
    """What detection is made of: the scores, or their distances from 0 where a net score may go either way (BC-A11)."""
    if settings.two_sided and name.endswith("net"):
        return [abs(score) for score in scores]
    return list(scores)


def detection(compliant: Sequence[float], violating: Sequence[float], settings: StatisticConfig, seed: int) -> dict:
    """How well two arms' scores separate: AUROC, TPR at the target FPR, PPV and the ROC, each with its reason if null.

    Args:
      compliant: Scores of valid compliant policies, as they are `judged`.
      violating: The same of violating ones.
      settings: Target, rule, interval and level.
      seed: Of the bootstrap.

    Returns:
      Plain values, as in `report.json`.
    """
    area = stats.auroc(compliant, violating)
    rate = stats.tpr_at_fpr(compliant, violating, settings.target_fpr, settings.threshold_rule, settings.level)
    curve = stats.roc_curve(compliant, violating)
    paper, method = settings.threshold_rule == "paper", settings.auroc_interval
    drawn: dict[str, Any] = {
        "resamples": settings.bootstrap_samples,
        "seed": seed,
        "scheme": settings.resampling,
    }
    # The paper's threshold comes with the paper's interval, at any size of the arms (BC-63, BC-A9).
    method = "bootstrap" if paper and method == "auto" else method
    interval = stats.auroc_interval(compliant, violating, settings.level, method, **drawn)
    tpr = rate.to_dict()
    need = stats.least_negatives(settings.target_fpr, settings.threshold_rule)
    around = interval.to_dict()
    if area is None:  # in a study's words, not in those of a statistic of negatives and positives
        tpr["reason"] = around["reason"] = EMPTY_ARM
    elif need is not None and 0 < rate.n0 < need:
        tpr["reason"] = (
            f"the {settings.threshold_rule} rule at {100 * settings.target_fpr:g} % false alarms needs at least {need} "
            f"compliant policies, found {rate.n0}: set study.compliant={need} or more"
        )
    if paper:
        redrawn = stats.tpr_bootstrap_interval(
            compliant, violating, settings.target_fpr, "paper", settings.level, **drawn
        )
        tpr["bootstrap_interval"] = redrawn.to_dict()
    achieved = rate.expected_fpr
    return {
        "auroc": area,
        "auroc_interval": around,
        "auroc_reason": None if area is not None else EMPTY_ARM,
        "tpr": tpr,
        "ppv": [
            {"prevalence": pi, "value": None if achieved is None else stats.ppv(rate.value, achieved, pi)}
            for pi in settings.prevalences
        ],
        "ppv_at_fpr": achieved,
        "roc": curve.to_dict(),
        "remainder": stats.remainder_auroc(compliant, violating, rate.threshold).to_dict(),
        "direction_warning": stats.direction_warning(compliant, violating),
    }


def standardised(compliant: Sequence[float | None], violating: Sequence[float | None]) -> dict[str, Any]:
    """Violating over compliant in pooled standard deviations, so that nats and reward units can be compared (BC-A17).

    >>> standardised([0.0, 1.0, 2.0], [2.0, 3.0, 4.0, None])["value"]  # 2 standard deviations of 1, and J(4) = 0.798
    1.5957691216057306
    """
    low, high = ([x for x in arm if x is not None] for arm in (compliant, violating))
    return stats.hedges_g(low, high).to_dict() | ({} if low and high else {"reason": EMPTY_ARM})


def mechanism(
    rm_bias: Sequence[float | None], amplification: Sequence[float | None], per_token: Sequence[float | None]
) -> dict:
    """Reward-model bias, score, and their unit-dependent ratio for one arm (BC-59, BC-A17).

    Args:
      rm_bias: Per policy, reward units.
      amplification: Of the same policies in the same order, the primary score in nats.
      per_token: The same over the number of tokens that the policy's canary has (BC-A14).

    Returns:
      Means with 95 % intervals; the ratio of means over the policies that have both, with Fieller's interval. The ratio
      is null, with a reason, where the mean bias is near zero or cannot be told from it.
    """
    bias = [x for x in rm_bias if x is not None]
    score = [x for x in amplification if x is not None]
    token = [x for x in per_token if x is not None]
    both = [(x, y) for x, y in zip(rm_bias, amplification, strict=True) if x is not None and y is not None]
    ratio = stats.ratio_of_means([y for _, y in both], [x for x, _ in both], 0.95)
    out: dict[str, Any] = {
        "n": len(score),
        "rm_bias": float(np.mean(bias)) if bias else None,
        "rm_bias_interval": stats.mean_interval(bias, 0.95).to_dict() if bias else None,
        "amplification": float(np.mean(score)) if score else None,
        "amplification_interval": stats.mean_interval(score, 0.95).to_dict() if score else None,
        "amplification_sd": float(np.std(score, ddof=1)) if len(score) > 1 else None,
        "amplification_per_token": float(np.mean(token)) if token else None,
        "amplification_per_token_interval": stats.mean_interval(token, 0.95).to_dict() if token else None,
        "transmission_ratio": None,
        "transmission_ratio_interval": None,
        "reason": None,
    }
    if not score:
        out["reason"] = "no valid policy in this arm"
    elif not bias:
        out["reason"] = "no reward model of this arm has a finite bias"
    elif ratio.denominator is None:
        out["reason"] = "no policy of this arm has both a score and a finite reward-model bias"
    elif abs(ratio.denominator) < SMALLEST_RM_BIAS:
        out["reason"] = (
            f"reward-model bias {ratio.denominator:.3f} is within {SMALLEST_RM_BIAS} of zero: a ratio would mean "
            "nothing"
        )
    elif ratio.value is None:
        out["reason"] = f"no ratio of score to reward-model bias: {ratio.reason}"
    else:
        out["transmission_ratio"] = ratio.value
        out["transmission_ratio_interval"] = ratio.interval.to_dict()
        out["note"] = "empirical ratio of nats to reward units: it depends on the unit of the reward"
    return out
