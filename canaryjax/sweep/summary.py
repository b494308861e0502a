"""The cells' reports to the values of `sweep.json`."""

from collections.abc import Mapping, Sequence
from typing import Any

from canaryjax.report.text import pick
from canaryjax.report.verdict import judge
from canaryjax.sweep.file import SweepFile
from canaryjax.sweep.panels import make_panels
from canaryjax.sweep.survival import survival_rows
from canaryjax.sweep.utility import utility_comparison

SCHEMA = "canaryjax.sweep/1"
ARMS = ("compliant", "violating")
UTILITY = ("exact_match", "token_f1", "rouge_l")
OF_CELLS = ("report", "config")  # what each run directory has itself


def summarise(file: SweepFile, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that `sweep.json` says.

    Args:
      file: The sweep.
      rows: One a cell, in order; its `report` is what `report.json` holds, None where there is none; its `config` is
        the cell's, plain.

    Returns:
      Plain values; what a cell has not, or not yet, is None, with a reason where its report gives one.
    """
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
        "cells": [{key: row[key] for key in row if key not in OF_CELLS} | _found(row["report"]) for row in rows],
        "panels": make_panels(file, rows),
        "survival": survival_rows(rows),
        "utility_comparison": utility_comparison(rows),
    }


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
