"""An endpoint's answer, read without trust: the client checks no types, so each part of it can be of any kind."""

from typing import Any

MOST_TOKENS = 2**31 - 1  # of one call; a larger count is no count


def first_choice(answer: Any) -> Any:
    """The first of its choices, None where there is none.

    Args:
      answer: As the `openai` client gives it.
    """
    choices = getattr(answer, "choices", None)
    return choices[0] if isinstance(choices, (list, tuple)) and choices else None


def read_text(message: Any) -> str | None:
    """The text of a chat's message, "" where it has none; None where what stands in its place is no text.

    Some endpoints answer in parts, of which those of text count: a part of reasoning is no answer. A refusal stands in
    a field of its own at some.
    """
    missing = object()
    content = getattr(message, "content", missing)
    if content is missing:
        return None
    if isinstance(content, list):
        parts = [_text_of(part) for part in content]
        content = None if None in parts else "".join(part for part in parts if part is not None)
        return content
    found = content or getattr(message, "refusal", None) or ""
    return found if isinstance(found, str) else None


def _text_of(part: Any) -> str | None:
    """What a part adds to the text; None where it is none."""
    if not isinstance(part, dict):
        return None
    text = part.get("text") if part.get("type") == "text" else ""
    return text if isinstance(text, str) else None


def read_usage(answer: Any) -> tuple[int | None, int | None]:
    """Tokens read and written; None where the endpoint does not tell."""
    usage = getattr(answer, "usage", None)
    read, written = (_count(getattr(usage, name, None)) for name in ("prompt_tokens", "completion_tokens"))
    return read, written


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None
