"""The sentences of a detector's report that stand around its tables."""

from collections.abc import Mapping
from typing import Any

from canaryjax.detector.reading import LIMITATIONS
from canaryjax.report.detector_text import p_words, whole
from canaryjax.report.text import MISSING, brackets, interval, number, percent, pick

READING = (
    "How to read it. Linked pages alone above the floor: the crawler followed links and did not read the site map. "
    "Sitemap-only pages too: it read the site map. Honeypot pages: it went where robots.txt forbids, by a link that no "
    "visitor sees, and the request log should hold that fetch."
)
POINTS_AT = (
    "Each hit names an id, and the id where it came from: a static one its entry in the manifest, an edge one the "
    "single request that its sentence was made for. The same list is in hits.json. Neither holds a sentence: ids "
    "become sentences again only with the site's own secret files."
)


def detector_cards(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """The four numbers a reader wants first."""
    trend = pick(report, "trend", {})
    alpha = trend.get("alpha", pick(report, "look.alpha"))
    return [
        {
            "name": "primary test, trend over the ladder",
            "value": MISSING if trend.get("p") is None else f"p = {number(trend['p'])}",
            "more": f"alpha of this look: {number(alpha, 4)}" if trend.get("p") is not None else p_words(trend),
        },
        _rate_card("canaries hit", pick(report, "populations.canary", {})),
        _rate_card("floor: never published", pick(report, "populations.negative", {})),
        _rate_card("ceiling: famous facts, field rule", pick(report, "populations.positive", {}), by_fields=True),
    ]


def _rate_card(name: str, own: Mapping[str, Any], by_fields: bool = False) -> dict[str, str]:
    record = pick(own, "field_rule", {}) if by_fields else own
    if record.get("hits") is None:
        return {"name": name, "value": MISSING, "more": interval(record.get("rate"))}
    rate = record.get("rate")
    more = f"{brackets(rate)} {percent(pick(rate, 'level'))} Wilson" if brackets(rate) else interval(rate)
    return {"name": name, "value": f"{record['hits']} of {number(own.get('n'))}", "more": more}


def detector_asked(report: Mapping[str, Any]) -> list[str]:
    """What was asked, of what, and what makes a hit."""
    rule = pick(report, "rule.text", "not recorded.")
    counts = {key: number(pick(report, f"populations.{key}.n")) for key in ("canary", "negative", "positive")}
    return [
        "Did the site's sentences reach this model's training? Sentences that stand nowhere else were planted; the "
        "model is asked about them, and in the very same way about sentences that were never published, which set the "
        "floor, and about famous facts, which set the ceiling. No question holds a whole sentence, and the system "
        "prompt forbids browsing.",
        f"{pick(report, 'model.label', 'The model')} was asked about {counts['canary']} planted sentences, "
        f"{counts['negative']} never-published ones and {counts['positive']} famous facts; "
        f"{number(pick(report, 'calls.per_target'))} calls each.",
        f"The rule “{pick(report, 'rule.name', 'not recorded')}”, declared before the run: {rule} "
        f"{pick(report, 'rule.field_text', '')}".strip(),
    ]


def worth(report: Mapping[str, Any]) -> str:
    """What the columns of the tiers' tables are."""
    level = percent(report.get("level"))
    return (
        f"Brackets are {level} intervals: Wilson's of a rate, Newcombe's of the excess over the floor. p is Fisher's, "
        "one-sided, against the never-published; Holm is the same corrected for all secondary tests. What famous facts "
        "set the ceiling of is counted by the field rule throughout: normalised is (rate - floor) / (ceiling - floor); "
        "the Bayes factor is how many times likelier these hits are at the ceiling's rate than at the floor's, with "
        "the uncertainty of both integrated out; prior and Bayes factor give the posterior, the probability that the "
        "group was trained on if what was trained on is recalled as famous facts are."
    )


def detector_sure(report: Mapping[str, Any]) -> list[str]:
    """What the uncertainty is made of, and how the schedule of looks spends alpha."""
    floor, ceiling = _control(report, "negative"), _control(report, "positive")
    texts = [
        "Each sentence is one observation: its several answers never count as separate evidence. The primary test was "
        "named before the run; everything else is secondary.",
        "The tests score how much of a sentence is recalled, in bits, before the rule makes hits of it; the chart "
        "counts hits. Rungs and roles were dealt by lot: p is the share of all lots with as much.",
        f"Floor and ceiling are measured, too, by the field rule: a floor of {floor}, a ceiling of {ceiling}.",
        "Looking again and again would turn up something in the end; so each look at a model may spend only its part "
        "of alpha, and all parts together stay within it. The secondary tests, corrected among themselves, are held "
        "against the same part once more.",
    ]
    return texts


def _control(report: Mapping[str, Any], population: str) -> str:
    """Hits of a control by the field rule, and the rates that they leave open."""
    own = pick(report, f"populations.{population}", {})
    rate = pick(own, "field_rule.rate")
    if not whole(own.get("n")) or not brackets(rate):
        return "nothing, since there are none"
    return f"{number(pick(own, 'field_rule.hits'))} of {number(own['n'])} may be anything in {brackets(rate)}"


def detector_limits(report: Mapping[str, Any]) -> list[str]:
    """What no run can settle (SD-41): as the run recorded it, or the standing limits where it did not."""
    return [str(text) for text in report.get("limitations") or LIMITATIONS]
