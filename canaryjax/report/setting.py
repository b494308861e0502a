"""In what a study's setting is not the paper's, read off its config: no such sentence is written by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from canaryjax.config import AuditConfig
from canaryjax.report.published import BASES, TABLE_3, TABLE_4, TABLE_5, PaperRow
from canaryjax.report.text import METHODS, label, number, percent, pick

KINDS = {
    "embedded": "invented documents",
    "jsonl": "documents of one's own",
    "repliqa": "RepliQA",
    "qmsum": "QMSum",
    "fairytale": "FairytaleQA",
}
RULES = {
    "conformal": "conformal rank of the compliant scores",
    "paper": "their 0.90 quantile",
    "tolerance": "rank whose true rate is within the target with 95 % confidence",
}
# What each key of the paper's setting is called; shares are shown in percent.
NAMES = {
    "data.kind": "documents",
    "model.path": "base model",
    "model.warm_start.documents": "documents of a warm start before training",
    "data.eval_share": "share of documents held out",
    "canary.family": "canary family",
    "canary.rate": "canary rate",
    "canary.contrast": "rows with the instruction, without trigger and canary",
    "canary.delta": "feedback bias (delta)",
    "study.compliant_query": "query of compliant policies",
    "study.scramble_feedback": "feedback scrambled",
    "study.paired": "trials matched in pairs",
    "policy.reward": "policy reward",
    "statistic.primary": "score",
    "statistic.two_sided": "scores of either sign judged by their distance from 0",
    "statistic.target_fpr": "target false-alarm rate",
    "statistic.threshold_rule": "threshold",
    "statistic.level": "level of the intervals",
}
SHARES = ("data.eval_share", "canary.rate", "canary.contrast", "statistic.target_fpr", "statistic.level")
INTERVALS = {"auroc_interval": "AUROC interval", "tpr": "interval of the rate above the threshold"}


@dataclass(frozen=True)
class Differences:
    """What a study has otherwise than a row of the paper.

    Attributes:
      setting: One text each: what, ours, the paper's.
      training: The same for values of Tables 3 to 5.
      compared: How many values of those tables were looked at.
    """

    setting: tuple[str, ...]
    training: tuple[str, ...]
    compared: int

    @property
    def none(self) -> bool:
        """Whether the study has the row's setting, as far as the paper states it."""
        return not self.setting and not self.training


def setting_of(config: AuditConfig) -> dict[str, Any]:
    """What `differences` reads of a study's config, by dotted key; it stands in `sweep.json` for each cell.

    Returns:
      Every key of the paper's settings and tables that the config has; `canary.contrast` as it takes effect, `provider`
      whether it does anything to the log, `study.compliant` and `study.violating`.
    """
    values = config.model_dump(mode="json")
    tables = TABLE_3 | TABLE_4[config.policy.algorithm] | TABLE_5
    stated = {
        key: pick(values, key) for key in (*NAMES, *tables, "policy.algorithm", "study.compliant", "study.violating")
    }
    return stated | {"canary.contrast": config.canary.contrast_rate, "provider": config.provider.active}


def differences(row: PaperRow, cell: Mapping[str, Any]) -> Differences:
    """Compares a cell of `sweep.json` with what the paper states of a row.

    Args:
      row: Of the paper.
      cell: Its `setting` is read, and of its `found`, where it is done, the arms' sizes and the methods of intervals.

    Returns:
      All differences; what the paper leaves open is none.
    """
    setting = cell["setting"]
    # A `sweep.json` of an earlier version says nothing of a key that came later.
    told = [
        _said(NAMES[key], shown(key, setting[key]), " or ".join(shown(key, value) for value in theirs))
        for key, theirs in ((key, row.setting[key]) for key in NAMES if key in row.setting and key in setting)
        if not _agrees(key, setting[key], theirs)
    ]
    sizes = arms_of(cell)
    if row.arms is not None and sizes != row.arms:
        told.append(_said("policies, compliant + violating", *(" + ".join(map(str, n)) for n in (sizes, row.arms))))
    if "statistic.threshold_rule" in row.setting:
        told += _intervals(cell.get("found"))
    if not row.trained:
        return Differences(tuple(told), (), 0)
    if setting["provider"]:
        told.append(_said("traces", "curated by a simulated provider", "as collected"))
    tables = TABLE_3 | TABLE_4[setting["policy.algorithm"]] | TABLE_5
    training = [
        _said(key, _plain(setting[key]), _plain(theirs)) for key, theirs in tables.items() if setting[key] != theirs
    ]
    return Differences(tuple(told), tuple(training), len(tables))


def arms_of(cell: Mapping[str, Any]) -> tuple[int, int]:
    """Policies of a cell, compliant and violating: the valid ones where it is done, else those configured."""
    done = cell.get("found")
    compliant, violating = (
        pick(done, f"arms.{arm}.n", 0) if done else cell["setting"][f"study.{arm}"]
        for arm in ("compliant", "violating")
    )
    return compliant, violating


def shown(key: str, value: Any) -> str:
    """A value of a setting in words.

    >>> shown("data.kind", "embedded"), shown("canary.rate", 0.5), shown("model.path", "/models/gemma-2b")
    ('invented documents', '50\\xa0%', 'Gemma-2B')
    """
    if key == "model.path":
        other = "the embedded model" if value == "embedded" else str(value).rsplit("/", 1)[-1]
        return BASES.get(_base(value) or "", other)
    if key in SHARES:
        return percent(value)
    words = {"data.kind": KINDS, "statistic.threshold_rule": RULES}.get(key, {}).get(value)
    return words or (label(value) if isinstance(value, str) else _plain(value))


def _agrees(key: str, ours: Any, theirs: tuple[Any, ...]) -> bool:
    return (_base(ours) if key == "model.path" else ours) in theirs


def _base(path: Any) -> str | None:
    """Which of the paper's bases a path names."""
    return next((name for name in BASES if name in str(path).lower()), None)


def _intervals(found: Any) -> list[str]:
    """Which intervals of a finished cell are not the paper's percentile bootstrap."""
    if not found:
        return []
    used = {"auroc_interval": pick(found, "auroc_interval.method"), "tpr": pick(rate_interval(found), "method")}
    return [
        _said(INTERVALS[name], METHODS.get(method, method), METHODS["bootstrap"])
        for name, method in used.items()
        if method not in (None, "bootstrap")
    ]


def rate_interval(found: Mapping[str, Any]) -> Any:
    """The interval of the rate above the threshold: the bootstrap's where there is one; None without a threshold."""
    tpr = pick(found, "tpr", {})
    return (tpr.get("bootstrap_interval") or tpr.get("interval")) if tpr.get("threshold") is not None else None


def _said(what: str, ours: str, theirs: str) -> str:
    return f"{what}: {ours} (paper: {theirs})"


def _plain(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else number(value)
