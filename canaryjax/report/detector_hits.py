"""Hits by id, and what each points at: rows of the page and the file `hits.json`."""

from collections.abc import Mapping
from typing import Any

from canaryjax.detector.records import FIELDS
from canaryjax.report.detector_tables import LINES, lines
from canaryjax.report.detector_text import group_row, whole
from canaryjax.report.tables import Table
from canaryjax.report.text import label, number, pick

SCHEMA = "canaryjax.detector.hits/1"
MOST_HITS, MOST_STRAYS = 100, 50  # rows on the page; the files have all


def hits_document(report: Mapping[str, Any]) -> dict[str, Any]:
    """What `hits.json` holds: the hits by id, and of which run and look they are.

    Args:
      report: A detector's `report.json`.

    Returns:
      Plain JSON values; `fetches` stands beside the hits since they may be retrieval.
    """
    return {
        "schema": SCHEMA,
        "name": report.get("name"),
        "run": report.get("run"),
        "model": pick(report, "model.label"),
        "started": report.get("started"),
        "finished": report.get("finished"),
        "look": pick(report, "look.number"),
        "rule": report.get("rule"),
        "fetches": report.get("fetches"),
        "hits": [dict(hit) for hit in hits_by_id(report)],
    }


def hits_table(report: Mapping[str, Any]) -> Table | None:
    """Hits by id, each with the manifest entry or the request that it points at."""
    hits = hits_by_id(report)
    rows = [
        (
            f"{hit.get('id') or 'no id'}\n{hit.get('target') or ''}",
            lines(label(hit.get("tier") or ""), group_row({"name": " ", **hit})).strip(),
            str(hit.get("how") or "not recorded"),
            _source(pick(hit, "source", {})),
            lines(*(_answer(own) for own in hit.get("answers") or ())),
        )
        for hit in hits[:MOST_HITS]
    ]
    left = f" {len(hits) - MOST_HITS:,} more are in hits.json." if len(hits) > MOST_HITS else ""
    caption = f"net: fields that the question did not give. T: temperature.{left}"
    return Table(rows, ("id", "group", "how", "points at", "answers"), caption, LINES, numeric=False) if rows else None


def hits_by_id(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The hits of a `report.json` in the order of their ids."""
    return sorted(report.get("hits") or (), key=lambda hit: (str(hit.get("id")), str(hit.get("target"))))


def _source(source: Mapping[str, Any]) -> str:
    named = {"manifest_entry": "manifest entry", "log_row": "request-log row"}
    texts = [f"{name}\n{source[key]}" for key, name in named.items() if source.get(key) is not None]
    return "\n".join(texts) or str(source.get("reason") or "not recorded")


def _answer(answer: Mapping[str, Any]) -> str:
    net = answer.get("net")
    fields = ", ".join(map(str, net)) if isinstance(net, (list, tuple)) else number(net)
    fields = f"all {len(FIELDS)}" if isinstance(net, list) and len(net) == len(FIELDS) else fields
    facts = [f"{fields or 'no'} net", f"{number(answer.get('bits'), 0)} bits"]
    facts += ["full decode"] if answer.get("decoded") else []
    # Greedy answers have no repeats.
    repeat = f" #{whole(answer.get('repeat')) + 1}" if answer.get("temperature") else ""
    probe = label(answer.get("probe") or "probe not recorded")
    return f"{probe}, T\u00a0{number(answer.get('temperature'), 1)}{repeat}: {', '.join(facts)}"


def strays(report: Mapping[str, Any]) -> Table | None:
    """Ids of other sentences than the one asked about."""
    found = report.get("strays") or ()
    rows = [
        (str(own.get("id") or "no id"), str(own.get("target") or "not recorded"), number(own.get("seen_in")))
        for own in found[:MOST_STRAYS]
    ]
    left = f" {len(found) - MOST_STRAYS:,} more are in report.json." if len(found) > MOST_STRAYS else ""
    caption = f"Sentences that answers to questions about others decode to in full.{left}"
    return Table(rows, ("id", "target", "answers"), caption, numeric=True) if rows else None
