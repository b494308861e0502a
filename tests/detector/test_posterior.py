"""Prior from the request log, normalised rate, Bayes factor and posterior."""

import json
from datetime import UTC, datetime

import pytest

from canaryjax.config.detector import PriorConfig
from canaryjax.detector.edge.request_log import read_request_log
from canaryjax.detector.posterior import Controls, hit_ratios, normalised, posterior
from canaryjax.detector.prior import LogFacts, Prior, fetches, group_prior, log_facts
from canaryjax.detector.records import Fact, Target

FACT = Fact("Aa", "Bb", "Cc", "Dd", "Ee", 1903)
TABLE = PriorConfig(no_log=0.41, no_fetch=0.02, some_pages=0.23, all_pages=0.61)
CONTROLS = Controls(0, 20, 5, 8)


def vendor(number, id):
    return Target(f"vendor-{number:03d}", "canary", "vendor", 1, None, id, FACT, f"row {number}")


def facts(fetched, **pages):
    named = None if fetched is None else frozenset(fetched)
    return LogFacts({key.replace("_", "-"): frozenset(value) for key, value in pages.items()}, named, 0, True)


def test_plug_in_ratios():
    # SD-A8: floor 0/20 and ceiling 5/8 with (k + 0.5)/(n + 1).
    per_hit, per_miss = hit_ratios(CONTROLS)
    assert per_hit == pytest.approx(25.67, abs=5e-3)
    assert per_miss == pytest.approx(0.398, abs=5e-4)
    assert per_hit * per_miss**8 == pytest.approx(0.0163, abs=5e-5)  # 1 hit of 9


def test_posterior_is_prior_odds_times_the_integrated_factor():
    found = posterior(1, 9, CONTROLS, Prior(0.5, "why"), 100)
    # With B the beta function: B(6.5, 11.5)/B(5.5, 3.5) over B(1.5, 28.5)/B(0.5, 20.5), by gamma functions.
    from math import gamma

    def beta(a, b):
        return gamma(a) * gamma(b) / gamma(a + b)

    factor = beta(6.5, 11.5) / beta(5.5, 3.5) / (beta(1.5, 28.5) / beta(0.5, 20.5))
    assert found["bayes_factor"] == pytest.approx(factor, rel=1e-9)
    assert found["bayes_factor"] > 0.0163  # the ceiling of 8 facts is not known so well as plugging in pretends
    assert found["probability"] == pytest.approx(factor / (1 + factor))
    assert (found["prior"], found["prior_source"], found["reason"]) == (0.5, "why", None)
    assert found["per_hit"] == pytest.approx(25.67, abs=5e-3)
    at_tenth = posterior(1, 9, CONTROLS, Prior(0.1, ""), 100)
    assert at_tenth["probability"] == pytest.approx(factor / 9 / (1 + factor / 9))


def test_hits_raise_and_misses_lower_it():
    chances = [posterior(k, 9, CONTROLS, Prior(0.3, ""), 10)["probability"] for k in (0, 1, 3, 6, 9)]
    assert chances == sorted(chances)
    assert chances[0] < 0.01 < 0.99 < chances[-1]
    assert posterior(9, 9, CONTROLS, Prior(0.0, ""), 10)["probability"] == 0.0
    assert posterior(0, 9, CONTROLS, Prior(1.0, ""), 10)["probability"] == 1.0


@pytest.mark.parametrize(("occurrences", "flag"), [(1, True), (10, False), (None, False)])
def test_once_seen_is_pessimistic(occurrences, flag):
    assert posterior(0, 9, CONTROLS, Prior(0.5, ""), occurrences)["pessimistic"] is flag


@pytest.mark.parametrize(
    ("controls", "reason"),
    [
        (Controls(0, 20, 0, 8), "the ceiling 0 is not above the floor 0"),
        (Controls(4, 20, 1, 8), "the ceiling 0.125 is not above the floor 0.2"),
        (Controls(0, 0, 5, 8), "no floor"),
        (Controls(0, 20, 0, 0), "no ceiling"),
    ],
)
def test_controls_that_tell_nothing_apart_leave_it_undefined(controls, reason):
    found = posterior(3, 9, controls, Prior(0.5, "why"), 10)
    assert (found["bayes_factor"], found["probability"], found["reason"]) == (None, None, reason)
    assert found["prior"] == 0.5
    assert normalised(3, 9, controls) == {"raw": None, "clipped": None, "reason": reason}


def test_no_answered_target_leaves_it_undefined():
    assert posterior(0, 0, CONTROLS, Prior(0.5, ""), 10)["reason"] == "no target of the group was answered"
    assert normalised(0, 0, CONTROLS)["reason"] == "no rate"


def test_normalised_rate():
    # (1/2 - 1/20)/(5/8 - 1/20) = 18/23; over the ceiling alone 18/25.
    found = normalised(5, 10, Controls(1, 20, 5, 8))
    assert found["raw"] == pytest.approx(18 / 23)
    assert normalised(10, 10, CONTROLS) == {"raw": 1.6, "clipped": 1.0, "reason": None}


@pytest.mark.parametrize(
    ("log", "value", "source"),
    [
        (None, 0.41, "no request log"),
        (facts(None, vendor_001="a", vendor_002="b"), 0.41, "not named"),
        (facts([], vendor_001="a", vendor_002="b"), 0.02, "nothing"),
        (facts(["z"], vendor_001="a", vendor_002="b"), 0.02, "none of"),
        (facts(["a"], vendor_001="a", vendor_002="b"), 0.23, "some of"),
        (facts(["a", "b", "z"], vendor_001="a", vendor_002="b"), 0.61, "each of"),
        (facts(["a", "b"], vendor_001="abc", vendor_002="b"), 0.23, "some of"),
        (facts(["a"], vendor_001="a"), 0.23, "not known"),  # never "each" where a page is unknown
        (facts([], vendor_001="a"), 0.02, "nothing"),
    ],
)
def test_prior_by_what_verified_crawlers_fetched(log, value, source):
    found = group_prior([vendor(1, 11), vendor(2, 13)], log, TABLE)
    assert found.value == value
    assert source in found.source


def row(second, **changes):
    found = {"time": f"2031-03-05T07:11:{second:02d}.000Z", "path": "/a", "ip": "192.0.2.7", "user_agent": "x"}
    found |= {"vendor": "acme", "tier": "vendor", "label": f"acme/{second}", "id": f"{second:012x}", "page_status": 200}
    return json.dumps(found | changes) + "\n"


def test_facts_of_a_log(tmp_path):
    path = tmp_path / "log.jsonl"
    unstamped = {"tier": None, "label": None, "id": None, "path": "/b"}
    path.write_text(row(11) + row(13) + row(17, **unstamped) + "torn\n" + row(59, **unstamped))
    log = read_request_log(path, datetime(2031, 3, 6, tzinfo=UTC))
    site = Target("site-003", "canary", "site", 1, None, 11, FACT)
    start, end = (datetime(2031, 3, 5, 7, 11, second, tzinfo=UTC) for second in (12, 18))
    found = log_facts(log, [vendor(1, 11), vendor(2, 13), site], [log.rows[0], log.rows[2]], start, end)
    assert set(found.pages) == {"vendor-001", "vendor-002"}
    assert group_prior([vendor(1, 11)], found, TABLE).value == 0.61
    assert group_prior([vendor(1, 11), vendor(2, 13)], found, TABLE).value == 0.23
    assert group_prior([vendor(2, 13)], found, TABLE).value == 0.02
    assert group_prior([site], found, TABLE).value == 0.23
    assert (found.during_run, found.unread) == (2, 1)
    assert fetches(found)["during_run"] == 2
    assert log_facts(log, [site], None, start, end).fetched is None
    late = datetime(2031, 3, 5, 8, tzinfo=UTC)
    assert fetches(log_facts(log, [site], [], start, late))["log_complete"] is False
    assert fetches(None) == {"during_run": None, "reason": "no request log", "log_complete": None}
