"""A report whose evidence was weighed by the detector itself, from answers made up here: the page shows its numbers."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from canaryjax.config.detector import EvidenceConfig
from canaryjax.detector.evidence import weigh
from canaryjax.detector.prior import LogFacts
from canaryjax.detector.records import FIELDS, PROBES, AnswerScore, Fact, Target
from canaryjax.report.detector_page import render_detector
from canaryjax.report.detector_tables import tier_sections
from canaryjax.report.detector_terminal import detector_summary
from canaryjax.report.detector_verdict import judge_detector

BITS = {"given": 12.0, "surname": 12.0, "place": 12.0, "event": 12.0, "archive": 8.0, "year": 6.6}
# Words that are no word of the page.
FACT = Fact("Qxgiven", "Qxsurname", "Qxplace", "Qxevent", "Qxarchive", 1777)


def _targets():
    rng = np.random.default_rng(2)
    places = [("ladder", 300, None)] * 13 + [("ladder", 100, None)] * 11 + [("ladder", 10, None)] * 7
    places += [("ladder", 1, None)] * 5 + [("cohort", None, "linked")] * 7 + [("cohort", None, "sitemap")] * 5
    places += [("vendor", 1, None)] * 3
    ids = rng.choice(2**48, len(places) + 23, replace=False).tolist()
    targets = [
        Target(
            f"{tier}-{at:03d}", "canary", tier, times, cohort, ids[at], FACT,
            f"vendor/visit-{at}" if tier == "vendor" else None,
        )
        for at, (tier, times, cohort) in enumerate(places)
    ]  # fmt: skip
    targets += [Target(f"negative-{at:03d}", "negative", None, 0, None, ids[-1 - at], FACT) for at in range(23)]
    famous = Fact("Qxgiven", "Qxsurname", "Qxplace", "Qxevent", None, 1777)
    return targets + [Target(f"positive-{at:03d}", "positive", None, None, None, None, famous) for at in range(8)]


def _answer(target, kind, temperature, repeat, recalled):
    able = [field for field in FIELDS if field != "archive" or target.fact.archive is not None]
    net = frozenset(able if recalled and kind == "completion" else ())
    decoded = bool(net) and target.id is not None
    return AnswerScore(
        target.key, kind, temperature, repeat, net, net, sum(BITS[field] for field in net), decoded, decoded, (), False,
        False,
    )  # fmt: skip


def _report(recalled, log, silent=frozenset()):
    targets = _targets()
    answers = [
        _answer(target, kind, temperature, repeat, target.key in recalled)
        for target in targets
        if target.key not in silent
        for kind in PROBES
        for temperature, repeat in ((0.0, 0), (0.8, 0), (0.8, 1))
    ]
    rng = np.random.default_rng(4)
    logps = {target.key: rng.normal(-4, 2, 31) for target in targets if target.population != "positive"}
    config = EvidenceConfig(permutations=999)
    evidence = weigh(targets, answers, config, 2, log, logps, None)
    head = {
        "schema": "canaryjax.detector/1", "name": "weighed", "run": "0f1e2d3c",
        "started": "2026-11-30T09:00:07.001+00:00",
        "finished": "2026-11-30T09:12:41.002+00:00",
        "model": {"label": "a model", "backend": "local", "capabilities": {"logprobs": True}},
        "site": {"fingerprint": "9d3b", "commitment": "5e" * 32, "commitment_time": "2026-03-02", "throwaway": True},
        "code": {"version": 1, "bits": BITS},
        "calls": {
            "planned": 15 * len(targets), "answered": len(answers), "failed": 15 * len(silent), "failures": {},
            "empty": 0, "refusals": 0, "per_target": 15,
        },
    }  # fmt: skip
    return json.loads(json.dumps(head | evidence, allow_nan=False))


@pytest.fixture(scope="module")
def risen():
    recalled = {f"ladder-{at:03d}" for at in [*range(9), *range(13, 17)]} | {"vendor-048", "cohort-036"}
    recalled |= {f"positive-{at:03d}" for at in range(5)}
    pages = {f"vendor-{at:03d}": frozenset([f"id {at}"]) for at in range(48, 51)}
    log = LogFacts(pages, frozenset(["id 48"]), 0, True)
    return _report(recalled, log, {"ladder-035"})


def _text(page):
    parser, texts = HTMLParser(), []
    parser.handle_data = texts.append
    parser.feed(page.read_text("utf-8"))
    return re.sub(r"\s+", " ", " ".join(texts))


def test_the_page_shows_what_was_weighed(risen, folder_of):
    folder = folder_of(risen)
    text = _text(render_detector(folder))
    assert judge_detector(risen).kind == "raised"
    trend, top = risen["trend"], risen["groups"][2]
    assert top["name"] == "ladder 300"
    for expected in (
        "9 of 13 field rule 9",
        f"{top['rate']['estimate']:.2f} [{top['rate']['low']:.2f}, {top['rate']['high']:.2f}]",
        f"{top['excess']['estimate']:+.2f} [{top['excess']['low']:.2f}, {top['excess']['high']:.2f}]",
        f"p = {trend['p']:.1e} (exact permutation test)",
        f"{trend['n']} sentences",
        "0 of 4 field rule 0 1 unanswered",  # once; one of five has no answer
        "request-log row vendor/visit-48",
        "manifest entry ladder-000",
        "given 12.0",
        "spent by earlier looks 0.0304",
        "above it: ladder 300",
        "completion, T 0.8 #2: all 6 net, 63 bits, full decode",
        risen["rule"]["field_text"],
        *risen["reading"],
        *risen["warnings"],
        *risen["limitations"],
    ):
        assert " ".join(expected.split()) in text, expected
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b|Qx", text)
    hits = json.loads((folder / "hits.json").read_text())["hits"]
    assert len(hits) == risen["populations"]["canary"]["hits"] == 15
    assert {path.stem for path in (folder / "figures").iterdir()} == {"dose_response", "cohorts", "membership"}


def test_a_posterior_and_its_reason_stand_in_their_tier(risen):
    titles = [section.title.split(":")[0] for section in tier_sections(risen)]
    assert titles == ["Cohorts", "Repetition ladder", "Vendor"]
    ladder = tier_sections(risen)[1]
    assert ladder.table.rows[0][-1] == "above 99.9\u00a0%"
    assert ladder.table.rows[-1][-1].endswith("pessimistic by\nconstruction")
    assert (
        "Prior 30\u00a0%: verified crawlers of the maker fetched pages; which of them hold the group is not known."
        in ladder.notes
    )


def test_a_run_in_which_nothing_is_recalled(folder_of):
    report = _report({f"positive-{at:03d}" for at in range(5)}, None)
    text = _text(render_detector(folder_of(report)))
    assert judge_detector(report).kind == "floor"
    for expected in ("No group of sentences can be told from", "no request log", "There is no hit."):
        assert expected in text, expected


def test_a_model_that_knows_no_famous_fact_either(folder_of):
    report = _report((), None)
    text = _text(render_detector(folder_of(report)))
    assert judge_detector(report).kind == "blind"
    assert "No normalised rate, no Bayes factor and posterior: the ceiling 0 is not above the floor 0." in text
    assert detector_summary(report)
