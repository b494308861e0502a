"""The statistical part of report.json, from answers to sentences."""

import json
import math

import pytest

from canaryjax.config.detector import EvidenceConfig, PriorConfig
from canaryjax.detector.evidence import weigh
from canaryjax.detector.prior import LogFacts
from canaryjax.detector.reading import FRESH, LIMITATIONS, ONCE
from canaryjax.detector.records import FIELDS, AnswerScore, Fact, Target

FACT = Fact("Aafirst", "Bbsecond", "Ccthird", "Ddfourth", "Eefifth", 1903)
FAMOUS = Fact("Aafirst", "Bbsecond", "Ccthird", "Ddfourth", None, 1903)
ALL, FOUR, NONE = frozenset(FIELDS), frozenset(FIELDS[:4]), frozenset()
CONFIG = EvidenceConfig(permutations=999, prior=PriorConfig(no_log=0.4))
PLAYED = 1_000_000  # ids of canaries start here


def target(key, population="canary", tier=None, occurrences=None, cohort=None, id=None, fact=FACT, log_row=None):
    return Target(key, population, tier, occurrences, cohort, id, fact, log_row)


def answer(key, kind="completion", repeat=0, net=NONE, raw=None, decoded=False, temperature=0.8, **others):
    settings = {"others": (), "empty": False, "refusal": False} | others
    bits = 12.0 * len(net)
    return AnswerScore(
        key, kind, temperature, repeat, net if raw is None else raw, net, bits, decoded, decoded, **settings
    )


class Run:
    """Targets and their answers, added group by group."""

    def __init__(self):
        self.targets, self.answers = [], []

    def add(self, name, n, hits, **kind):
        """Two answers each; the first `hits` of them hold four fields in both."""
        for i in range(n):
            key = f"{name}-{i:03d}"
            self.targets.append(target(key, id=PLAYED + len(self.targets), **kind))
            self.answers += [answer(key, repeat=r, net=FOUR if i < hits else NONE) for r in range(2)]
        return self

    def ladder(self, n, *hits):
        for rung, found in zip((300, 100, 10, 1), hits, strict=True):
            self.add(f"ladder-{rung}", n, found, tier="ladder", occurrences=rung)
        return self

    def controls(self, floor=0, ceiling=5):
        self.add("negative", 20, floor, population="negative", occurrences=0)
        return self.add("positive", 8, ceiling, population="positive", fact=FAMOUS)

    def weigh(self, config=CONFIG, look=1, log=None, **others):
        return weigh(self.targets, self.answers, config, look, log, **others)


def group(report, name):
    return next(own for own in report["groups"] if own["name"] == name)


def test_numbers_of_a_group():
    report = Run().ladder(9, 3, 0, 0, 0).controls().weigh()
    top = group(report, "ladder 300")
    assert (top["n"], top["hits"], top["unanswered"], top["raw_hits"]) == (9, 3, 0, 3)
    assert [top["excess"]["low"], top["excess"]["high"]] == pytest.approx([0.0665, 0.6458], abs=5e-5)  # SD-A7
    assert top["excess"]["estimate"] == pytest.approx(1 / 3)
    assert top["fisher_p"] == pytest.approx(84 / 3654)
    assert top["normalised"]["raw"] == pytest.approx((1 / 3) / (5 / 8))
    assert top["posterior"]["prior"] == 0.4
    assert top["posterior"]["probability"] > 0.9
    assert not top["posterior"]["pessimistic"]
    assert group(report, "ladder 1")["posterior"]["pessimistic"]
    assert [own["name"] for own in report["groups"]] == ["ladder 300", "ladder 100", "ladder 10", "ladder 1"]


def test_populations_have_wilson_intervals_and_both_rules():
    run = Run().ladder(1, 0, 0, 0, 0).controls()
    run.answers.append(answer("positive-007", "who", 3, net=ALL - {"archive"}))
    report = run.weigh()
    negative, positive = report["populations"]["negative"], report["populations"]["positive"]
    assert [negative["rate"]["low"], negative["rate"]["high"]] == pytest.approx([0.0, 0.1611], abs=5e-5)
    assert [positive["rate"]["low"], positive["rate"]["high"]] == pytest.approx([0.3057, 0.8632], abs=5e-5)
    assert positive["field_rule"]["hits"] == positive["hits"] == 5


def test_famous_facts_need_not_give_four_fields_of_one_answer():
    run = Run().ladder(3, 2, 0, 0, 0).controls(ceiling=0)
    name, what = frozenset(("given", "surname")), frozenset(("event", "year"))
    for i in range(6):
        run.answers += [
            answer(f"positive-{i:03d}", "who", net=name),
            answer(f"positive-{i:03d}", "paraphrase", net=what),
        ]
    report = run.weigh()
    positive = report["populations"]["positive"]
    assert (positive["hits"], positive["field_rule"]["hits"]) == (0, 6)
    assert group(report, "ladder 300")["normalised"]["raw"] == pytest.approx((2 / 3) / (6 / 8))
    assert not any("famous facts is recalled" in text for text in report["warnings"])


def test_the_ceilings_rule_is_the_canaries_too():
    # SD-A5: three full decodes of one answer each are hits, but not by the field rule, which positives can meet.
    run = Run().add("site", 3, 0, tier="site", occurrences=1).controls()
    run.answers += [answer(f"site-{i:03d}", "who", net=ALL, decoded=True) for i in range(3)]
    own = group(run.weigh(), "site 1")
    assert (own["hits"], own["field_rule"]["hits"]) == (3, 0)
    assert own["rate"]["estimate"] == 1.0
    assert own["normalised"]["raw"] == 0.0
    assert own["posterior"]["bayes_factor"] < 1
    assert own["excess"]["estimate"] == 1.0


def test_targets_without_answers_stand_in_no_rate():
    run = Run().ladder(5, 2, 0, 0, 0).controls()
    lost = {"ladder-300-000", "ladder-300-004", "negative-003", "positive-001"}
    run.answers = [own for own in run.answers if own.target not in lost]
    report = run.weigh()
    top = group(report, "ladder 300")
    assert (top["n"], top["unanswered"], top["hits"]) == (3, 2, 1)
    assert report["curve"][0] | {"rate": None} == {"occurrences": 300, "n": 3, "hits": 1, "rate": None}
    assert report["populations"]["negative"]["n"] == 19
    assert report["trend"]["n"] == 18
    assert any(text.startswith("4 of 48 targets have no answer") for text in report["warnings"])


def test_fields_are_counted_where_the_question_did_not_give_them():
    # SD-A14. `who` gives the year, `completion` nothing; a famous fact has no archive to be found.
    run = Run()
    run.targets = [target("negative-000", "negative", occurrences=0, id=3), target("positive-000", "positive")]
    run.targets[1] = target("positive-000", "positive", fact=FAMOUS)
    run.answers = [
        answer("negative-000", "completion", net=frozenset(("year",))),
        answer("negative-000", "who", net=frozenset(("given",)), raw=frozenset(("given", "year"))),
        answer("negative-000", "year"),
        answer("positive-000", "completion", net=FOUR),
    ]
    fields = run.weigh()["populations"]["negative"]["fields"]
    assert fields["year"] == {"share": 1 / 2, "n": 2}
    assert fields["given"] == {"share": 1 / 2, "n": 2}
    assert fields["archive"] == {"share": 0.0, "n": 3}
    assert run.weigh()["populations"]["positive"]["fields"]["archive"] == {"share": None, "n": 0}


def test_the_primary_test_stands_alone_and_the_rest_under_holm():
    report = Run().ladder(6, 6, 4, 1, 0).add("site", 7, 0, tier="site", occurrences=1).controls().weigh(look=2)
    alpha = 6 * 0.05 / (4 * math.pi**2)
    assert report["look"] == {"number": 2, "alpha": pytest.approx(alpha), "spent_before": pytest.approx(4 * alpha)}
    assert report["trend"]["alpha"] == report["floor_test"]["alpha"] == pytest.approx(alpha)
    assert report["trend"]["p"] < alpha
    assert report["trend"]["below_alpha"]
    # Smallest first: the top rung's p times six tests (five groups, the floor; no cohorts).
    first = min(own["fisher_p"] for own in report["groups"])
    assert group(report, "ladder 300")["fisher_p"] == first
    assert group(report, "ladder 300")["holm_p"] == pytest.approx(6 * first)
    assert report["floor_test"]["below_alpha"]


def test_the_floor_test_is_judged_after_holm():
    # C(10, 3)/C(30, 3) = 0.0296 is below the first look's 0.0304; twice that, with the one group, is not.
    report = Run().add("site", 10, 3, tier="site", occurrences=1).controls().weigh()
    test = report["floor_test"]
    assert test["p"] == pytest.approx(120 / 4060)
    assert test["holm_p"] == pytest.approx(240 / 4060)
    assert test["p"] < test["alpha"] < test["holm_p"]
    assert test["below_alpha"] is False
    assert FRESH in report["reading"]
    # Three of ten are above none of twenty: that the test cannot tell them apart is all that may be said.
    assert FRESH.startswith("No tier can be told from the floor.")


def test_a_fresh_site_is_the_baseline():
    report = Run().ladder(6, 0, 0, 0, 0).controls().weigh()
    assert report["trend"]["p"] == 1.0
    assert report["trend"]["below_alpha"] is False
    assert report["hits"] == []
    assert FRESH in report["reading"]  # SD-40
    assert ONCE in report["reading"]  # SD-32
    assert report["limitations"] == list(LIMITATIONS)  # SD-41
    found = Run().ladder(6, 6, 4, 1, 0).controls().weigh()
    assert FRESH not in found["reading"]
    assert found["reading"][0].startswith("Recall rises")


def cohorts(linked, sitemap, honeypot, n=7):
    run = Run()
    for name, hits in {"linked": linked, "sitemap": sitemap, "honeypot": honeypot}.items():
        run.add(f"cohort-{name}", n, hits, tier="cohort", occurrences=1, cohort=name)
    return run.controls().weigh()


@pytest.mark.parametrize(
    ("hits", "said", "unsaid"),
    [
        ((7, 0, 0), "than sitemap-only ones do", "robots.txt"),
        ((5, 1, 0), "may be chance", "than sitemap-only ones do"),
        ((7, 7, 0), "reads the sitemap", "than sitemap-only ones do"),
        ((0, 0, 6), "robots.txt", "sitemap"),
        ((2, 1, 1), "no result", "crawler"),
    ],
)
def test_cohorts_are_read_only_above_the_floor(hits, said, unsaid):
    # SD-34. 2 of 7 against 0 of 20 has p = 0.06: two hits of linked pages alone are no finding.
    report = cohorts(*hits)
    texts = " ".join(report["reading"])
    assert said in texts
    assert unsaid not in texts
    assert [(own["cohort"], own["hits"], own["n"]) for own in report["cohorts"]] == [
        ("linked", hits[0], 7),
        ("sitemap", hits[1], 7),
        ("honeypot", hits[2], 7),
    ]


def test_small_controls_are_told():
    # SD-A7 at this look's level, 0.0304.
    sizes = {3: 300, 9: 100, 12: 10}
    run = Run().controls()
    for n, rung in sizes.items():
        run.add(f"ladder-{rung}", n, 0, tier="ladder", occurrences=rung)
    (text,) = [text for text in run.weigh()["warnings"] if "Fewest hits" in text]
    assert "0.03 against 0 of 20 negatives" in text
    assert text.endswith("2 of 3, 3 of 9, 4 of 12.")  # 3 of 12 has p = 0.044
    at_once = run.weigh(EvidenceConfig(alpha=0.05 * math.pi**2 / 6, permutations=999))["warnings"]
    assert any(text.endswith("2 of 3, 3 of 9, 3 of 12.") for text in at_once)
    late = run.weigh(look=9)["warnings"]
    assert any("No number of hits" in text and text.endswith("groups of 3.") for text in late)


LOG = LogFacts({}, frozenset(), 0, True)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (None, "no request log"),
        (LogFacts({}, None, 3, True), "fetched 3 times during the run: hits may be retrieval"),
        (LogFacts({}, None, 0, False, "log incomplete: it ends too early"), "Log incomplete: it ends too early"),
        (LogFacts({}, None, None, False, None), "Log incomplete: it does not cover the run"),
        (LogFacts({}, None, 0, True, None, 2), "2 lines of the request log could not be read"),
    ],
)
def test_what_the_log_cannot_rule_out_is_told(log, said):
    report = Run().ladder(2, 0, 0, 0, 0).controls().weigh(log=log)
    assert any(said in text for text in report["warnings"])
    assert report["fetches"]["during_run"] == (None if log is None else log.during_run)
    quiet = Run().ladder(2, 0, 0, 0, 0).controls().weigh(log=LOG)["warnings"]
    assert len(quiet) == 1  # on the groups' size
    assert "Fewest hits" in quiet[0]


def test_odd_controls_and_answers_are_told():
    guessing = Run().ladder(2, 0, 0, 0, 0).controls(floor=2).weigh(log=LOG)["warnings"]
    assert any(text.startswith("2 of 20 never-published sentences are hits") for text in guessing)
    blind = Run().ladder(2, 0, 0, 0, 0).controls(ceiling=0).weigh(log=LOG)["warnings"]
    assert any(text.startswith("None of 8 famous facts is recalled") for text in blind)
    run = Run().ladder(2, 0, 0, 0, 0).controls()
    run.answers = [own for own in run.answers if own.repeat == 0 or not own.target.startswith("negative")]
    assert any("Canaries have 2 answers a target and negatives 1" in text for text in run.weigh(log=LOG)["warnings"])
    run.answers = [answer(t.key, repeat=r, refusal=r == 1) for t in run.targets for r in range(3)]
    assert any(text.startswith("36 of 108 answers are empty or refusals") for text in run.weigh()["warnings"])
    without = Run().ladder(2, 0, 0, 0, 0).weigh()
    assert any("No never-published sentence was answered" in text for text in without["warnings"])
    assert without["groups"][0]["excess"]["reason"] == "no trials: n = 0"
    assert (without["groups"][0]["fisher_p"], without["groups"][0]["holm_p"]) == (None, None)


def test_the_part_is_plain_json_and_tells_no_field():
    run = Run().ladder(3, 3, 1, 0, 0).controls(floor=1)
    run.add("vendor", 1, 1, tier="vendor", occurrences=2, log_row="row 7")
    logps = {own.key: [-1.0, -2.0 - i % 5, -0.5] for i, own in enumerate(run.targets) if own.population != "positive"}
    text = json.dumps(run.weigh(logps=logps, standardised=logps), allow_nan=False)
    assert not any(str(value) in text for value in vars(FACT).values())
    report = json.loads(text)
    assert list(report) == [
        *("rule", "level", "alpha", "look", "fetches", "populations", "groups", "curve", "trend", "floor_test"),
        *("cohorts", "reading", "membership", "hits", "strays", "warnings", "limitations"),
    ]
    assert report["hits"][-1]["source"] == {"log_row": "row 7"}
    assert (report["rule"]["name"], report["rule"]["bits"]) == ("literal", None)
    assert "3 or more different ones" in report["rule"]["field_text"]


def test_an_empty_run_has_reasons_and_no_numbers():
    report = weigh([], [], CONFIG, 1, None)
    assert report["groups"] == report["curve"] == report["hits"] == []
    assert report["trend"]["reason"] == "needs units of two doses, found no units"
    assert report["populations"]["canary"]["rate"]["reason"] == "no trials: n = 0"
    json.dumps(report, allow_nan=False)
