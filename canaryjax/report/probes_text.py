"""A probe audit's numbers and texts as its tables and figures show them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from matplotlib.font_manager import findfont, get_font

from canaryjax.report.style import STYLE

NOT_KNOWN = "-"
# How a reader is told what was done to a cell's models.
KINDS = {
    "baseline": "baseline",
    "sft": "tuned",
    "noise": "random update",
    "reexposed": "tuned, canaries among its rows",
}
LONGEST_TEXT = 200  # characters of a target or an output; report.json holds all
LONGEST_NAME = 24  # characters of a name in a figure: a longer one would leave the axes no room


def signed(value: Any, digits: int = 4) -> str:
    """A change with its sign; one too small for its digits is written in powers of ten, one of exactly 0 as 0.

    >>> signed(0.01334), signed(-0.0000123), signed(0.0), signed(None)
    ('+0.0133', '-1.2e-05', '0', '-')
    """
    if not isinstance(value, (int, float)):
        return NOT_KNOWN
    if not value:
        return "0"
    return f"{value:+.1e}" if abs(value) < 0.5 * 10**-digits else f"{value:+.{digits}f}"


def plain(value: Any, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else NOT_KNOWN


def interval(bounds: Any) -> str:
    """`[low, high]`, or a dash where it is undefined."""
    if not isinstance(bounds, Mapping) or bounds.get("low") is None or bounds.get("high") is None:
        return NOT_KNOWN
    return f"[{signed(bounds['low'])}, {signed(bounds['high'])}]"


def between(bounds: Any) -> str:
    """The bounds of a share, or a dash where they are undefined.

    >>> between({"low": 0.45728, "high": 0.69936})
    '[0.46, 0.70]'
    """
    if not isinstance(bounds, Mapping) or bounds.get("low") is None or bounds.get("high") is None:
        return NOT_KNOWN
    return f"[{bounds['low']:.2f}, {bounds['high']:.2f}]"


def share(value: Any) -> str:
    """A share of a whole that may be above 1 or negative."""
    return f"{round(value, 2) + 0.0:.0%}" if isinstance(value, (int, float)) else NOT_KNOWN


def signs(values: list[float]) -> str:
    """How many seeds changed in which direction.

    >>> signs([0.1, 0.2, 0.3]), signs([0.1, -0.2, 0.0]), signs([])
    ('3 of 3 above 0', '1 above, 1 below 0', '-')
    """
    above, below = sum(value > 0 for value in values), sum(value < 0 for value in values)
    if not values:
        return NOT_KNOWN
    for count, side in ((above, "above"), (below, "below")):
        if count == len(values):
            return f"{count} of {count} {side} 0"
    return f"{above} above, {below} below 0"


def visible(text: str) -> str:
    r"""A text of a model: what would not be seen is written as its escape, and a long one is cut.

    >>> visible("a\x1b[2J\u202eb\n")
    'a\\x1b[2J\\u202eb\\n'
    """
    cut = text[:LONGEST_TEXT]
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)
    return shown if cut == text else f"{shown}… ({len(text):,} characters)"


def in_figure(name: str) -> str:
    r"""A name for a figure: short, both its ends in it, no formula, and no letter that its font lacks.

    >>> in_figure("a$b$c"), in_figure("x" * 30), in_figure("\ud800"), in_figure("é\u8c03")
    ('a\\$b\\$c', 'xxxxxxxxxxx…xxxxxxxxxxxx', '\\ud800', 'é\\u8c03')
    """
    shown = "".join(one if _drawn(one) else one.encode("unicode_escape").decode() for one in visible(name))
    short = shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME // 2 - 1]}…{shown[-LONGEST_NAME // 2 :]}"
    return short.replace("$", r"\$")  # a dollar sign would begin a formula


@cache
def _drawn(character: str) -> bool:
    """Whether the figures' font has a character; it draws a box for one that it lacks."""
    return get_font(findfont(STYLE["font.sans-serif"][0])).get_char_index(ord(character)) != 0
