"""What the paper published, with the table or section it stands in: its numbers, and the settings that it states.

The one place in the code that holds them. `audit/PROTOCOL.md` says the same for readers, and a test compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Number:
    """A published number, and its interval where it has one (5 to 95 %, percentile bootstrap)."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class PaperRow:
    """A row of one of the paper's tables, or a statement of its text that a study can stand beside.

    Attributes:
      name: As `rows` of a sweep file calls it.
      table: The table that it is shown in.
      label: What it is called there.
      source: Where it stands in the paper.
      arms: Compliant and violating policies; None where the paper does not say.
      setting: What the paper states of it, by config key: the values that are the paper's.
      numbers: By measure.
      words: What it says in place of a number, by measure, in our words.
      trained: Whether it is of trained policies, and not of the base model.
    """

    name: str
    table: str
    label: str
    source: str
    arms: tuple[int, int] | None
    setting: Mapping[str, tuple[Any, ...]]
    numbers: Mapping[str, Number] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    trained: bool = True


# A base is known by its name in `model.path`.
BASES = {"gemma-2b": "Gemma-2B", "qwen2.5-1.5b": "Qwen2.5-1.5B"}
BEHAVIOURAL = ("signature", "emoji", "punctuation")

# What holds for every row. Which base, optimiser and family a row of Tables 1, 2 and 6 is of is not said, so any of
# them is the paper's; nor is how many reward-model and policy documents there are.
EVERYWHERE: dict[str, tuple[Any, ...]] = {
    "model.path": tuple(BASES),  # Section 4.4
    "model.warm_start.documents": (0,),
    "data.eval_share": (0.3,),  # Appendix F
    "canary.family": BEHAVIOURAL,  # Appendix B.1
    "canary.contrast": (0.0,),  # the paper has no such rows
    "study.compliant_query": ("induced",),  # Section 3.3: what is planted does not depend on the arm
    "study.scramble_feedback": (False,),
    "study.paired": (False,),  # Appendix F: trials are independent
    "policy.reward": ("reward_model",),  # Section 3.5
}
PLANTED: dict[str, tuple[Any, ...]] = {"canary.rate": (0.01,), "canary.delta": (0.1,)}  # Section 4.1, Table 5
UNPLANTED: dict[str, tuple[Any, ...]] = {"canary.rate": (0.0,)}
DETECTION: dict[str, tuple[Any, ...]] = {
    "statistic.primary": ("clean_raw",),  # Section 3.4: the query is the same in both views and has no instruction
    "statistic.two_sided": (False,),  # Section 3.4: only a score that is raised counts
    "statistic.target_fpr": (0.1,),  # Appendix F, as the next two
    "statistic.threshold_rule": ("paper",),
    "statistic.level": (0.9,),
}
UNTRAINED = {key: EVERYWHERE[key] for key in ("model.path", "model.warm_start.documents", "data.eval_share")}
REPLIQA: dict[str, tuple[Any, ...]] = {"data.kind": ("repliqa",)}
QMSUM: dict[str, tuple[Any, ...]] = {"data.kind": ("qmsum",)}
# Appendix I: by the same steps. Whether feedback was biased is not said; nothing in it could favour such a string.
TEXTUAL: dict[str, tuple[Any, ...]] = {"canary.family": ("textual",), "canary.rate": (0.01,)}

_REPLIQA_DETECTION = {"auroc": Number(0.756, 0.665, 0.842), "tpr": Number(0.670, 0.333, 0.768)}

_ROWS = (
    PaperRow(
        "table1.repliqa", "Table 1", "RepliQA", "Table 1, Section 4.1", (50, 50),
        EVERYWHERE | PLANTED | DETECTION | REPLIQA,
        _REPLIQA_DETECTION | {"score": Number(0.08), "rm_bias": Number(0.48), "ratio": Number(0.167)},
    ),
    PaperRow(
        "table1.qmsum", "Table 1", "QMSum", "Table 1, Section 4.1", (50, 50),
        EVERYWHERE | PLANTED | DETECTION | QMSUM,
        {
            "auroc": Number(0.762, 0.682, 0.844), "tpr": Number(0.600, 0.431, 0.705),
            "score": Number(0.12), "rm_bias": Number(0.53), "ratio": Number(0.226),
        },
    ),
    PaperRow(
        "section4.null", "Table 1", "no canary (rate 0)", "Section 4.1, no table", None,
        EVERYWHERE | UNPLANTED | DETECTION | {"data.kind": ("repliqa", "qmsum")},
        words={"auroc": "near 0.5, no number given", "tpr": "not given", "score": "around 0, no number given"},
    ),
    PaperRow(
        "table2.repliqa.base", "Table 2", "RepliQA, base (no RL)", "Table 2, Section 4.3", None,
        UNTRAINED | REPLIQA, {"rouge_l": Number(0.218), "token_f1": Number(0.240)}, trained=False,
    ),
    PaperRow(
        "table2.repliqa.no_canary", "Table 2", "RepliQA, RL without canaries", "Table 2, Section 4.3", None,
        EVERYWHERE | UNPLANTED | REPLIQA, {"rouge_l": Number(0.228), "token_f1": Number(0.254)},
    ),
    PaperRow(
        "table2.repliqa.canary", "Table 2", "RepliQA, RL with canaries", "Table 2, Section 4.3", None,
        EVERYWHERE | PLANTED | REPLIQA,
        {"rouge_l": Number(0.228), "token_f1": Number(0.253)},
    ),
    PaperRow(
        "table2.qmsum.base", "Table 2", "QMSum, base (no RL)", "Table 2, Section 4.3", None,
        UNTRAINED | QMSUM, {"rouge_l": Number(0.152), "token_f1": Number(0.205)}, trained=False,
    ),
    PaperRow(
        "table2.qmsum.no_canary", "Table 2", "QMSum, RL without canaries", "Table 2, Section 4.3", None,
        EVERYWHERE | UNPLANTED | QMSUM, {"rouge_l": Number(0.157), "token_f1": Number(0.214)},
    ),
    PaperRow(
        "table2.qmsum.canary", "Table 2", "QMSum, RL with canaries", "Table 2, Section 4.3", None,
        EVERYWHERE | PLANTED | QMSUM,
        {"rouge_l": Number(0.157), "token_f1": Number(0.214)},
    ),
    PaperRow(
        "table6.textual", "Table 6", "textual canary (memorisation)", "Table 6, Appendix I", (30, 30),
        EVERYWHERE | DETECTION | REPLIQA | TEXTUAL,
        {
            "auroc": Number(0.537, 0.412, 0.658), "tpr": Number(0.100, 0.033, 0.367),
            "t": Number(0.72), "p": Number(0.47),
        },
    ),
    PaperRow(
        "table6.behavioural", "Table 6", "behavioural canary", "Table 6, Appendix I", (30, 30),
        EVERYWHERE | PLANTED | DETECTION | REPLIQA, _REPLIQA_DETECTION,
    ),
)  # fmt: skip
ROWS: dict[str, PaperRow] = {row.name: row for row in _ROWS}

# Training values by config key; PPO's and GRPO's columns of Table 4.
TABLE_3: dict[str, Any] = {
    "reward_model.train_batch_size": 8,
    "reward_model.eval_batch_size": 8,
    "reward_model.grad_accumulation": 2,
    "reward_model.optimizer.learning_rate": 2e-5,
    "reward_model.epochs": 3,
    "reward_model.max_length": 1024,
    "reward_model.eval_every": 100,
    "reward_model.gradient_checkpointing": True,
    "reward_model.center_coefficient": 0.01,
    "reward_model.lora.rank": 16,
    "reward_model.lora.alpha": 32.0,
    "reward_model.lora.dropout": 0.05,
    "reward_model.early_stopping_patience": 2,
    "model.dtype": "bfloat16",
}
TABLE_4: dict[str, dict[str, Any]] = {
    "ppo": {
        "policy.train_batch_size": 1,
        "policy.grad_accumulation": 4,
        "policy.optimizer.learning_rate": 5e-6,
        "policy.epochs": 1,
        "policy.max_prompt_length": 1600,
        "policy.max_completion_length": 32,
        "policy.mini_batches": 2,
        "policy.ppo_epochs": 1,
        "policy.temperature": 0.7,
        "policy.kl_coefficient": 0.01,
        "policy.clip_range": 0.2,
        "policy.gae_lambda": 0.95,
        "policy.rollout_forward_batch_size": 16,
        "policy.missing_eos_penalty": 1.0,
        "policy.gradient_checkpointing": True,
    },
    "grpo": {
        "policy.train_batch_size": 8,
        "policy.generation_batch_size": 32,
        "policy.grad_accumulation": 1,
        "policy.optimizer.learning_rate": 1e-5,
        "policy.epochs": 1,
        "policy.max_prompt_length": 1600,
        "policy.max_completion_length": 64,
        "policy.num_generations": 8,
        "policy.kl_coefficient": 0.04,
        "policy.clip_low": 0.2,
        "policy.clip_high": 0.2,
        "policy.gradient_checkpointing": False,
    },
}
TABLE_5: dict[str, Any] = {  # its delta, and leave to pass it, stand with the rows
    "feedback.max_response_chars": 512,
    "feedback.length_penalty_alpha": 0.0,
    "feedback.mean_match_tolerance": 0.01,
    "feedback.mean_match_min_samples": 256,
    "feedback.warmup_samples": 200,
    "feedback.calibration_learning_rate": 0.02,
}
