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
LONGEST_PATTERN = 1000  # characters; those of PEFT's own users have a few hundred
MOST_REPEATS = 5  # in a row; each can end at every character of a name, and the ways to match multiply
# A pattern's parts: an escape, a class, a group's begin and end, an alternative, a repeat with its kind, a character.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\??|\)|\||(?:[*+?]|\{\d*,?\d*\})[?+]?|.", re.DOTALL)
_REPEAT = re.compile(r"[*+?]|\{\d*,?\d*\}")
LARGEST_ALPHA = 1e30  # it and its inverse, divided by a rank, are within float32

Targets = list[str] | str | None  # names or endings of modules, a pattern, or nothing said


def read_settings(file: Path) -> tuple[int, float, Targets]:
    """Rank, scale and target modules of an `adapter_config.json`.

    Raises:
      UserError: An entry is missing, malformed, or asks for something other than plain or rank-stabilised LoRA.
    """
    raw = read_json(file)
    for name, value in raw.items():
        # Types too: 1 is equal to true and 0 to false, and a layer's number is neither.
        if name in _PLAIN and not any(type(value) is type(plain) and value == plain for plain in _PLAIN[name]):
            raise UserError(
                f"expected {name} to be one of {list(_PLAIN[name])} in {file}, found {value!r:.80}: not implemented"
            )
        unset = value is None or value is False or value in ({}, [])
        if name not in _PLAIN and name not in _READ and name not in _HARMLESS and not unset:
            raise UserError(f"expected plain LoRA in {file}, found {name!r:.80} = {value!r:.80}: not implemented")
    if "peft_type" not in raw:
        raise UserError(f"expected peft_type in {file}, found none; use an adapter saved by PEFT")
    rank, alpha, stabilised = raw.get("r"), raw.get("lora_alpha"), raw.get("use_rslora")
    if type(rank) is not int or not 1 <= rank < 2**31:
        raise UserError(f"expected r to be a positive whole number in {file}, found {rank!r:.80}; correct the file")
    # At 0 the adapter would be loaded and do nothing.
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not usable_alpha(alpha):
        raise UserError(
            f"expected lora_alpha to be a number other than 0 in {file}, found {alpha!r:.80}; correct the file"
        )
    if stabilised is not None and not isinstance(stabilised, bool):
        raise UserError(
            f"expected use_rslora to be true or false in {file}, found {stabilised!r:.80}; correct the file"
        )
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
        _check_pattern(targets, file)
        return targets
    if not isinstance(targets, list) or not targets or not all(isinstance(target, str) for target in targets):
        raise UserError(
            f"expected target_modules to be a list of names in {file}, found {targets!r:.80}; correct the file"
        )
    unknown = sorted({target.split(".")[-1] for target in targets} - set(MODULE_NAMES))
    if unknown:
        raise UserError(
            f"expected target_modules among {list(MODULE_NAMES)} in {file}, found {unknown!r:.80}: not implemented"
        )
    return targets


def _check_pattern(pattern: str, file: Path) -> None:
    """Refuses what is no pattern, and one that could take for ever to match: the file may be a stranger's."""
    if len(pattern) > LONGEST_PATTERN:  # before it is compiled
        raise UserError(
            f"expected a target_modules pattern of at most {LONGEST_PATTERN} characters in {file}, found "
            f"{len(pattern)}; give a list of names"
        )
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UserError(
            f"expected target_modules to be a list or a pattern in {file}, found {pattern!r:.80} ({error!s:.80}); "
            "correct it"
        ) from error
    if _runs_away(pattern):
        raise UserError(
            f"expected a target_modules pattern in {file} that is soon matched: without blanks, without a repeated "
            f"group that holds a repeat or a choice, and with at most {MOST_REPEATS} repeats in a row; found "
            f"{pattern!r:.80}; give a list of names"
        )


def _runs_away(pattern: str) -> bool:
    """Whether a pattern is of a kind that a backtracking matcher can take exponentially long for.

    `(a+)+` and `(a|a)+` do, on any name that does not match; `a*a*a*...` does with the number of its repeats.
    """
    if re.search(r"[\s#]", pattern):  # no module's name has them; in a verbose pattern they would mean nothing
        return True
    # Of each open group: repeats so far in this alternative, the most in one before, repeats and choices in all.
    levels, inside = [[0, 0, 0]], 0  # inside: of the group that has just been closed
    for token in _TOKEN.findall(pattern):
        before, inside = inside, 0
        here = levels[-1]
        if token[0] == "(":
            levels.append([0, 0, 0])
        elif token == ")":
            repeats, most, inside = levels.pop()
            levels[-1][0] += max(repeats, most)
            levels[-1][2] += inside
        elif token == "|":
            here[:] = 0, max(here[:2]), here[2] + 1
        elif _REPEAT.match(token):
            if before and token[0] != "?":
                return True
            here[0] += 1
            here[2] += 1
    return max(levels[0][:2]) > MOST_REPEATS


def alpha_of(scale: float, divisor: float) -> float:
    """An alpha whose quotient is the scale to the last bit, a whole number where it is one."""
    near = scale * divisor
    for alpha in (float(round(near)), near, math.nextafter(near, math.inf), math.nextafter(near, -math.inf)):
        if alpha / divisor == scale:
            return int(alpha) if alpha.is_integer() else alpha
    return near
