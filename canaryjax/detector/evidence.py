"""From scored answers to the statistical part of report.json."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from canaryjax.config.detector import EvidenceConfig
from canaryjax.detector.group import Group, Tally, form_groups, tally
from canaryjax.detector.hit import Verdict, field_rule_text, hit_rows, judge, rule_text, stray_rows
from canaryjax.detector.look import look_alpha, spent_before
from canaryjax.detector.membership import membership
from canaryjax.detector.posterior import Controls, normalised, posterior
from canaryjax.detector.prior import LogFacts, fetches, group_prior
from canaryjax.detector.reading import LIMITATIONS, reading
from canaryjax.detector.records import COHORTS, FIELDS, AnswerScore, Target
from canaryjax.detector.shapes import SUPPLIED
from canaryjax.detector.trend import as_record, floor_test, ladder_trend
from canaryjax.detector.warning import warnings
from canaryjax.stats import fisher_greater, holm, newcombe_interval

POPULATIONS = ("canary", "negative", "positive")


def weigh(
    targets: Sequence[Target],
    answers: Sequence[AnswerScore],
    config: EvidenceConfig,
    look: int,
    log: LogFacts | None,
    logps: Mapping[str, np.ndarray] | None = None,
    standardised: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """The statistical part of report.json: plain JSON values, no text of the site.

    Args:
      targets: All that were to be asked about.
      answers: All that came, scored; a target without any counts nowhere but among the unanswered.
      config: Declared before the run.
      look: Which look at this model it is, from 1.
      log: What the request log says; None without one.
      logps: By target's key, log-probs in nats of its sentence's tokens after the first; None where the backend gives
        none.
      standardised: The same from `standardised_logps`; None where the backend does not give the whole law.

    Raises:
      UserError: A look before the first, two targets of one key, an answer about none of them, a ladder canary without
        occurrences.
    """
    alpha = look_alpha(look, config.alpha)
    verdicts = judge(targets, answers, config)
    own = {name: [v for v in verdicts if v.target.population == name] for name in POPULATIONS}
    tallies = {name: tally(some) for name, some in own.items()}
    floor, ceiling = tallies["negative"], tallies["positive"]
    controls = Controls(floor.field_hits, floor.n, ceiling.field_hits, ceiling.n)
    groups = form_groups(verdicts)
    rows = [_group_row(group, floor, controls, config, log) for group in groups]
    trend = ladder_trend(verdicts, config.permutations)
    primary = as_record(trend, alpha, trend.p_value)
    against, contrast = _secondary(verdicts, rows, config, alpha)
    return {
        "rule": {
            "name": config.rule,
            "bits": config.bits if config.rule == "bits" else None,
            "text": rule_text(config),
            "field_text": field_rule_text(),
        },
        "level": config.level,
        "alpha": config.alpha,
        "look": {"number": look, "alpha": alpha, "spent_before": spent_before(look, config.alpha)},
        "fetches": fetches(log),
        "populations": {name: _population(own[name], config.level) for name in POPULATIONS},
        "groups": rows,
        "curve": _curve(groups, config.level),
        "trend": primary,
        "floor_test": against,
        "cohorts": _cohorts(own["canary"], config.level),
        "reading": reading(primary, against, rows, contrast, alpha),
        "membership": membership(
            verdicts, groups, logps, standardised, config.min_k_share, config.level, config.permutations
        ),
        "hits": hit_rows(verdicts),
        "strays": stray_rows(verdicts),
        "warnings": warnings(verdicts, groups, tallies, controls, alpha, log),
        "limitations": list(LIMITATIONS),
    }


def _rates(counted: Tally, level: float) -> dict[str, Any]:
    return {
        "n": counted.n,
        "unanswered": counted.unanswered,
        "hits": counted.hits,
        "rate": counted.rate(level).to_dict(),
        "field_rule": {"hits": counted.field_hits, "rate": counted.field_rate(level).to_dict()},
        "raw_hits": counted.raw_hits,
    }


def _population(verdicts: Sequence[Verdict], level: float) -> dict[str, Any]:
    return _rates(tally(verdicts), level) | {"fields": _fields(verdicts)}


def _fields(verdicts: Sequence[Verdict]) -> dict[str, dict[str, Any]]:
    """By field, the share of answers in which it stood, of those whose question did not give it (SD-A14)."""
    shares: dict[str, dict[str, Any]] = {}
    for field in FIELDS:
        # A famous fact has no archive, so no answer can hold it.
        able = [
            answer
            for verdict in verdicts
            if field != "archive" or verdict.target.fact.archive is not None
            for answer in verdict.answers
            if field not in SUPPLIED[answer.kind]
        ]
        found = sum(field in answer.net for answer in able)
        shares[field] = {"share": found / len(able) if able else None, "n": len(able)}
    return shares


def _group_row(
    group: Group, floor: Tally, controls: Controls, config: EvidenceConfig, log: LogFacts | None
) -> dict[str, Any]:
    counted = tally(group.verdicts)
    prior = group_prior([verdict.target for verdict in group.verdicts], log, config.prior)
    return {
        "name": group.name,
        "tier": group.tier,
        "occurrences": group.occurrences,
        "cohort": group.cohort,
        **_rates(counted, config.level),
        "excess": newcombe_interval(counted.hits, counted.n, floor.hits, floor.n, config.level).to_dict(),
        "fisher_p": fisher_greater(counted.hits, counted.n, floor.hits, floor.n),
        "holm_p": None,  # of the whole family, so it is set where that is known
        "normalised": normalised(counted.field_hits, counted.n, controls),
        "posterior": posterior(counted.field_hits, counted.n, controls, prior, group.occurrences),
    }


def _secondary(
    verdicts: Sequence[Verdict], rows: Sequence[dict[str, Any]], config: EvidenceConfig, alpha: float
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Everything but the primary test under one correction: sets the groups' `holm_p`, returns floor and contrast."""
    test = floor_test(verdicts, config.permutations)
    cohorts = {name: tally([v for v in verdicts if v.target.cohort == name]) for name in ("linked", "sitemap")}
    linked, sitemap = cohorts["linked"], cohorts["sitemap"]
    apart = fisher_greater(linked.hits, linked.n, sitemap.hits, sitemap.n)
    whole, between, *each = holm([test.p_value, apart, *(row["fisher_p"] for row in rows)])
    for row, p_value in zip(rows, each, strict=True):
        row["holm_p"] = p_value
    against = as_record(test, alpha, whole) | {"holm_p": whole}
    return against, None if between is None else {"p": apart, "holm_p": between}


def _curve(groups: Sequence[Group], level: float) -> list[dict[str, Any]]:
    rungs = [(group.occurrences, tally(group.verdicts)) for group in groups if group.tier == "ladder"]
    return [
        {"occurrences": occurrences, "n": own.n, "hits": own.hits, "rate": own.rate(level).to_dict()}
        for occurrences, own in rungs
    ]


def _cohorts(canaries: Sequence[Verdict], level: float) -> list[dict[str, Any]]:
    found = []
    for cohort in COHORTS:
        members = [verdict for verdict in canaries if verdict.target.cohort == cohort]
        if members:
            own = tally(members)
            found.append({"cohort": cohort, "n": own.n, "hits": own.hits, "rate": own.rate(level).to_dict()})
    return found
