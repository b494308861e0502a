"""A user's turn and the assistant's, tokenised as one text and cut where the second begins."""

from dataclasses import dataclass

import numpy as np

from canaryjax.data.chat import PromptFormat, format_parts
from canaryjax.data.prompts import PromptParts
from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.errors import UserError


@dataclass(frozen=True, eq=False)
class Turn:
    """What a model reads of one exchange.

    Attributes:
      context: int32 `[s]`, the prompt up to where the answer begins, BOS as the tokenizer asks.
      ids: int32 `[t]`, the answer without the end of the turn.
      offsets: int32 `[t, 2]`, the characters `[start, end)` of the answer that each of its tokens covers.
    """

    context: np.ndarray
    ids: np.ndarray
    offsets: np.ndarray


def encode_turn(tokenizer: TextTokenizer, prompt: str, answer: str, form: PromptFormat) -> Turn:
    """Tokenises one exchange.

    Args:
      tokenizer: The model's.
      prompt: The user's words.
      answer: The assistant's whole turn.
      form: plain: the prompt and a line break stand before the answer. chat: the model's own template.

    Raises:
      UserError: A token covers both the end of the prompt and the beginning of the answer, so that its log-prob would
        be of neither; or text that the tokenizer cannot write.
    """
    plain = form == "plain"
    parts = format_parts(PromptParts(f"{prompt}\n" if plain else prompt, "", ""), tokenizer, form)
    before = parts.text
    encoding = tokenizer.encode(before + answer)
    offsets = encoding.offsets - len(before)
    inside = (offsets[:, 1] > 0).argmax() if answer else len(offsets)
    if not answer or offsets[inside, 0] < 0:
        raise UserError(
            f"expected an answer that begins with a token of its own, found {answer[:20]!r} after {before[-20:]!r}; "
            "begin it with other characters, or take the other prompt_format"
        )
    return Turn(encoding.ids[:inside], encoding.ids[inside:], offsets[inside:])
