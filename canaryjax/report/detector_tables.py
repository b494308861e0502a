"""The tables of a detector's report, as rows of text; a cell may hold two lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canaryjax.detector.records import FIELDS, TIERS
from canaryjax.report.detector_text import TIER_NAMES, chance, cohort_name, factor, group_row, p_words
from canaryjax.report.tables import Table
from canaryjax.report.text import MISSING, brackets, label, number, percent, pick

GROUP_HEAD = (
    *("", "hits of targets", "rate", "excess over floor", "p", "normalised", "prior", "Bayes factor", "posterior"),
)
POPULATIONS = {
    "canary": "canaries: planted",
    "negative": "negatives: never published (floor)",
    "positive": "positives: famous facts (ceiling)",
}
# For a terminal of 80 columns: two numbers a cell, and of priors only what the notes say.
NARROW_HEAD = ("", "hits", "rate\nexcess", "p\nHolm", "field rule\nnormalised", "Bayes factor\nposterior")
PESSIMISTIC = "pessimistic by\nconstruction"
LINES = "lines"  # kind of a table whose cells keep their line breaks


@dataclass(frozen=True)
class Section:
    """A tier's table, its heading and what its empty cells and numbers need said; `narrow` has fewer columns."""

    title: str
    table: Table
    narrow: Table
    notes: Sequence[str]


def tier_sections(report: Mapping[str, Any]) -> list[Section]:
    """One table per tier, a row per group; tiers in the order of the records, unknown ones after them."""
    groups = report.get("groups") or ()
    names: list[str] = [tier for tier in TIERS if any(group.get("tier") == tier for group in groups)]
    names += sorted({str(group.get("tier") or "tier not recorded") for group in groups} - set(names))
    return [
        _section(tier, [group for group in groups if (group.get("tier") or "tier not recorded") == tier])
        for tier in names
    ]


def _section(tier: str, groups: Sequence[Mapping[str, Any]]) -> Section:
    rows = [_group_cells(group) for group in groups]
    notes = _notes(groups)
    if any(pick(group, "posterior.pessimistic") for group in groups):
        notes.append(
            "Pessimistic by construction: the likelihoods come from famous facts, which are recalled far more easily "
            "than anything that was read once. Of such a group the curve is the finding, not this probability."
        )
    narrow = Table([_narrow_cells(group) for group in groups], NARROW_HEAD, kind=LINES)
    return Section(TIER_NAMES.get(tier, label(tier)), Table(rows, GROUP_HEAD, kind=LINES), narrow, notes)


def _group_cells(group: Mapping[str, Any]) -> tuple[str, ...]:
    fields, posterior = pick(group, "field_rule", {}), pick(group, "posterior", {})
    cells = (
        group_row(group),
        lines(
            rate_of(group),
            f"field rule {fields['hits']}" if fields.get("hits") is not None else "",
            f"{group['unanswered']} unanswered" if group.get("unanswered") else "",
        ),
        _estimate(group.get("rate")),
        _estimate(group.get("excess"), sign=True),
        lines(
            number(group.get("fisher_p")), f"Holm {number(group['holm_p'])}" if group.get("holm_p") is not None else ""
        ),
        _normalised(pick(group, "normalised", {})),
        percent(posterior.get("prior")),
        factor(posterior.get("bayes_factor")),
        lines(chance(posterior.get("probability")), PESSIMISTIC if posterior.get("pessimistic") else ""),
    )
    # The note below says why; in so many columns the long word has no room.
    return tuple(cell.replace(MISSING, "none") for cell in cells)


def _narrow_cells(group: Mapping[str, Any]) -> tuple[str, ...]:
    posterior, normal = pick(group, "posterior", {}), pick(group, "normalised.raw")
    unanswered = group.get("unanswered")
    cells = (
        lines(group_row(group), f"{unanswered} unanswered" if unanswered else ""),
        rate_of(group),
        f"{estimate(group.get('rate'))}\n{estimate(group.get('excess'), sign=True)}",
        f"{number(group.get('fisher_p'))}\n{number(group.get('holm_p'))}",
        f"{rate_of({'n': group.get('n'), 'hits': pick(group, 'field_rule.hits')})}\n{number(normal, 2)}",
        lines(
            factor(posterior.get("bayes_factor")),
            chance(posterior.get("probability")),
            "pessimistic" if posterior.get("pessimistic") else "",
        ),
    )
    return tuple(cell.replace(MISSING, "none") for cell in cells)


def _notes(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where priors come from and why cells are empty, each said once with the groups that it holds of."""
    members: dict[str, list[str]] = {}
    for group in groups:
        for text in _group_notes(group):
            members.setdefault(text, []).append(group_row(group))
    return [
        f"{text[0].upper()}{text[1:]}" + ("." if len(rows) == len(groups) else f" ({'; '.join(rows)}).")
        for text, rows in members.items()
    ]


def _group_notes(group: Mapping[str, Any]) -> list[str]:
    reasons = {
        "rate": pick(group, "rate.reason") if pick(group, "rate.low") is None else None,
        "excess": pick(group, "excess.reason") if pick(group, "excess.low") is None else None,
        "normalised rate": pick(group, "normalised.reason"),
        "Bayes factor and posterior": pick(group, "posterior.reason"),
    }
    source = pick(group, "posterior.prior_source")
    texts = [f"prior {percent(pick(group, 'posterior.prior'))}: {source}"] if source else []
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason:
            by_reason.setdefault(str(reason), []).append(name)
    return texts + [f"no {', no '.join(names)}: {reason}" for reason, names in by_reason.items()]


def rate_of(record: Mapping[str, Any]) -> str:
    """Hits of targets."""
    if record.get("hits") is None:
        return MISSING
    return f"{record['hits']} of {number(record.get('n'))}"


def estimate(record: Any, sign: bool = False, between: str = " ") -> str:
    """A number and its interval."""
    value = pick(record, "estimate")
    return MISSING if value is None else f"{number(value, 2, sign)}{between}{brackets(record)}".rstrip()


def _estimate(record: Any, sign: bool = False) -> str:
    return estimate(record, sign, "\n")


def _normalised(record: Mapping[str, Any]) -> str:
    raw, clipped = record.get("raw"), record.get("clipped")
    return lines(number(raw, 2), f"clipped {number(clipped, 2)}" if clipped is not None and clipped != raw else "")


def lines(*texts: str) -> str:
    """The texts that are not empty, one under the other."""
    return "\n".join(text for text in texts if text)


def tests(report: Mapping[str, Any]) -> Table:
    """The primary test and the test against the floor."""
    named = {
        "trend": "trend over the ladder (primary)",
        "floor_test": "site and ladder against the floor (secondary)",
    }
    rows = [(name, _test(pick(report, key, {}))) for key, name in named.items()]
    return Table(rows, caption="One-sided permutation tests of the bits recalled.", kind="pairs", numeric=False)


def _test(test: Mapping[str, Any]) -> str:
    if test.get("p") is None:
        return p_words(test)
    holm = f"; after Holm {number(test['holm_p'])}" if test.get("holm_p") is not None else ""
    words: dict[Any, str] = {True: "at most", False: "above"}
    held = words.get(test.get("below_alpha"), "not held against")
    alpha = f"; {held} the alpha of this look, {number(test['alpha'], 4)}" if test.get("alpha") is not None else ""
    return f"{p_words(test)}{holm}{alpha}; {number(test.get('n'))} sentences"


def controls(report: Mapping[str, Any]) -> Table:
    """Hits of the three populations under both rules."""
    rows = []
    for key, name in POPULATIONS.items():
        own = pick(report, f"populations.{key}", {})
        rows.append(
            (
                name,
                rate_of(own),
                _estimate(own.get("rate")),
                rate_of({"n": own.get("n"), "hits": pick(own, "field_rule.hits")}),
                _estimate(pick(own, "field_rule.rate")),
                number(own.get("raw_hits")),
                number(own.get("unanswered")),
            )
        )
    caption = (
        f"Brackets: {percent(report.get('level'))} Wilson intervals. Famous facts have no id and no archive, so the "
        "ceiling is read by the field rule. Raw hits count what the question itself gave, too. Unanswered "
        "targets count in no rate."
    )
    head = (
        "population",
        "hits of targets",
        "rate",
        "hits by field rule",
        "rate by field rule",
        "raw hits",
        "unanswered",
    )
    return Table(rows, head, caption, LINES)


def narrow_controls(report: Mapping[str, Any]) -> Table:
    """The same for a terminal of 80 columns."""
    rows = []
    for key, name in POPULATIONS.items():
        own = pick(report, f"populations.{key}", {})
        fields = {"n": own.get("n"), **pick(own, "field_rule", {})}
        rates = (text for row in (own, fields) for text in (rate_of(row), estimate(row.get("rate"))))
        rows.append((name.rpartition(": ")[2], *(text.replace(MISSING, "none") for text in rates)))
    return Table(rows, ("", "hits", "rate", "field rule", "rate"), kind=LINES)


def field_floor(report: Mapping[str, Any]) -> Table | None:
    """How often each field alone stands in an answer whose question did not give it, by population."""
    shares = {key: pick(report, f"populations.{key}.fields", {}) for key in POPULATIONS}
    bits = pick(report, "code.bits", {})
    if not any(shares.values()):
        return None
    rows = [
        (field, number(bits.get(field), 1), *(_share(own.get(field)) for own in shares.values())) for field in FIELDS
    ]
    caption = (
        "Share of answers with the field as a whole word, of those whose question did not give it. A frequent name "
        "comes up by chance far more often than one in its list's length: the negatives' column is that chance."
    )
    return Table(rows, ("field", "bits", *POPULATIONS), caption, LINES)


def _share(value: Any) -> str:
    if not isinstance(value, Mapping):
        return percent(value, 1)
    return lines(percent(value.get("share"), 1), f"of {number(value['n'])}" if value.get("n") is not None else "")


def cohort_table(report: Mapping[str, Any]) -> Table | None:
    """Hits by how a page can be found."""
    cohorts = report.get("cohorts") or ()
    rows = [(cohort_name(own), rate_of(own), _one_line(own.get("rate"))) for own in cohorts]
    caption = f"Brackets: {percent(report.get('level'))} Wilson intervals."
    return Table(rows, ("cohort", "hits of targets", "rate"), caption, numeric=False) if rows else None


def _one_line(rate: Any) -> str:
    reason = pick(rate, "reason") if pick(rate, "estimate") is None else None
    return estimate(rate) + (f": {reason}" if reason else "")
