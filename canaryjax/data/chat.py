"""Prompts in a model's own chat form."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from canaryjax.data.prompts import PromptParts
from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.errors import UserError

PromptFormat = Literal["plain", "chat"]
_MARK = "\ue000document\ue001"  # private-use characters, so that no document or template holds it


def format_parts(parts: PromptParts, tokenizer: TextTokenizer, prompt_format: PromptFormat = "plain") -> PromptParts:
    """The prompt as it is (`plain`) or as the user's turn of the tokenizer's chat template (`chat`).

    A chat prompt ends where the assistant's turn begins; the answer ``FINAL: ...`` follows directly. A BOS that the
    template writes is not added a second time by `TextTokenizer.encode`.
    Raises UserError when `chat` is asked of a tokenizer without a template, or the template fails.
    """
    if prompt_format == "plain":
        return parts
    if prompt_format != "chat":
        raise UserError(f"prompt_format: expected plain or chat, found {prompt_format!r}; choose one of them")
    rendered = chat_text([{"role": "user", "content": parts.before + _MARK + parts.after}], tokenizer)
    if rendered.count(_MARK) != 1:
        raise UserError(
            "expected a chat template that writes the message once, found otherwise; use prompt_format=plain"
        )
    before, after = rendered.split(_MARK)
    return PromptParts(before, parts.document, after)


def chat_text(messages: Sequence[Mapping[str, str]], tokenizer: TextTokenizer) -> str:
    """Messages, each of a role and a content, in the tokenizer's chat form, up to where the assistant's turn begins.

    Raises UserError where the tokenizer has no template, or the template refuses the messages.
    """
    if tokenizer.chat_template is None:
        raise UserError("prompt_format: expected a tokenizer with a chat template, found none; use prompt_format=plain")
    eos_id = tokenizer.eos_ids[0] if tokenizer.eos_ids else None
    try:
        return _template(tokenizer.chat_template).render(
            messages=list(messages),
            add_generation_prompt=True,
            bos_token=tokenizer.special_text(tokenizer.bos_id),
            eos_token=tokenizer.special_text(eos_id),
            enable_thinking=False,
        )
    except TemplateError as error:
        raise UserError(f"expected a usable chat template, found: {error}; use prompt_format=plain") from error


def plain_text(messages: Sequence[Mapping[str, str]]) -> str:
    """The contents of messages, a blank line between them, for a model without a chat form."""
    return "\n\n".join(message["content"] for message in messages if message["content"])


@lru_cache(maxsize=8)
def _template(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = _raise
    return environment.from_string(source)


def _raise(message: str) -> None:
    raise TemplateError(message)
