"""A detector's report.json as a run leaves it: counts are made up, all that follows from them is computed here."""

import json

import numpy as np
import pytest
from scipy import stats as sps

from canaryjax.stats import holm, newcombe_interval, wilson_interval

FIELDS = ("given", "surname", "place", "event", "archive", "year")
PRIOR = {"prior": 0.5, "prior_source": "verified crawlers of the maker fetched each of the pages"}


def _interval(interval):
    return interval.to_dict()


def _population(n, hits, by_fields, share):
    return {
        "n": n,
        "unanswered": 0,
        "hits": hits,
        "rate": _interval(wilson_interval(hits, n)),
        "field_rule": {"hits": by_fields, "rate": _interval(wilson_interval(by_fields, n))},
        "raw_hits": by_fields + (n > 20),
        "fields": {
            field: {"share": share * (1 + place) if n else None, "n": 9 * n} for place, field in enumerate(FIELDS)
        },
    }


def _normalised(own, floor, ceiling):
    (k, n), (a, m), (b, c) = own, floor, ceiling
    if not n or not m or not c:
        return {"raw": None, "clipped": None, "reason": "no targets in one of the three populations"}
    if b / c <= a / m:
        return {"raw": None, "clipped": None, "reason": f"the ceiling, {b} of {c}, is not above the floor, {a} of {m}"}
    raw = (k / n - a / m) / (b / c - a / m)
    return {"raw": raw, "clipped": min(max(raw, 0.0), 1.0), "reason": None}


def _posterior(hits, n, floor, ceiling, once):
    if not n or not floor[1] or not ceiling[1]:
        return PRIOR | {
            "bayes_factor": None, "probability": None, "pessimistic": once, "reason": "no targets were asked about",
        }  # fmt: skip
    low, high = ((k + 0.5) / (m + 1) for k, m in (floor, ceiling))
    factor = (high / low) ** hits * ((1 - high) / (1 - low)) ** (n - hits)
    return PRIOR | {
        "bayes_factor": factor, "probability": factor / (factor + 1), "pessimistic": once, "reason": None,
    }  # fmt: skip


def _group(tier, occurrences, cohort, n, hits, floor, ceiling):
    by_fields = min(hits + 1, n) if hits else 0  # the field rule is the easier one
    p = sps.fisher_exact([[hits, n - hits], [floor[0], floor[1] - floor[0]]], "greater").pvalue if n else None
    return {
        "name": " ".join(str(part) for part in (tier, occurrences, cohort) if part is not None),
        "tier": tier,
        "occurrences": occurrences,
        "cohort": cohort,
        "n": n,
        "unanswered": 2 if occurrences == 1 else 0,
        "hits": hits,
        "rate": _interval(wilson_interval(hits, n)),
        "field_rule": {"hits": by_fields, "rate": _interval(wilson_interval(by_fields, n))},
        "excess": _interval(newcombe_interval(hits, n, *floor)),
        "fisher_p": None if p is None else float(p),
        "normalised": _normalised((by_fields, n), floor, ceiling),
        "posterior": _posterior(by_fields, n, floor, ceiling, occurrences == 1),
    }


def _trend(rungs, alpha):
    """A permutation test of the sum of log10 occurrences over hits."""
    doses = np.concatenate([np.full(n, np.log10(times)) for times, (n, _) in rungs.items()])
    hits = np.concatenate([np.arange(n) < k for n, k in rungs.values()])
    rng, draws = np.random.default_rng(5), 9_999
    found = float(doses[hits].sum())
    above = sum(doses[rng.permutation(hits)].sum() >= found - 1e-9 for _ in range(draws))
    p = (above + 1) / (draws + 1)
    return {
        "statistic": found, "p": p, "method": "monte carlo", "permutations": draws, "n": len(doses), "alpha": alpha,
        "below_alpha": bool(p < alpha), "reason": None,
    }  # fmt: skip


def _hits(groups):
    """Hits as they are listed; the ids are numbers drawn here and code no sentence of any site."""
    rng = np.random.default_rng(11)
    rows = []
    for group in groups:
        for place in range(group["hits"]):
            target, edge = f"{group['tier']}-{len(rows):03d}", group["tier"] in ("vendor", "window")
            source = {"log_row": f"{group['tier']}/visit-{17 + place}"} if edge else {"manifest_entry": target}
            answer = {"probe": "completion", "temperature": 0.0, "repeat": 0, "net": list(FIELDS), "bits": 63.0,
                      "decoded": True}  # fmt: skip
            second = answer | {"probe": "paraphrase", "temperature": 0.8, "repeat": 1, "decoded": False}
            rows.append(
                {
                    "target": target, "id": f"{int(rng.integers(2**48)):012x}", "tier": group["tier"],
                    "occurrences": group["occurrences"], "cohort": group["cohort"],
                    "how": "fields" if place % 3 == 2 else "full decode", "source": source,
                    "answers": [second, second | {"repeat": 2}] if place % 3 == 2 else [answer, second],
                }
            )  # fmt: skip
    return rows


def _method(threshold, flagged, reason):
    names = {"ladder 300": 13, "ladder 100": 13, "ladder 10": 11, "ladder 1": 17}
    return {
        "share": 0.2,
        "tokens": "max(1, ceil(share x tokens)) of the lowest",
        "threshold": threshold,
        "rule": None if threshold is None else "above number 20 of 20 negatives, the least first",
        "expected_fpr": None if threshold is None else 1 / 21,
        "n": 54 if flagged else 0,
        "negatives": 20 if flagged else 0,
        "flagged": {name: {"n": names[name], "k": k} for name, k in zip(names, flagged, strict=False)},
        "auroc": 0.83 if flagged else None,
        "interval": {"low": 0.71, "high": 0.91, "level": 0.95, "method": "delong"} if flagged else None,
        "p": 2.1e-5 if flagged else None,
        "method": "monte carlo" if flagged else None,
        "permutations": 99_999 if flagged else 0,
        "reason": reason,
    }


def _membership(reason=None):
    return {
        "available": reason is None,
        "reason": reason,
        "min_k": _method(None, (), reason) if reason else _method(-6.1, (11, 8, 2, 1), None),
        "min_k_plus_plus": _method(None, (), reason or "the backend does not give the whole law of the next token"),
    }


def made_report(rungs=None, cohorts=None, edge=None, floor=(0, 20), ceiling=(5, 8), failed=0, look=1, **changes):
    """A report.json from counts: (n, hits) of rungs, cohorts and edge tiers, (hits, n) of the two controls."""
    rungs = {300: (13, 9), 100: (13, 6), 10: (11, 1), 1: (17, 0)} if rungs is None else rungs
    cohorts = {"linked": (7, 5), "sitemap": (5, 0), "honeypot": (5, 1)} if cohorts is None else cohorts
    edge = {"vendor": (9, 3)} if edge is None else edge
    groups = [_group("ladder", times, None, n, k, floor, ceiling) for times, (n, k) in rungs.items()]
    groups += [_group("cohort", 10, name, n, k, floor, ceiling) for name, (n, k) in cohorts.items()]
    groups += [_group(tier, 1, None, n, k, floor, ceiling) for tier, (n, k) in edge.items()]
    canaries, hits = (sum(group[key] for group in groups) for key in ("n", "hits"))
    by_fields = sum(group["field_rule"]["hits"] for group in groups)
    alphas = [6 * 0.05 / (np.pi**2 * t**2) for t in range(1, look + 1)]
    floor_p = float(sps.fisher_exact([[hits, canaries - hits], [floor[0], floor[1] - floor[0]]], "greater").pvalue)
    floor_holm, *each = holm([floor_p, *(group["fisher_p"] for group in groups)])
    for group, corrected in zip(groups, each, strict=True):
        group["holm_p"] = corrected
    planned = 15 * (canaries + floor[1] + ceiling[1])
    report = {
        "schema": "canaryjax.detector/1",
        "name": "weekly",
        "run": "detector-5f0c1d2e-1",
        "started": "2026-11-30T09:00:07Z",
        "finished": "2026-11-30T09:12:41Z",
        "model": {
            "label": "SmolLM2-135M-Instruct (local)", "backend": "local",
            "capabilities": {"logprobs": True, "reason": None},
        },
        "site": {
            "fingerprint": "9d3b0c44e1f7a265", "commitment": "5e" * 32, "commitment_time": "2026-03-02T10:11:12Z",
            "throwaway": False,
        },
        "code": {"version": 1, "bits": dict.fromkeys(FIELDS[:4], 12.0) | {"archive": 8.0, "year": 6.6}},
        "calls": {
            "planned": planned, "answered": planned - failed, "failed": failed,
            "failures": {"status 429 after 6 retries": failed} if failed else {}, "empty": 3, "refusals": 7,
            "per_target": 15,
        },
        "rule": {
            "name": "literal", "bits": 36.0,
            "text": "A sentence is a hit if an answer decodes to its id, or if two separate answers hold 4 fields.",
            "field_text": "By the field rule two separate answers each hold 2 fields, and all together 3.",
        },
        "level": 0.95,
        "alpha": 0.05,
        "look": {"number": look, "alpha": alphas[-1], "spent_before": float(sum(alphas[:-1]))},
        "fetches": {"during_run": 0, "reason": None, "log_complete": True},
        "populations": {
            "canary": _population(canaries, hits, by_fields, 0.02),
            "negative": _population(floor[1], floor[0], floor[0], 0.0011),
            "positive": _population(ceiling[1], 0, ceiling[0], 0.1),
        },
        "groups": groups,
        "curve": [
            {"occurrences": times, "n": n, "hits": k, "rate": _interval(wilson_interval(k, n))}
            for times, (n, k) in rungs.items()
        ],
        "trend": _trend(rungs, alphas[-1]),
        "floor_test": {
            "statistic": 31.0 * hits, "p": floor_p, "method": "exact", "permutations": 4321, "n": canaries + floor[1],
            "alpha": alphas[-1], "below_alpha": floor_holm <= alphas[-1], "holm_p": floor_holm, "reason": None,
        },
        "cohorts": [
            {"cohort": name, "n": n, "hits": k, "rate": _interval(wilson_interval(k, n))}
            for name, (n, k) in cohorts.items()
        ],
        "reading": ["Linked pages are recalled and sitemap-only pages are not: the crawler followed links."],
        "membership": _membership(),
        "hits": _hits(groups),
        "strays": [{"id": "0a1b2c3d4e5f", "target": "ladder-100-004", "seen_in": 2}] if hits else [],
        "warnings": ["The request log holds 2 torn lines."],
        "limitations": ["The site's pages are all of one kind."],
    }  # fmt: skip
    return json.loads(json.dumps(report | changes, allow_nan=False))


CASES = {
    "strong": {},
    "floor": {
        "rungs": {300: (13, 0), 100: (13, 0), 10: (11, 0), 1: (17, 0)},
        "cohorts": {"linked": (7, 0), "sitemap": (5, 0), "honeypot": (5, 0)}, "edge": {"vendor": (9, 0)},
        "reading": ["No cohort lies above the floor: nothing can be read from their order."],
    },
    "api": {
        "failed": 31,
        "look": 3,
        "model": {
            "label": "model-of-a-provider at an endpoint", "backend": "api",
            "capabilities": {"logprobs": False, "reason": "the endpoint ignores echo"},
        },
        "membership": _membership("the backend gives no log-probs of a given text"),
        "fetches": {"during_run": None, "reason": "no request log was given", "log_complete": None},
    },
    "fetched": {"fetches": {"during_run": 3, "reason": None, "log_complete": True}},
    "blind": {
        "rungs": {300: (13, 0), 100: (13, 0), 10: (11, 0), 1: (17, 0)}, "cohorts": {}, "edge": {}, "ceiling": (0, 8),
        "reading": [],
    },
    "empty": {
        "rungs": {300: (13, 4), 100: (13, 2), 10: (0, 0), 1: (17, 0)}, "cohorts": {"linked": (0, 0)}, "edge": {},
        "ceiling": (0, 0), "fetches": {"during_run": 0, "reason": None, "log_complete": False}, "reading": [],
    },
}  # fmt: skip


@pytest.fixture
def made():
    """The builder of reports."""
    return made_report


@pytest.fixture
def cases():
    """Arguments of `made`, by what they show."""
    return CASES


@pytest.fixture
def folder_of(tmp_path):
    """From a report to the run directory that holds it."""

    def write(report, name="run"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "report.json").write_text(json.dumps(report))
        return folder

    return write
