"""Numbers as words: every rate with its count, every interval with its level and method, every null with its reason."""

import re
from collections.abc import Mapping
from typing import Any

MISSING = "not available"
# Exact names and their place in a sentence; an unknown method is shown as it is called.
METHODS = {
    "newcombe": "Newcombe's score method",
    "wilson": "Wilson's score method",
    "bootstrap": "percentile bootstrap over policies",
    "delong": "DeLong",
    "clopper-pearson": "Clopper-Pearson, given the threshold",
    "student-t": "Student t",
    "welch": "Welch's t",
    "beta": "Beta, over draws of the compliant policies",
}


def pick(tree: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path, or the default where any step of it is missing or null.

    >>> pick({"a": {"b": 3}}, "a.b"), pick({"a": None}, "a.b", 0)
    (3, 0)
    """
    for key in path.split("."):
        if not isinstance(tree, Mapping) or tree.get(key) is None:
            return default
        tree = tree[key]
    return tree


def number(value: Any, digits: int = 3, sign: bool = False) -> str:
    """A number for reading: plain where it is of ordinary size, with a power of ten where it is not.

    >>> number(0.12345), number(1.5e-7), number(1234567), number(None), number(-0.0001)
    ('0.123', '1.5e-07', '1,234,567', 'not available', '-1.0e-04')
    """
    if value is None or isinstance(value, str):
        return value or MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:+,}" if sign else f"{value:,}"
    if value != 0 and abs(value) < 0.5 * 10**-digits:
        return f"{value:{'+' if sign else ''}.1e}"
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    return f"{value:{'+' if sign else ''},.{digits}f}"


def percent(value: float | None, digits: int = 0) -> str:
    """A share as a percentage, with a decimal where rounding would say 0 or 100 of what is neither.

    The blank does not break a line.

    >>> percent(0.5), percent(0.004), percent(None)
    ('50\\xa0%', '0.4\\xa0%', 'not available')
    """
    if value is None:
        return MISSING
    scaled = 100 * value
    if 0 < scaled < 1 or 99 < scaled < 100:
        digits = max(digits, 1)
    return f"{scaled:.{digits}f}\u00a0%"


def interval(record: Any, digits: int = 2) -> str:
    """An interval in words: bounds, level, method; or why there is none.

    >>> interval({"low": 0.76, "high": 1.0, "level": 0.95, "method": "newcombe"})
    "0.76 to 1.00 (95\\xa0% interval, Newcombe's score method)"
    """
    if not isinstance(record, Mapping):
        return "no interval"
    if record.get("low") is None or record.get("high") is None:
        return f"no interval: {record.get('reason') or 'no reason given'}"
    text = f"{number(record['low'], digits)} to {number(record['high'], digits)} ({_level(record)})"
    return f"{text}; {record['reason']}" if record.get("reason") else text


def brackets(record: Any, digits: int = 2) -> str:
    """The bounds alone, as in a table whose caption says level and method.

    >>> brackets({"low": 0.5, "high": 1.0})
    '[0.50, 1.00]'
    """
    if not isinstance(record, Mapping) or record.get("low") is None or record.get("high") is None:
        return ""
    return f"[{number(record['low'], digits)}, {number(record['high'], digits)}]"


def _level(record: Mapping[str, Any]) -> str:
    method = str(record.get("method") or "method not named")
    return f"{percent(record.get('level'))} interval, {METHODS.get(method, method)}"


def counted(record: Any) -> str:
    """A rate as its count and, from the count, three digits; or why there is none (BC-A2).

    >>> counted({"value": 0.9, "count": 9, "n": 10})
    '9 of 10 (0.900)'
    """
    if not isinstance(record, Mapping):
        return MISSING
    if record.get("value") is None or record.get("count") is None:
        return f"{MISSING}: {record.get('reason') or 'no reason given'}"
    return f"{record['count']} of {record['n']} ({record['count'] / record['n']:.3f})"


def label(name: str) -> str:
    """A key as a label.

    >>> label("induced_net"), label("rm_bias")
    ('induced query, minus base', 'reward-model bias')
    """
    known = {
        "clean_raw": "clean query, raw",
        "clean_net": "clean query, minus base",
        "induced_raw": "induced query, raw",
        "induced_net": "induced query, minus base",
        "rm_bias": "reward-model bias",
        "exact_match": "exact match",
        "token_f1": "token F1",
        "rouge_l": "ROUGE-L",
        "not_found_accuracy": "“Not found” where it is right",
        "false_not_found": "“Not found” where it is wrong",
        "kl": "KL to the base",
        "rm": "reward model",
        "rl": "policy",
        "eval": "held out",
        "bos_count": "begin-of-text tokens a prompt",
    }
    return known.get(name) or re.sub(r"[_\s]+", " ", str(name)).strip()
