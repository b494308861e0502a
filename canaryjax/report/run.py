"""A run directory as its report needs it: the report, the training log, and which policy is of which arm."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from canaryjax.report.schema import read_schema
from canaryjax.runlog import read_jsonl

SCHEMA = "canaryjax.audit/1"
ARMS = ("compliant", "violating")
# What training logs call the same thing in different stages; the first that a row has is taken.
SERIES = {"reward": ("reward", "reward_mean", "mean_reward"), "kl": ("kl", "kl_mean")}
POLICY_STAGES = ("policy", "grpo", "ppo")


@dataclass(frozen=True)
class Run:
    """What a report is made of: `report` as in report.json, rows of metrics.jsonl, arm by trial, and the folder."""

    path: Path
    report: dict[str, Any]
    metrics: list[dict[str, Any]]
    arm_of: dict[Any, str]


def read_run(path: Path) -> Run:
    """Reads a finished run.

    Raises:
      UserError: No `report.json`, a malformed file, or another schema.
    """
    report = read_schema(path / "report.json", SCHEMA, "give a run of `audit`")
    trials = read_jsonl(path / "trials.jsonl")
    arm_of = {row.get("trial"): row["arm"] for row in trials if row.get("arm") in ARMS}
    return Run(path, report, read_jsonl(path / "metrics.jsonl"), arm_of)


def curves(run: Run, name: str) -> dict[str, dict[Any, tuple[np.ndarray, np.ndarray]]]:
    """Training curves by arm and trial: steps and values of `reward` or `kl` during policy training."""
    points: dict[str, dict[Any, list[tuple[float, float]]]] = {arm: defaultdict(list) for arm in ARMS}
    for row in run.metrics:
        trial, step = row.get("trial", row.get("policy")), row.get("step") or 0
        if not isinstance(trial, (int, str)) or not isinstance(step, (int, float)):  # not a row of ours
            continue
        arm = row.get("arm") or run.arm_of.get(trial)
        value = next((row[key] for key in SERIES[name] if isinstance(row.get(key), (int, float))), None)
        if arm not in ARMS or value is None or row.get("stage") not in POLICY_STAGES:
            continue
        points[arm][trial].append((float(step), float(value)))
    return {arm: {trial: _columns(sorted(steps)) for trial, steps in of_arm.items()} for arm, of_arm in points.items()}


def _columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.asarray(pairs, dtype=np.float64)
    return table[:, 0], table[:, 1]


def scores(report: dict[str, Any], arm: str, name: str | None = None) -> np.ndarray:
    """Scores of an arm's policies that are numbers, as they are judged: of the primary, or of the named score."""
    part = (report.get("arms") or {}).get(arm) or {}
    values = part.get("scores") if name is None else (part.get("all_scores") or {}).get(name)
    found = np.asarray([value for value in values or () if value is not None], dtype=np.float64)
    statistic = report.get("statistic") or {}
    # As `audit.summary.judged`: raw scores have no centre to be far from.
    distance = statistic.get("two_sided") and str(name or statistic.get("primary")).endswith("net")
    return np.abs(found) if distance else found
