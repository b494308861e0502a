"""Numbers of options: out of range they are one line that names the option and the range."""

from collections.abc import Callable
from typing import TypeVar

import typer

from canaryjax.errors import UserError

Number = TypeVar("Number", int, float)


def within(least: Number, most: Number) -> Callable[[typer.CallbackParam, Number], Number]:
    """A callback of an option that takes numbers from `least` to `most`, both included."""

    def check(param: typer.CallbackParam, value: Number) -> Number:
        if not least <= value <= most:  # NaN neither
            raise UserError(
                f"expected {param.opts[0]} from {least} to {most}, found {value}; give a number of that range"
            )
        return value

    return check
