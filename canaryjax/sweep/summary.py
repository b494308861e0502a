"""The cells' reports to the values of `sweep.json`."""

from collections.abc import Mapping, Sequence
from typing import Any

from canaryjax.config.fields import shown
from canaryjax.report.sweep_page import sweep_rows
from canaryjax.report.text import pick
from canaryjax.report.verdict import judge
from canaryjax.sweep.file import SweepFile
from canaryjax.sweep.panels import make_panels
from canaryjax.sweep.survival import survival_rows
from canaryjax.sweep.utility import check_answers, utility_comparison

SCHEMA = "canaryjax.sweep/1"
ARMS = ("compliant", "violating")
UTILITY = ("exact_match", "token_f1", "rouge_l")
OF_CELLS = ("report", "config")  # what each run directory has itself
# What is raised over a report that is JSON, and not as `audit` writes it.
ODD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def summarise(file: SweepFile, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that `sweep.json` says.

    Args:
      file: The sweep.
      rows: One a cell, in order; its `report` is what `report.json` holds, None where there is none; its `config` is
        the cell's, plain.

    Returns:
      Plain values; what a cell has not, or not yet, is None, with a reason where its report gives one. A cell whose
      report was changed into one that cannot be read counts as failed: it keeps nobody from the other cells.
    """
    rows = [_readable(file, row) for row in rows]
    counts = {status: sum(row["status"] == status for row in rows) for status in ("done", "failed", "not run")}
    return {
        "schema": SCHEMA,
        "name": file.name,
        "description": file.description,
        "design": file.design,
        "varied": file.varied,
        "common": file.common,
        "seeds": file.seeds,
        "rows": file.rows,
        "counts": counts,
        "cells": [_cell(row) for row in rows],
        "panels": make_panels(file, rows),
        "survival": survival_rows(rows),
        "utility_comparison": utility_comparison(rows),
    }


def _readable(file: SweepFile, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row, or one of a failed cell where what the summary and its page read of the report is not to be read."""
    if row["report"] is None:
        return row
    try:
        _check_kinds(_cell(row)["found"])
        sweep_rows({"cells": [_cell(row)]})
        make_panels(file, [row])
        survival_rows([row])
        check_answers(row["report"])
    except ODD as error:
        reason = (
            f"expected {row['directory']}/report.json as it was written, found a changed one "
            f"({type(error).__name__}: {' '.join(str(error).split())}); --resume makes it again"
        )
        return {**row, "status": "failed", "error": reason, "report": None}
    return row


def _check_kinds(found: Mapping[str, Any]) -> None:
    """Raises TypeError where a name is no text, or what pictures are drawn of no number."""
    names = (found["primary"], pick(found, "auroc_interval.method"))
    numbers = (found["auroc"], *(pick(found, f"auroc_interval.{name}") for name in ("low", "high", "level")))
    for values, kind in ((names, str), (numbers, (int, float))):
        odd = [value for value in values if value is not None and not isinstance(value, kind)]
        if odd:
            raise TypeError(f"{shown(odd[0])} is no {'text' if kind is str else 'number'}")


def _cell(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in row if key not in OF_CELLS} | _found(row["report"])


def _found(report: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the sweep's page shows of a cell's report, by the names that it has there."""
    if report is None:
        return {"found": None}
    verdict = judge(report)
    return {
        "found": {
            "config_hash": report.get("config_hash"),
            "primary": pick(report, "statistic.primary"),
            "verdict": {"kind": verdict.kind, "headline": verdict.headline},
            "auroc": pick(report, "detection.auroc"),
            "auroc_reason": pick(report, "detection.auroc_reason"),
            "auroc_interval": pick(report, "detection.auroc_interval"),
            "tpr": pick(report, "detection.tpr"),
            "arms_differ": pick(report, "arms_differ"),
            "arms": {arm: _arm(report, arm) for arm in ARMS},
            "utility": {
                who: {name: pick(report, f"utility.{who}.{name}") for name in UTILITY} for who in ("base", *ARMS)
            },
            "warnings": [str(text) for text in report.get("warnings") or ()],
            "seconds": pick(report, "timings.total"),
        }
    }


def _arm(report: Mapping[str, Any], arm: str) -> dict[str, Any]:
    part = pick(report, f"mechanism.{arm}", {})
    return {
        "trials": pick(report, f"arms.{arm}.trials", []),
        "n": pick(report, f"arms.{arm}.n"),
        "n_invalid": pick(report, f"arms.{arm}.n_invalid"),
        "scores": pick(report, f"arms.{arm}.scores", []),
        "mean_score": part.get("amplification"),
        "mean_score_interval": part.get("amplification_interval"),
        "rm_bias": part.get("rm_bias"),
        "rm_bias_interval": part.get("rm_bias_interval"),
        "transmission_ratio": part.get("transmission_ratio"),
        "transmission_ratio_interval": part.get("transmission_ratio_interval"),
        "transmission_ratio_reason": part.get("reason"),
    }
