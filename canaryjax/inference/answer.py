"""An `Ask`, run by a `Service`, as the JSON that OpenAI's clients expect."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.inference.ask import Ask, Prompt, Refusal
from canaryjax.inference.records import Completion
from canaryjax.inference.service import Draw, Service
from canaryjax.keys import stream_id

MOST_LOGITS = 2**28  # floats of a text's logits, 1 GiB: log-probs of a longer one are refused
UNFINISHED = "\ufffd"  # ends what a tokenizer writes of half a character


@dataclass(frozen=True, repr=False)
class _Tokens:
    """Tokens of an answer: what each adds to the text, its log-prob (None where nothing comes before), its rivals."""

    pieces: list[str]
    logps: list[float | None]
    rivals: list[list[tuple[str, float]]]


def answer(service: Service, ask: Ask, chat: bool) -> dict[str, Any]:
    """The body of the answer.

    Raises Refusal for a text too long for log-probs, Overloaded, and UserError where the model gives no numbers.
    """
    seed = secrets.randbits(62) if ask.seed is None else ask.seed
    pairs = [(prompt, stream_id(seed, i, j)) for i, prompt in enumerate(ask.prompts) for j in range(ask.n)]
    drawn: Sequence[Completion | None] = [None] * len(pairs)
    if ask.most:
        drawn = service.draw([Draw(p.ids, own, ask.most, ask.temperature, ask.top_p) for p, own in pairs])
    choices = [
        {"index": index} | _choice(service, ask, prompt, completion, chat)
        for index, ((prompt, _), completion) in enumerate(zip(pairs, drawn, strict=True))
    ]
    read = sum(len(prompt.ids) for prompt in ask.prompts)
    written = sum(len(completion.ids) for completion in drawn if completion is not None)
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": service.model.name,
        "choices": choices,
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _choice(service: Service, ask: Ask, prompt: Prompt, completion: Completion | None, chat: bool) -> dict[str, Any]:
    text, finish = "", "length"
    if completion is not None:
        text, finish = completion.text or "", "stop" if completion.finished else "length"
        found = [at for at in (text.find(stop) for stop in ask.stop) if at >= 0]
        if found:
            text, finish = text[: min(found)], "stop"
    tokens = None if ask.ranked is None else _tokens(service, ask, prompt, completion, len(text))
    if chat:
        message = {"role": "assistant", "content": text, "refusal": None}
        content = None if tokens is None else {"content": _chat_logprobs(tokens), "refusal": None}
        return {"message": message, "finish_reason": finish, "logprobs": content}
    before = ""
    if ask.echo:
        before = service.tokenizer.decode(prompt.ids) if prompt.text is None else prompt.text
    logprobs = None if tokens is None else _text_logprobs(tokens)
    return {"text": before + text, "finish_reason": finish, "logprobs": logprobs}


def _tokens(service: Service, ask: Ask, prompt: Prompt, completion: Completion | None, kept: int) -> _Tokens:
    """Log-probs of the answer's tokens, and of the prompt's where they are echoed, all from one pass over both."""
    own = np.zeros(0, np.int32) if completion is None else completion.ids[: len(completion.ids) - completion.finished]
    pieces = grown(service.tokenizer, own)
    while pieces and sum(map(len, pieces)) > kept:
        pieces.pop()  # of a stop, or behind it
    ids = np.concatenate([prompt.ids, own[: len(pieces)]])
    if len(ids) * service.model.config.vocab_size > MOST_LOGITS:
        raise Refusal(400, "expected a shorter text where log-probs are asked for; shorten it", param="logprobs")
    logps, ranked, of_ranked = service.rank(ids)
    if not np.isfinite(logps).all():
        raise Refusal(500, "the model gives log-probs that are not numbers; its weights are damaged")
    first = 0 if ask.echo else len(prompt.ids)
    pieces = (_spelled(service.tokenizer, prompt) if ask.echo else []) + pieces
    decode = service.tokenizer.decode
    rows = zip(ranked[:, : ask.ranked], of_ranked[:, : ask.ranked], strict=True)
    rivals = [[(decode([i]), float(logp)) for i, logp in zip(*row, strict=True)] for row in rows]
    return _Tokens(pieces, [None, *map(float, logps)][first:], [[], *rivals][first:])


def grown(tokenizer: TextTokenizer, ids: np.ndarray) -> list[str]:
    """What each token adds to the text; half a character is added by the token that completes it."""
    pieces, written = [], 0
    for end in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[:end])
        whole = len(text) if end == len(ids) or not text.endswith(UNFINISHED) else written
        pieces.append(text[written:whole])
        written = max(written, whole)
    return pieces


def _spelled(tokenizer: TextTokenizer, prompt: Prompt) -> list[str]:
    """The prompt cut at its tokens' ends: joined, the pieces are the prompt."""
    if prompt.text is None:
        return grown(tokenizer, prompt.ids)
    ends = np.maximum.accumulate(tokenizer.encode(prompt.text).offsets[:, 1])
    ends[-1] = len(prompt.text)
    return [prompt.text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _text_logprobs(tokens: _Tokens) -> dict[str, Any]:
    ends = np.cumsum([0, *map(len, tokens.pieces)])
    return {
        "tokens": tokens.pieces,
        "token_logprobs": tokens.logps,
        "top_logprobs": [
            None if logp is None else dict(reversed(rivals))  # of two tokens written alike the likelier one stays
            for logp, rivals in zip(tokens.logps, tokens.rivals, strict=True)
        ],
        "text_offset": [int(end) for end in ends[:-1]],
    }


def _chat_logprobs(tokens: _Tokens) -> list[dict[str, Any]]:
    def entry(piece, logp):
        return {"token": piece, "logprob": logp, "bytes": list(piece.encode("utf-8", "replace"))}

    return [
        entry(piece, logp) | {"top_logprobs": [entry(*rival) for rival in rivals]}
        for piece, logp, rivals in zip(tokens.pieces, tokens.logps, tokens.rivals, strict=True)
    ]
