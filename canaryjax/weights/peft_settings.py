"""What a PEFT `adapter_config.json` says, and which of it is implemented."""

import math
import re
from pathlib import Path
from typing import Any

from canaryjax.errors import UserError
from canaryjax.weights.stored import read_json

MODULE_NAMES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
# What an entry must be for the arithmetic to be plain LoRA; anything else is refused by name.
_PLAIN: dict[str, tuple] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", None),  # others (pissa, olora, loftq) change the base as well
    "task_type": ("CAUSAL_LM", None),
}
_HARMLESS = frozenset(
    {
        *("base_model_name_or_path", "revision", "inference_mode", "lora_dropout", "peft_version", "auto_mapping"),
        *("runtime_config", "qalora_group_size", "layers_pattern", "megatron_core", "arrow_config"),
    }
)
_READ = ("r", "lora_alpha", "use_rslora", "target_modules")
LARGEST_ALPHA = 1e30  # it and its inverse, divided by a rank, are within float32

Targets = list[str] | str | None  # names or endings of modules, a pattern, or nothing said


def read_settings(file: Path) -> tuple[int, float, Targets]:
    """Rank, scale and target modules of an `adapter_config.json`.

    Raises:
      UserError: An entry is missing, malformed, or asks for something other than plain or rank-stabilised LoRA.
    """
    raw = read_json(file)
    for name, value in raw.items():
        if name in _PLAIN and value not in _PLAIN[name]:
            raise UserError(
                f"expected {name} to be one of {list(_PLAIN[name])} in {file}, found {value!r}: not implemented"
            )
        if name not in _PLAIN and name not in _READ and name not in _HARMLESS and value not in (None, False, {}, []):
            raise UserError(f"expected plain LoRA in {file}, found {name} = {value!r}: not implemented")
    if "peft_type" not in raw:
        raise UserError(f"expected peft_type in {file}, found none; use an adapter saved by PEFT")
    rank, alpha, stabilised = raw.get("r"), raw.get("lora_alpha"), raw.get("use_rslora")
    if type(rank) is not int or not 1 <= rank < 2**31:
        raise UserError(f"expected r to be a positive whole number in {file}, found {rank!r}; correct the file")
    # At 0 the adapter would be loaded and do nothing.
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not usable_alpha(alpha):
        raise UserError(f"expected lora_alpha to be a number other than 0 in {file}, found {alpha!r}; correct the file")
    if stabilised is not None and not isinstance(stabilised, bool):
        raise UserError(f"expected use_rslora to be true or false in {file}, found {stabilised!r}; correct the file")
    return rank, alpha / (math.sqrt(rank) if stabilised else rank), _read_targets(raw.get("target_modules"), file)


def usable_alpha(alpha: float) -> bool:
    """Whether an alpha, or a scale, does something and stays within float32."""
    return 1 / LARGEST_ALPHA < abs(alpha) < LARGEST_ALPHA


def _read_targets(targets: Any, file: Path) -> Targets:
    if targets == "all-linear":
        return [module for module in MODULE_NAMES if module != "lm_head"]  # as PEFT: all but the output layer
    if targets is None:
        return None
    if isinstance(targets, str):
        try:
            re.compile(targets)
        except (re.error, RecursionError, OverflowError) as error:
            raise UserError(
                f"expected target_modules to be a list or a pattern in {file}, found {targets!r} ({error}); correct it"
            ) from error
        return targets
    if not isinstance(targets, list) or not targets or not all(isinstance(target, str) for target in targets):
        raise UserError(f"expected target_modules to be a list of names in {file}, found {targets!r}; correct the file")
    unknown = sorted({target.split(".")[-1] for target in targets} - set(MODULE_NAMES))
    if unknown:
        raise UserError(
            f"expected target_modules among {list(MODULE_NAMES)} in {file}, found {unknown}: not implemented"
        )
    return targets


def alpha_of(scale: float, divisor: float) -> float:
    """An alpha whose quotient is the scale to the last bit, a whole number where it is one."""
    near = scale * divisor
    for alpha in (float(round(near)), near, math.nextafter(near, math.inf), math.nextafter(near, -math.inf)):
        if alpha / divisor == scale:
            return int(alpha) if alpha.is_integer() else alpha
    return near
