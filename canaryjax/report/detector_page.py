"""`report.html` of a detector run: made of `report.json` alone, one file that opens anywhere, every text escaped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canaryjax.report import detector_facts, detector_hits, detector_prose, detector_tables
from canaryjax.report.detector_figures import draw_detector
from canaryjax.report.detector_membership import membership_table
from canaryjax.report.detector_verdict import KIND_NAMES, fetch_words, judge_detector
from canaryjax.report.figures import Plot, write_plots
from canaryjax.report.schema import read_schema
from canaryjax.report.template import fill_template
from canaryjax.report.text import pick
from canaryjax.runlog import replacing

SCHEMA = "canaryjax.detector/1"
# How a verdict's box looks: the colours of the audit's verdicts.
LOOKS = {"raised": "separated", "retrieval": "blocked", "blind": "blocked", "floor": "null"}


def read_detector(path: str | Path) -> dict[str, Any]:
    """Reads the `report.json` of a detector run.

    Raises:
      UserError: None there, a malformed file, or another schema.
    """
    return read_schema(Path(path) / "report.json", SCHEMA, "give a run of `detector probe`")


def render_detector(path: str | Path) -> Path:
    """Writes `report.html`, `figures/*.png` and `hits.json` beside the `report.json` of a detector run.

    Returns:
      The path of the page.

    Raises:
      UserError: No readable report there.
    """
    folder = Path(path)
    report = read_detector(folder)
    plots = draw_detector(report)
    write_plots(folder, plots)
    with replacing(folder / "hits.json") as handle:
        document = detector_hits.hits_document(report)
        handle.write(json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
    page = folder / "report.html"
    with replacing(page) as handle:
        handle.write(_page(report, plots).encode("utf-8", "backslashreplace"))
    return page


def _page(report: Mapping[str, Any], plots: Mapping[str, Plot]) -> str:
    verdict = judge_detector(report)
    return fill_template(
        "detector.html",
        plots,
        title=report.get("name") or "detector",
        verdict=verdict,
        look=LOOKS.get(verdict.kind, ""),
        kind_name=KIND_NAMES[verdict.kind],
        cards=detector_prose.detector_cards(report),
        asked=detector_prose.detector_asked(report),
        tests=detector_tables.tests(report),
        worth=detector_prose.worth(report),
        tiers=detector_tables.tier_sections(report),
        cohorts=detector_tables.cohort_table(report),
        reading=[str(text) for text in report.get("reading") or ()],
        reading_rules=detector_prose.READING,
        membership=membership_table(report),
        membership_reason=pick(report, "membership.reason", "no reason was recorded"),
        points_at=detector_prose.POINTS_AT,
        hits=detector_hits.hits_table(report),
        strays=detector_hits.strays(report),
        fetches=fetch_words(report),
        controls=detector_tables.controls(report),
        fields=detector_tables.field_floor(report),
        sure=detector_prose.detector_sure(report),
        ledger=detector_facts.ledger(report),
        calls=detector_facts.calls(report),
        setting=detector_facts.setting(report),
        limits=detector_prose.detector_limits(report),
        warnings=[str(text) for text in report.get("warnings") or ()],
        footer=f"Run {report.get('run') or 'not named'}, schema {report.get('schema')}.",
    )
