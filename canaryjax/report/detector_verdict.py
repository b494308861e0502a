"""One sentence on what a detector run shows, never stronger than its evidence."""

from collections.abc import Mapping, Sequence
from typing import Any

from canaryjax.report.detector_text import chance, group_name, p_words, times, whole
from canaryjax.report.text import brackets, number, pick
from canaryjax.report.verdict import Verdict

KIND_NAMES = {
    "none": "No verdict",
    "blind": "The questions do not work on this model",
    "retrieval": "Memory or retrieval: not told apart",
    "raised": "Recall rises with exposure",
    "unshown": "Not shown by the primary test",
    "floor": "At the floor",
}
WEAK = (
    "That nothing is recalled is weak evidence: a model can have been trained on a text and not give it back, and its "
    "maker can have filtered or weighed down sentences like these."
)


def judge_detector(report: Mapping[str, Any]) -> Verdict:
    """Weighs the primary test of a detector's `report.json`, the trend over the ladder, against this look's alpha.

    Returns:
      A verdict; its kind is one of `KIND_NAMES`. A rise is claimed only where the primary test is below its alpha, and
      as memory only where no fetch of the site during the run is known.
    """
    trend = pick(report, "trend", {})
    below = trend.get("below_alpha")
    if trend.get("p") is None or below is None:
        reason = trend.get("reason") or "no reason was recorded"
        headline = f"{_asked(report)} The primary test, the trend over the ladder, has no result: {reason}."
        return Verdict("none", headline, (*_secondary(report), *_qualifiers(report), WEAK))
    return _risen(report, trend) if below else _unrisen(report, trend)


def _risen(report: Mapping[str, Any], trend: Mapping[str, Any]) -> Verdict:
    fetched = whole(pick(report, "fetches.during_run", 0)) > 0
    headline = (
        f"{_asked(report)} The more often one stood on the site, the more of it is recalled: trend over the ladder "
        f"{p_words(trend)}, within the alpha of {number(_alpha(report))} that this look may spend."
    )
    if fetched:
        headline += " But the site was fetched during the run: the answers may be retrieved, and not remembered."
    lot = "was decided by lot" if pick(report, "site.commitment") else "is taken as decided by lot (none was recorded)"
    sure = (
        f"How sure: which sentence stood how often {lot}. Had that made no difference to the model, a rise as steep "
        f"would come about in {chance(trend['p'])} of all such lots."
    )
    way = (
        "What it is not: proof of the way. The sentences reached the model; whether by the maker's own crawler, a copy "
        "of the site or another's collection, the ids of hits and the request log may tell, the test cannot."
    )
    return Verdict("retrieval" if fetched else "raised", headline, (sure, *_top(report), *_qualifiers(report), way))


def _unrisen(report: Mapping[str, Any], trend: Mapping[str, Any]) -> Verdict:
    weighed = (
        f"trend over the ladder {p_words(trend)}, above the alpha of {number(_alpha(report))} that this look may spend"
    )
    positives = pick(report, "populations.positive", {})
    if whole(positives.get("n")) and pick(positives, "field_rule.hits", positives.get("hits")) == 0:
        headline = (
            f"{_asked(report)} It recalls none of {positives['n']} famous facts that were asked in the same way either:"
            f" these questions cannot find what this model knows ({weighed})."
        )
        return Verdict("blind", headline, (*_secondary(report), *_qualifiers(report), WEAK))
    if lifted_groups(report) or pick(report, "floor_test.below_alpha"):
        headline = (
            f"{_asked(report)} The primary test does not show that recall rises with exposure ({weighed}); secondary "
            "tests find recall above the never-published floor."
        )
        return Verdict("unshown", headline, (*_secondary(report), *_qualifiers(report), WEAK))
    headline = f"{_asked(report)} No group of sentences can be told from the never-published floor ({weighed})."
    fresh = (
        "Of a site that is days old this is what is expected, and no failure: it is the baseline that later runs, on a "
        "fixed schedule, are compared with."
    )
    return Verdict("floor", headline, (WEAK, fresh, *_secondary(report), *_qualifiers(report)))


def lifted_groups(report: Mapping[str, Any]) -> list[str]:
    """Groups whose Fisher p, after Holm, is at most this look's alpha, as they are named in text."""
    alpha = _alpha(report)
    return [
        group_name(group)
        for group in report.get("groups") or ()
        if alpha is not None and group.get("holm_p") is not None and group["holm_p"] <= alpha
    ]


def _alpha(report: Mapping[str, Any]) -> float | None:
    alpha: float | None = pick(report, "trend.alpha", pick(report, "look.alpha"))
    return alpha


def _asked(report: Mapping[str, Any]) -> str:
    label, canaries = pick(report, "model.label", "The model"), pick(report, "populations.canary.n")
    return (
        f"{label} was asked about {number(canaries)} planted sentences, with {number(pick(report, 'calls.answered'))} "
        "answers to all questions."
    )


def _top(report: Mapping[str, Any]) -> Sequence[str]:
    """The rung with the most occurrences beside the floor."""
    rungs = [
        rung for rung in report.get("curve") or () if whole(rung.get("occurrences")) and rung.get("hits") is not None
    ]
    floor = pick(report, "populations.negative", {})
    if not rungs or floor.get("hits") is None:
        return ()
    top = max(rungs, key=lambda rung: rung["occurrences"])
    return (
        f"Of {top['n']} sentences that stood there {times(top['occurrences'])} it recalls {top['hits']} "
        f"{brackets(top.get('rate'))}, of {floor['n']} that were never published {floor['hits']} "
        f"{brackets(floor.get('rate'))}.".replace(" .", "."),
    )


def _secondary(report: Mapping[str, Any]) -> Sequence[str]:
    """What the tests show that are not the primary one."""
    test, lifted = pick(report, "floor_test", {}), lifted_groups(report)
    texts = []
    if test.get("p") is not None:
        after = f"; after Holm {number(test['holm_p'])}" if test.get("holm_p") is not None else ""
        texts.append(f"Secondary: sentences of site and ladder together against the floor, {p_words(test)}{after}.")
    if lifted:
        texts.append(f"Secondary, after Holm's correction for all such tests: above the floor {', '.join(lifted)}.")
    return texts


def _qualifiers(report: Mapping[str, Any]) -> Sequence[str]:
    look, failed = pick(report, "look", {}), whole(pick(report, "calls.failed", 0))
    texts = [fetch_words(report)]
    if look.get("number") is not None:
        texts.append(
            f"This is look {look['number']} at this model. Over all looks together the primary test errs with a "
            f"probability of at most {number(report.get('alpha'))} where there is nothing to find."
        )
    if failed:
        texts.append(
            f"{failed:,} of {number(pick(report, 'calls.planned'))} calls have no answer: their targets had fewer "
            "chances to be hits."
        )
    if pick(report, "site.throwaway"):
        texts.append("The word lists are throw-away ones: this run tries the instrument out, and is about no site.")
    return texts


def fetch_words(report: Mapping[str, Any]) -> str:
    """Whether hits can be retrieval: what the request log says of the time of the run (SD-21)."""
    fetches = pick(report, "fetches", {})
    count, complete = fetches.get("during_run"), fetches.get("log_complete")
    if count is None:
        reason = fetches.get("reason") or "no reason was recorded"
        return f"Whether the site was fetched during the run is not known ({reason}): hits may be retrieval."
    if count:
        times_ = "once" if count == 1 else f"{count:,} times"
        return f"The site was fetched {times_} during the run: hits may be retrieval, not memory."
    if complete:
        return (
            "The request log covers the whole run and shows no fetch of the site in it: nothing was retrieved from the "
            "site itself. A copy that somebody else keeps, such as a search index, leaves no row there."
        )
    covers = "it does not cover the whole run" if complete is False else "it does not say whether it covers the run"
    return (
        f"The request log shows no fetch during the run, but is not known to be complete "
        f"({fetches.get('reason') or covers}): hits may be retrieval."
    )
