"""Bodies of OpenAI's two completion calls -> one checked `Ask`; an error never repeats what the caller wrote."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from canaryjax.data.chat import chat_text, plain_text
from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.errors import UserError
from canaryjax.inference.batch import MOST_RANKED
from canaryjax.inference.request import check_ids

LONGEST = 8192  # tokens of prompt and answer together
MOST_CHOICES = 128
CHAT_TOKENS, TEXT_TOKENS = 256, 16  # longest answer where the caller names none; the second is OpenAI's
# What clients send and this server has no use for, with the values that change nothing; others are refused.
IDLE: Mapping[str, tuple] = {
    "stream": (False,), "frequency_penalty": (0,), "presence_penalty": (0,), "best_of": (1,), "logit_bias": ({},),
    "suffix": ("",), "response_format": ({"type": "text"},), "store": (False,), "tools": ([],),
}  # fmt: skip


class Refusal(Exception):
    """An answer that is an error, in OpenAI's form; the message holds nothing that the caller wrote."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param


@dataclass(frozen=True, repr=False)
class Prompt:
    """A prompt's text (None where ids were given) and its ids."""

    text: str | None
    ids: np.ndarray


@dataclass(frozen=True, repr=False)
class Ask:
    """What is asked for.

    Attributes:
      prompts: Each is answered `n` times.
      most: Longest answer, tokens; 0 for none.
      temperature, top_p: The law, in hundredths: each value is a program to compile.
      n: Answers a prompt.
      seed: None is by chance.
      stop: Texts that end an answer.
      ranked: Most likely tokens that are named beside each token's log-prob; None for no log-probs.
      echo: The prompt is part of the answer.
    """

    prompts: tuple[Prompt, ...]
    most: int
    temperature: float
    top_p: float
    n: int
    seed: int | None
    stop: tuple[str, ...]
    ranked: int | None
    echo: bool


class _Fields:
    """The fields of a body, taken one by one; what is left in the end is unknown."""

    def __init__(self, body: Any) -> None:
        if not isinstance(body, dict):
            raise Refusal(400, "expected a JSON object; send one")
        self._left = {key: value for key, value in body.items() if value is not None}

    def take(self, name: str, default: Any, kinds: type | tuple[type, ...], least: float = 0, most: float = 0) -> Any:
        """One field; numbers are checked against a range."""
        value = self._left.pop(name, default)
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if value is not default and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise Refusal(400, f"expected {name} of type {names}; correct it", param=name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not least <= value <= most:
            raise Refusal(400, f"expected {name} from {least:g} to {most:g}; correct it", param=name)
        return value

    def end(self) -> None:
        """Refuses what is left, unless it changes nothing."""
        self._left.pop("user", None)
        for name, value in self._left.items():
            if name not in IDLE:
                raise Refusal(400, "expected known fields, found another; see the server's help", "unknown_field")
            if value not in IDLE[name]:
                raise Refusal(400, f"{name} is not supported here; leave it out", "unsupported_value", name)


def read_ask(body: Any, tokenizer: TextTokenizer, vocab_size: int, name: str, chat: bool) -> Ask:
    """What the body of a chat completion, or of a plain one, asks for.

    Raises Refusal 404 for another model's name, 400 for anything else that is wrong.
    """
    fields = _Fields(body)
    if fields.take("model", "", str) != name:
        raise Refusal(404, "no such model is served here; see /v1/models", "model_not_found", "model")
    most = fields.take("max_tokens", None, int, 0, LONGEST)
    if chat:
        most = fields.take("max_completion_tokens", most, int, 0, LONGEST)
        wanted = fields.take("logprobs", False, bool)
        ranked = fields.take("top_logprobs", 0, int, 0, MOST_RANKED) if wanted else None
        echo, prompts = False, [_conversation(fields.take("messages", None, list), tokenizer)]
    else:
        ranked = fields.take("logprobs", None, int, 0, MOST_RANKED)
        echo, given = fields.take("echo", False, bool), fields.take("prompt", None, (str, list))
        prompts = _prompts(given)
    most = (CHAT_TOKENS if chat else TEXT_TOKENS) if most is None else most
    if most == 0 and not echo:
        raise Refusal(400, "expected max_tokens of at least 1, or echo; raise it", param="max_tokens")
    ask = Ask(
        prompts=tuple(_encoded(prompt, tokenizer, vocab_size, most) for prompt in prompts),
        most=most,
        temperature=round(float(fields.take("temperature", 1.0, (int, float), 0, 2)), 2),
        top_p=round(float(fields.take("top_p", 1.0, (int, float), 0.01, 1)), 2),
        n=fields.take("n", 1, int, 1, MOST_CHOICES),
        seed=fields.take("seed", None, int, -(2**63), 2**64),
        stop=_stop(fields.take("stop", (), (str, list))),
        ranked=ranked,
        echo=echo,
    )
    fields.end()
    return ask


def _stop(given: Any) -> tuple[str, ...]:
    stop = (given,) if isinstance(given, str) else tuple(given)
    if len(stop) > 4 or not all(isinstance(text, str) and text for text in stop):
        raise Refusal(400, "expected stop as at most four texts; correct it", param="stop")
    return stop


def _conversation(messages: list | None, tokenizer: TextTokenizer) -> str:
    if not messages:
        raise Refusal(400, "expected messages, found none; send at least one", param="messages")
    texts = []
    for message in messages:
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if isinstance(content, list):  # the form in parts, of which text is the one kind that a text model reads
            parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
            texts_of_parts = [part for part in parts if isinstance(part, str)]
            content = "".join(texts_of_parts) if len(texts_of_parts) == len(content) else None
        if not isinstance(role, str) or not isinstance(content, str):
            raise Refusal(400, "expected messages of a role and a text; correct them", param="messages")
        texts.append({"role": role, "content": content})
    if tokenizer.chat_template is None:
        return plain_text(texts)
    try:
        return chat_text(texts, tokenizer)
    except UserError:
        pass  # its words may be the caller's
    raise Refusal(400, "expected messages that the model's chat template takes; change their roles", param="messages")


def _prompts(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [given]
    if not given:
        raise Refusal(400, "expected a prompt, found none; send a text, or a list of them", param="prompt")
    return [given] if isinstance(given[0], int) else given


def _encoded(prompt: Any, tokenizer: TextTokenizer, vocab_size: int, most: int) -> Prompt:
    text = prompt if isinstance(prompt, str) else None
    try:
        found = prompt if text is None else tokenizer.encode(text).ids
        ids = check_ids(found, vocab_size, "the prompt")
    except (UserError, OverflowError):
        ids = None  # its words may be the caller's
    if ids is None:
        raise Refusal(400, "expected a prompt of text, or ids, that the model's vocabulary holds; correct it")
    if len(ids) + most > LONGEST:
        message = f"expected prompt and answer of at most {LONGEST} tokens, found {len(ids)} and {most}; shorten them"
        raise Refusal(400, message, "context_length_exceeded")
    return Prompt(text, ids)
