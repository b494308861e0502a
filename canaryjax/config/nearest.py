"""What an unknown config key was meant to be: a name of another trainer, a right name elsewhere, or a misspelt one."""

import difflib

from pydantic import BaseModel

from canaryjax.config.fields import section_in
from canaryjax.config.policy import ALGORITHMS
from canaryjax.config.schema import AuditConfig

# Names that TRL, PEFT and Transformers have for what keys mean here, which are given by the ends of their paths.
ALIASES: dict[str, tuple[str, ...]] = {
    "adap_kl_ctrl": ("adaptive_kl",),
    "beta": ("kl_coefficient",),
    "center_rewards_coefficient": ("center_coefficient",),
    "cliprange": ("clip_range", "clip_low"),
    "cliprange_value": ("value_clip_range",),
    "delta": ("dual_clip",),
    "epsilon": ("clip_low", "clip_range"),
    "epsilon_high": ("clip_high", "clip_range"),
    "gradient_accumulation_steps": ("grad_accumulation",),
    "init_kl_coef": ("kl_coefficient",),
    "kl_coef": ("kl_coefficient",),
    "kl_estimator": ("kl",),
    "lam": ("gae_lambda",),
    "local_rollout_forward_batch_size": ("rollout_forward_batch_size",),
    "logging_steps": ("output.log_every",),
    "lora_alpha": ("lora.alpha",),
    "lora_dropout": ("lora.dropout",),
    "lora_r": ("lora.rank",),
    "lora_target_modules": ("lora.targets",),
    "loss_type": ("loss_normalisation",),
    "lr": ("learning_rate",),
    "lr_scheduler_type": ("optimizer.schedule",),
    "max_new_tokens": ("max_completion_length",),
    "model_name_or_path": ("model.path",),
    "num_iterations": ("updates_per_rollout", "ppo_epochs"),
    "num_mini_batches": ("mini_batches",),
    "num_ppo_epochs": ("ppo_epochs", "updates_per_rollout"),
    "num_train_epochs": ("epochs",),
    "per_device_eval_batch_size": ("eval_batch_size",),
    "per_device_train_batch_size": ("train_batch_size",),
    "r": ("lora.rank",),
    "response_length": ("max_completion_length",),
    "save_steps": ("study.checkpoint_every",),
    "scale_rewards": ("scale_advantages",),
    "target_modules": ("lora.targets",),
    "torch_dtype": ("model.dtype",),
    "use_rslora": ("lora.rank_stabilised",),
    "vf_coef": ("value_coefficient",),
    "warmup_ratio": ("optimizer.warmup_fraction",),
}
MOST_OFFERED = 3
# Of difflib's ratio: below, names share letters by chance; between sections the chance is larger.
NEAR, NEAR_ELSEWHERE = 0.6, 0.75


def paths_of(algorithm: str) -> list[str]:
    """Every key with its sections, and the sections, where policies are trained by `algorithm`; policy keys first."""
    found = [path for path in _paths(AuditConfig, algorithm, "") if "." in path or path != "policy"]
    return sorted(found, key=lambda path: (not path.startswith("policy."), not path.startswith("reward_model.")))


def hint(keys: list[str], algorithm: str) -> str:
    """The end of the message about an unknown key: what it may have been meant to be.

    >>> hint(["policy", "beta"], "grpo")
    "; did you mean 'policy.kl_coefficient'?"
    >>> hint(["vf_coef"], "grpo")
    " with policy.algorithm=grpo: 'policy.value_coefficient' is one of ppo's; leave it out"
    """
    if meant := _meant(keys, algorithm):
        return f"; did you mean {' or '.join(repr(path) for path in meant)}?"
    for other in ALGORITHMS:
        if meant := _meant(keys, other):
            one = "it" if meant[0] == ".".join(keys) else repr(meant[0])
            return f" with policy.algorithm={algorithm}: {one} is one of {other}'s; leave it out"
    if near := _near(keys, algorithm):
        return f"; did you mean {near!r}?"
    return "; `canaryjax keys` lists them"


def _meant(keys: list[str], algorithm: str) -> list[str]:
    """Keys of the same name or of the meaning that other trainers give it, those of the same section if any are."""
    paths, section = paths_of(algorithm), ".".join(keys[:-1])
    within = [path for path in paths if path.startswith(f"{section}.")] if section else paths
    for pool in (within, paths):
        for ends in ((keys[-1],), ALIASES.get(keys[-1], ())):
            for end in ends:
                if found := [path for path in pool if f".{path}".endswith(f".{end}")]:
                    return found[:MOST_OFFERED]
    return []


def _near(keys: list[str], algorithm: str) -> str | None:
    paths, section = paths_of(algorithm), "".join(f"{key}." for key in keys[:-1])
    beside = {path.removeprefix(section): path for path in (*paths, "policy") if path.startswith(section)}
    names = [name for name in beside if "." not in name]
    if near := difflib.get_close_matches(keys[-1], names, n=1, cutoff=NEAR):
        return beside[near[0]]
    last: dict[str, str] = {}
    for path in paths:
        last.setdefault(path.rsplit(".", 1)[-1], path)
    near = difflib.get_close_matches(keys[-1], list(last), n=1, cutoff=NEAR_ELSEWHERE)
    return last[near[0]] if near else None


def _paths(section: type[BaseModel], algorithm: str, prefix: str) -> list[str]:
    found = []
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        if f"{prefix}{name}" == "policy":
            inner = ALGORITHMS.get(algorithm, ALGORITHMS["grpo"])
        found += [f"{prefix}{name}", *(_paths(inner, algorithm, f"{prefix}{name}.") if inner else [])]
    return found
