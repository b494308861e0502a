"""Log-probs of a text, read from a completions endpoint that was asked to echo it, and the proof that they are its own.

Endpoints differ here more than anywhere else: some ignore `echo` and score what they made up, some give a bound where a
token is not among their most likely ones, some leave out the start. What cannot be proved to belong to the whole text
is refused with a reason; the reason holds nothing of the text.
"""

import re
from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from canaryjax.detector.answered import first_choice, read_usage

KNOWN_TEXT = "The library in the old town opens at nine and closes at six; on Sunday it stays closed."
LOWEST = -1000.0  # nats: -9999 and the like stand for "not among the first", a bound and no value
HIGHEST = 1e-3  # a log-prob above 0 by more than low precision does
_SPECIAL = re.compile(r"<[^<>]*>|\[[A-Z]+\]")  # how a beginning-of-sequence token is written
_BYTES = re.compile(r"bytes:(\\x[0-9a-f]{2})+")  # how parts of a character are


class EchoFault(ValueError):
    """Log-probs that are not those of the text; says why."""


def read_echo(answer: Any, text: str, most: int) -> np.ndarray:
    """Log-probs of the text's tokens after the first, float64 nats.

    Args:
      answer: Of `/completions` with `echo` and `logprobs`, as the `openai` client gives it.
      text: The prompt.
      most: Tokens that it might add, 0 or 1; used where it does not say how many it did add.

    Raises:
      EchoFault: They do not cover the text, or hold something else than log-probs.
    """
    choice = first_choice(answer)
    if choice is None:
        raise EchoFault("the endpoint gives no completion")
    logprobs = getattr(choice, "logprobs", None)
    tokens: Any = getattr(logprobs, "tokens", None)
    logps: Any = getattr(logprobs, "token_logprobs", None)
    if not _listed(tokens, (str,)) or not _listed(logps, (int, float, NoneType)) or len(tokens) != len(logps):
        raise EchoFault("the endpoint gives no log-probs")
    own = getattr(choice, "text", None)
    if not isinstance(own, str) or not _letters(own).startswith(_letters(text)):
        raise EchoFault("the endpoint ignores echo: its answer does not begin with the prompt")
    written = read_usage(answer)[1]
    written = most if written is None else written
    n = _prompt_tokens(tokens, text, written)
    if n is None:
        raise EchoFault("the endpoint's tokens do not cover the prompt")
    return _checked(logps[1:n])


def _listed(values: Any, kinds: tuple[type, ...]) -> bool:
    """Whether it is a list of some values, each of one of the kinds."""
    return isinstance(values, (list, tuple)) and len(values) > 0 and all(type(value) in kinds for value in values)


def _letters(text: str) -> str:
    """What every tokenizer writes alike: blanks, accents and halves of characters are left out."""
    return "".join(character for character in text if character.isascii() and character.isalnum())


def _prompt_tokens(tokens: Sequence[str], text: str, written: int) -> int | None:
    """How many tokens are the prompt's; None where they are not its tokens."""
    start = 1 if _SPECIAL.fullmatch(tokens[0]) and not text.startswith(tokens[0]) else 0
    places = (len(tokens) - written, len(tokens))  # some count a token that ends the text and do not list it
    for n in places:
        if "".join(tokens[start:n]).strip() == text.strip():
            return n
    for n in places:
        if _letters("".join(token for token in tokens[start:n] if not _BYTES.fullmatch(token))) == _letters(text):
            return n
    return None


def _checked(logps: Sequence[float | None]) -> np.ndarray:
    if len(logps) < 2:
        raise EchoFault("the endpoint gives too few log-probs")
    if any(logp is None for logp in logps):
        raise EchoFault("the endpoint leaves log-probs out inside the prompt")
    try:
        values = np.array(logps, np.float64)
    except OverflowError:  # a whole number that no float holds
        values = np.array([-np.inf])
    if not np.isfinite(values).all() or values.min() <= LOWEST:
        raise EchoFault("the endpoint gives bounds in place of log-probs of tokens that are not among its most likely")
    if values.max() > HIGHEST:
        raise EchoFault("the endpoint gives log-probs above 0")
    if (values == values[0]).all():
        raise EchoFault("the endpoint gives one log-prob for all tokens")
    return np.minimum(values, 0.0)
