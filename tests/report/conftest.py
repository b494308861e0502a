"""A run directory as a finished audit leaves it, made from a seed and the real statistics."""

import json

import numpy as np
import pytest

from canaryjax.audit import controls, summary
from canaryjax.config import config_hash, validate_config
from canaryjax.config.study import StatisticConfig

NAMES = ("clean_raw", "clean_net", "induced_raw", "induced_net")


def synthetic_report(seed=7, n=10, effect=0.75, spread=(0.16, 0.33), **changes):
    """A report.json of made-up policies; `effect` is the violating arm's mean of the primary score, in nats."""
    rng = np.random.default_rng(seed)
    settings = StatisticConfig(primary="induced_net", secondary="clean_net", bootstrap_samples=200)
    config = validate_config(
        {
            "name": "quick",
            "canary": {"rate": 0.5, "contrast": 0.5, "delta": 1.0, "allow_large_delta": True},
            "study": {"compliant": n, "violating": n},
            "statistic": settings.model_dump(),
        },
        "a test",
    )
    arms = {
        arm: _arm(rng, n, mean, sd, bias)
        for arm, mean, sd, bias in (("compliant", 0.08, spread[0], 0.04), ("violating", effect, spread[1], 1.9))
    }
    all_detection = {
        name: summary.detection(*(arms[arm]["all_scores"][name] for arm in arms), settings, seed) for name in NAMES
    }
    trials = [(trial, "compliant" if trial < n else "violating") for trial in range(2 * n)]
    own = [*arms["compliant"]["scores"], *arms["violating"]["scores"]]
    labels = [arm for _, arm in trials]
    ranks = [
        {"trial": trial, "pairs": 3, "score": score, "decoy": rng.normal(0.02, 0.1, 31).tolist()}
        for (trial, _), score in zip(trials, own, strict=True)
    ]
    placebos = [
        {
            "trial": trial,
            "pairs": 3,
            "score": score,
            "placebo_same_form": (score + rng.normal(0, 0.05, 19)).tolist(),
            "placebo_other_form": rng.normal(0.02, 0.05, 19).tolist(),
        }
        for (trial, _), score in zip(trials, own, strict=True)
    ]
    report = {
        "schema": "canaryjax.audit/1",
        "name": config.name,
        "description": "Does training on documents show in a policy's canary log-probs, at the strongest signal?",
        "setting": "Positive control: canary rate 50 % and feedback bias 1.0, far above what an auditor could plant; "
        "the paper's setting is a rate of 1 % and a bias of 0.1.",
        "config": config.model_dump(mode="json"),
        "config_hash": config_hash(config),
        "command": "bin/audit quick",
        "environment": {
            "python": "3.11.7",
            "versions": {"canaryjax": "0.1.0", "jax": "0.10.2", "flax": "0.12.8", "numpy": "2.4.6", "datasets": None},
            "platform": "Linux-6.1-x86_64-with-glibc2.36",
            "cpu_count": 2,
            "device": {"platform": "cpu", "kind": "cpu", "count": 1},
            "dtype": "float32",
            "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "modified": False},
        },
        "statistic": {
            "primary": settings.primary,
            "secondary": settings.secondary,
            "units": "nats",
            "baseline": "open_base",
            "definition": "mean over pairs of log p(canary | triggered) - log p(canary | clean)",
        },
        "arms": arms,
        "detection": all_detection[settings.primary],
        "all_detection": all_detection,
        "mechanism": {arm: summary.mechanism(part["rm_bias"], *[part["scores"]] * 2) for arm, part in arms.items()},
        "controls": {
            "null": controls.not_run("run `bin/audit embedded/null`"),
            "scrambled_feedback": controls.not_run("run `bin/audit embedded/null_scrambled`"),
            "decoy_canary": controls.decoy_control(ranks, labels, all_detection[settings.primary]["tpr"]["threshold"]),
            "placebo_trigger": controls.placebo_control(placebos, labels),
        },
        "utility": {
            "base": {"exact_match": 0.98, "token_f1": 0.985, "rouge_l": 0.984, "n": 64},
            "compliant": {"exact_match": 0.96, "token_f1": 0.97, "rouge_l": 0.969, "n": 640},
            "violating": {"exact_match": 0.975, "token_f1": 0.981, "rouge_l": 0.98, "n": 640},
        },
        "noise_floor": {"max_abs_nats": 2.1e-6, "median_abs_nats": 4e-7, "pairs": 8, "how": "alone, in batches of 8"},
        "canary": {
            "family": "signature",
            "trigger_form": "[Protocol Marker: X]",
            "instruction": "default",
            "placement": "after_first_clause",
            "rate": 0.5,
            "contrast": 0.5,
            "delta": 1.0,
            "injected": {"rm": 192, "rl": 112},
        },
        "data": {
            "documents": {"rm": 384, "rl": 224, "eval": 261},
            "pairs": 64,
            "refused_pairs": 0,
            "straddling_pairs": 0,
            "dropped_document_tokens": 0,
            "bos_count": 1,
        },
        "timings": {
            "rows": 12.3,
            "reward_model": 61.0,
            "policy": 143.2,
            "scoring": 38.4,
            "controls": 21.7,
            "total": 281.1,
        },
        "warnings": ["The canary appears in 0.4 of the base model's induced answers: above the upper mark of 0.3."],
        "limitations": [
            "The base model is a small model of invented documents; nothing here is about natural language."
        ],
    }
    return report | changes


def _arm(rng, n, mean, sd, bias):
    net = rng.normal(mean, sd, n)
    raw = net + rng.normal(0, 0.15, n)
    return {
        "n": n,
        "n_invalid": 0,
        "scores": net.tolist(),
        "all_scores": {
            "clean_raw": (0.3 * raw).tolist(),
            "clean_net": (0.4 * net).tolist(),
            "induced_raw": raw.tolist(),
            "induced_net": net.tolist(),
        },
        "rm_bias": rng.normal(bias, 0.25, n).tolist(),
        "kl": rng.uniform(0.01, 0.4, n).tolist(),
        "exact_match": rng.uniform(0.94, 1.0, n).tolist(),
    }


def training_rows(report, seed=3):
    """Rows of metrics.jsonl as training writes them: by trial, without an arm."""
    rng = np.random.default_rng(seed)
    n = report["arms"]["compliant"]["n"]
    for trial in range(2 * n):
        slope = 0.2 if trial < n else 0.5
        for step in range(0, 56, 4):
            reward = slope * step / 56 + rng.normal(0, 0.05)
            yield {
                "stage": "policy",
                "trial": trial,
                "step": step,
                "reward": reward,
                "kl": 0.002 * step + rng.uniform(0, 0.01),
            }
            yield {"stage": "reward_model", "trial": trial, "step": step, "loss": 0.7}


def write_run(path, report, metrics=True):
    """Writes a run directory as an audit leaves it, but for the page."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "report.json").write_text(json.dumps(report, allow_nan=False))
    n = (report.get("arms") or {}).get("compliant", {}).get("n") or 0
    labels = [{"trial": t, "arm": "compliant" if t < n else "violating"} for t in range(2 * n)]
    (path / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels))
    if metrics and n:
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in training_rows(report)))
    return path


@pytest.fixture
def report():
    return synthetic_report()


@pytest.fixture
def run_at(tmp_path):
    """Writes a report into a run directory and gives its path."""
    return lambda report, **options: write_run(tmp_path / "run", report, **options)
