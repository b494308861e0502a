"""The tables of a report, as rows of text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canaryjax.data.statistics import statistics_line
from canaryjax.report.decoys import decoy_words, placebo_words
from canaryjax.report.drift import drift_words
from canaryjax.report.run import ARMS
from canaryjax.report.text import METHODS, MISSING, brackets, counted, interval, label, number, percent, pick
from canaryjax.report.textual import is_textual, memory_words, score_names

COUNTS = ("n", "n_invalid")
CONTROLS = {
    "null": "null: do the arms agree where nothing was planted?",
    "scrambled_feedback": "scrambled feedback: is it the feedback that matters?",
    "decoy_canary": "decoy canaries: is it this canary?",
    "placebo_trigger": "placebo triggers: is it this trigger?",
    "drift_matched": "matched drift: do the arms differ at equal drift?",
}


@dataclass(frozen=True)
class Table:
    """Rows of text; `kind` `pairs` is name and value, `grid` a head and columns of numbers."""

    rows: Sequence[tuple[str, ...]]
    head: tuple[str, ...] = ()
    caption: str = ""
    kind: str = "grid"
    numeric: bool = True


def _pairs(rows: Sequence[tuple[str, ...]], caption: str = "") -> Table:
    return Table(rows, caption=caption, kind="pairs", numeric=False)


def detection(report: Mapping[str, Any]) -> Table:
    """AUROC, TPR, threshold, false positives of the primary score."""
    rate = pick(report, "detection.tpr", {})
    rank = f"rank {number(rate.get('rank'), 0)} of {rate.get('n0')} compliant scores" if rate.get("rank") else ""
    drawn = rate.get("threshold") is not None  # without one the row above says why, once
    missed = pick(report, "detection.remainder", {})
    reason = missed.get("reason") or missed.get("warning") or ""
    threshold = number(rate.get("threshold")) + (" nats" if rate.get("threshold") is not None else "")
    rows = [
        ("AUROC", f"{number(pick(report, 'detection.auroc'))}; {interval(pick(report, 'detection.auroc_interval'))}"),
        (f"violating above threshold, target {percent(rate.get('target_fpr'))} false alarms", counted(rate)),
        *([("interval of that share", interval(rate["interval"]))] if drawn else []),
        *(
            [("the same, threshold drawn anew", interval(rate["bootstrap_interval"]))]
            if rate.get("bootstrap_interval")
            else []
        ),
        *([("threshold", f"{threshold}, {rate.get('rule') or 'no'} rule; {rank}".rstrip("; "))] if drawn else []),
        *([("true false-alarm rate", interval(rate.get("fpr_range")))] if drawn else []),
        *(
            [("AUROC of the missed", f"{number(missed.get('value'))}{f' ({reason})' if reason else ''}")]
            if drawn
            else []
        ),
    ]
    return _pairs(rows, "The primary score. The unit is the policy.")


def four_scores(report: Mapping[str, Any]) -> Table:
    """AUROC and TPR of each of the scores that there are."""
    rows, level, methods = [], None, set()
    for name in score_names(report):
        part = pick(report, f"all_detection.{name}", {})
        roles = [role for role in ("primary", "secondary") if pick(report, f"statistic.{role}") == name]
        shown = f"{label(name)}{f' ({roles[0]})' if roles else ''}"
        bounds = part.get("auroc_interval") or {}
        level = bounds.get("level", level)
        methods.add(METHODS.get(str(bounds.get("method")), bounds.get("method")))
        found = f"{number(part.get('auroc'))} {brackets(bounds)}".strip()
        drawn = pick(part, "tpr.threshold") is not None  # the reason is the same for all four and is said above
        rows.append((shown, found, counted(part["tpr"]) if drawn else MISSING, number(pick(part, "tpr.threshold"))))
    named = ", ".join(sorted(method for method in methods if method))
    caption = (
        f"Intervals: {percent(level)}, {named or 'no method'}. Only the primary, fixed beforehand, bears the verdict."
    )
    return Table(rows, ("score", "AUROC", "above threshold", "threshold (nats)"), caption)


def memory(report: Mapping[str, Any]) -> Table | None:
    """Whether a textual canary became more probable where it stands; None for other canaries."""
    return _pairs(*memory_words(report)) if is_textual(report) else None


def ppv(report: Mapping[str, Any]) -> Table | None:
    """Positive predictive value by prevalence."""
    found, at = pick(report, "detection.ppv", []), pick(report, "detection.ppv_at_fpr")
    if at is None:  # no threshold, which is said where there would be one
        return None
    rows = [(percent(item.get("prevalence"), 0), percent(item.get("value"), 1)) for item in found]
    caption = (
        "If this share of the audited pipelines trained on documents, this share of the alarms would be right, at a "
        f"false alarm rate of {percent(at, 1)}."
    )
    return Table(rows, ("share that violates", "alarms that are right"), caption) if rows else None


def controls(report: Mapping[str, Any]) -> Table:
    """What each control asked and answered."""
    rows = [(text, _control(name, pick(report, f"controls.{name}", {}), report)) for name, text in CONTROLS.items()]
    return _pairs(rows)


def _control(name: str, found: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    if not found or found.get("status") == "not run":
        return f"not run: {found.get('reason') or 'no reason was recorded'}"
    if "passed" in found:
        outcome = {True: "passed", False: "FAILED", None: f"undecided: {found.get('reason')}"}[found["passed"]]
        p_value, alpha = number(found.get("p_value")), number(found.get("alpha"), 2)
        return f"{outcome}; {found.get('test') or 'test not named'}, p = {p_value}, passes above {alpha}"
    if name == "decoy_canary":
        return decoy_words(found)
    if name == "placebo_trigger":
        return placebo_words(found)
    if name == "drift_matched":
        return drift_words(found, report)
    return "; ".join(
        f"{label(key)}: {number(value)}" for key, value in found.items() if not isinstance(value, (list, dict))
    )


def mechanism(report: Mapping[str, Any]) -> Table:
    """Reward-model bias, score and their ratio by arm."""
    parts = [pick(report, f"mechanism.{arm}", {}) for arm in ARMS]

    def line(name: str, key: str) -> tuple[str, ...]:
        cells = [f"{number(part.get(key))} {brackets(part.get(f'{key}_interval'))}".strip() for part in parts]
        return (name, *cells)

    rows = [
        line("reward-model bias (reward units)", "rm_bias"),
        line("score (nats)", "amplification"),
        line("score a token of the canary (nats)", "amplification_per_token"),
        ("spread of scores (sd, nats)", *(number(part.get("amplification_sd")) for part in parts)),
        line("score per unit of bias", "transmission_ratio"),
        ("policies", *(number(part.get("n")) for part in parts)),
    ]
    reasons = [f"{arm}: {part['reason']}" for arm, part in zip(ARMS, parts, strict=True) if part.get("reason")]
    caption = (
        "Means over policies; brackets are 95 % intervals, Student t and for the ratio Fieller's. The ratio depends on "
        "the reward's unit."
    )
    if is_textual(report):
        caption = (
            "Means over policies; brackets are 95 % intervals, Student t. Reward-model bias is the reward of a "
            "document's reference answer with the string in the document minus without it."
        )
    return Table(rows, ("", *ARMS), " ".join([caption, *_effects(report), *(f"{reason}." for reason in reasons)]))


def _effects(report: Mapping[str, Any]) -> list[str]:
    """How far the arms lie apart in standard deviations, which compares numbers of different units."""
    texts = []
    for name, what in (("score", "scores"), ("rm_bias", "reward-model biases")):
        found = pick(report, f"effects.{name}", {})
        if found.get("value") is not None:
            bounds = brackets(found.get("interval")) or f"no interval: {found.get('reason')}"
            texts.append(f"{what} {number(found['value'], 2, sign=True)} {bounds}")
    if not texts:
        return []
    return [
        "Violating over compliant, in pooled standard deviations (Hedges' g; 95 % by the noncentral t law, as if both "
        f"arms were equally spread): {'; '.join(texts)}."
    ]


def leaves(tree: Mapping[str, Any], caption: str = "") -> Table:
    """Every leaf of a small tree as name and value."""
    rows: list[tuple[str, str]] = []

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            name = f"{prefix}{label(key)}"
            if isinstance(value, Mapping):
                walk(value, f"{name}: ")
            elif isinstance(value, (list, tuple)):
                rows.append((name, ", ".join(number(item) for item in value) or "none"))
            else:
                rows.append((name, f"{value:g}" if isinstance(value, float) else number(value)))

    walk(tree, "")
    return _pairs(rows, caption)


def data(report: Mapping[str, Any]) -> Table:
    """What the policies were trained and scored on; counts a policy and counts over all policies kept apart."""
    found, policies = pick(report, "data", {}), sum(pick(report, f"arms.{arm}.{n}", 0) for arm in ARMS for n in COUNTS)
    documents = dict(pick(found, "documents", {}))
    over = f", over all {policies} policies"
    rows = [("loaded", statistics_line(found["dataset"]))] if found.get("dataset") else []
    rows.append(("documents used", number(documents.pop("total", None))))
    rows += [(f"documents a policy, {label(name)}", number(count)) for name, count in documents.items()]
    totals = {
        "pairs": "held-out pairs scored",
        "invalid_pairs": "pairs without finite log-probs",
        "refused_pairs": "pairs refused",
        "straddling_pairs": "pairs whose canary joins the text before it in a token",
        "dropped_document_tokens": "document tokens cut off",
        "prompts_left_out": "policy prompts that filled no step",
    }
    rows += [(text + over, number(found[name])) for name, text in totals.items() if name in found]
    return _pairs([*rows, (label("bos_count"), number(found.get("bos_count")))])


def environment(report: Mapping[str, Any]) -> Table:
    """Versions, device, seed and hashes."""
    found = pick(report, "environment", {})
    versions = ", ".join(f"{name} {version}" for name, version in pick(found, "versions", {}).items() if version)
    device, commit = pick(found, "device", {}), pick(found, "git", {})
    modified = " with uncommitted changes" if commit.get("modified") else ""
    seed = pick(report, "config.study.seed")
    rows = [
        ("config hash", str(report.get("config_hash") or MISSING)),
        ("seed", MISSING if seed is None else str(seed)),
        ("commit", f"{commit['commit']}{modified}" if commit.get("commit") else "not run from a checkout"),
        ("Python and packages", f"Python {found.get('python') or MISSING}; {versions}"),
        (
            "device",
            f"{device.get('kind') or MISSING} ({number(device.get('count'))}), {number(found.get('cpu_count'))} cores",
        ),
        ("platform, dtype", f"{found.get('platform') or MISSING}, {found.get('dtype') or MISSING}"),
    ]
    return _pairs(rows, "Bit-identical results need the same machine, versions, thread count and chunk size.")


def timings(report: Mapping[str, Any]) -> Table:
    """Seconds by stage, and each stage's share."""
    found = {name: value for name, value in (report.get("timings") or {}).items() if isinstance(value, (int, float))}
    parts = {name: value for name, value in found.items() if not name.startswith("total")}
    total = sum(parts.values())
    rows = [(label(n), number(float(v), 1), percent(v / total if total else None)) for n, v in parts.items()]
    rows += [(label(n), number(float(v), 1), "") for n, v in found.items() if n not in parts]
    return Table(rows or [("not recorded", "", "")], ("stage", "seconds", "share"))
