"""`report.html`: one file that opens anywhere, offline, with every text escaped."""

from pathlib import Path
from typing import Any

import yaml

from canaryjax.report import prose, tables, utility
from canaryjax.report.drift import CAPTION, drift_rows
from canaryjax.report.figures import draw_figures, write_figures
from canaryjax.report.provider import curated, provider_facts, provider_steps
from canaryjax.report.run import ARMS, Run, read_run
from canaryjax.report.template import fill_template
from canaryjax.report.text import label, pick
from canaryjax.report.textual import is_textual
from canaryjax.report.verdict import judge
from canaryjax.runlog import replacing

KIND_NAMES = {
    "none": "No verdict",
    "blocked": "Claim blocked by a failed null",
    "null": "Null run: passed",
    "reversed": "Against the expected direction",
    "separated": "The arms separate",
    "unseparated": "No separation shown",
}


def render_report(path: str | Path) -> Path:
    """Draws the figures and writes `report.html` of a finished run directory.

    Args:
      path: The directory; `report.json` is needed, `metrics.jsonl` and `trials.jsonl` add the training curves.

    Returns:
      The path of the page.

    Raises:
      UserError: No readable report there.
    """
    run = read_run(Path(path))
    plots = draw_figures(run)
    write_figures(run, plots)
    page = run.path / "report.html"
    with replacing(page) as handle:
        handle.write(_page(run, plots).encode("utf-8", "backslashreplace"))
    return page


def _page(run: Run, plots: dict[str, Any]) -> str:
    report, verdict = run.report, judge(run.report)
    drawn = "The string is" if is_textual(report) else "Trigger and canary string are"
    return fill_template(
        "page.html",
        plots,
        title=report.get("name") or "audit",
        textual=is_textual(report),
        description=report.get("description") or "",
        setting=report.get("setting") or "",
        verdict=verdict,
        kind_name=_kind_name(report, verdict.kind),
        cards=prose.cards(report),
        asked=prose.asked(report),
        sure=prose.sure(report),
        change=prose.change(report, verdict.kind),
        limits=prose.limits(report),
        warnings=[str(text) for text in report.get("warnings") or ()],
        detection=tables.detection(report),
        four_scores=tables.four_scores(report),
        memory=tables.memory(report),
        ppv=tables.ppv(report),
        controls=tables.controls(report),
        mechanism=tables.mechanism(report),
        drift=tables.Table(drift_rows(report), ("", *ARMS), CAPTION),
        utility=utility.means(report),
        utility_differences=utility.differences(report),
        model=tables.leaves(report.get("model") or {}),
        canary=tables.leaves(report.get("canary") or {}, f"{drawn} drawn afresh for each trial."),
        curated=curated(report),
        provider_facts=provider_facts(report),
        provider_steps=provider_steps(report),
        data=tables.data(report),
        environment=tables.environment(report),
        timings=tables.timings(report),
        command=report.get("command") or "not recorded",
        config=yaml.safe_dump(report.get("config") or {}, sort_keys=False, allow_unicode=True),
        footer=f"Primary score: {label(pick(report, 'statistic.primary', 'not recorded'))}. "
        f"Config {str(report.get('config_hash') or 'unknown')[:12]}, schema {report.get('schema')}.",
    )


def _kind_name(report: dict[str, Any], kind: str) -> str:
    setting = str(report.get("setting") or "").lower()
    return f"Positive control: {KIND_NAMES[kind].lower()}" if "positive control" in setting else KIND_NAMES[kind]
