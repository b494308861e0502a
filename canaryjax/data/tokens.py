"""Prompt, answer prefix and continuation tokenised as one string, and the continuation found by its characters.

Tokenised apart, a blank or a word would fall into other tokens than the model meets; so the text is whole when it is
cut into tokens, and only then into context and continuation (known faults 32, 50, 51).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from canaryjax.data.prompts import PromptParts
from canaryjax.data.tokenizer import Encoding, TextTokenizer
from canaryjax.errors import UserError

__all__ = [
    "Encoding",
    "JointIds",
    "JointText",
    "TextTokenizer",
    "common_document_budget",
    "encode_joint",
    "encode_joint_batch",
]


@dataclass(frozen=True, eq=False)
class JointIds:
    """A context and its continuation.

    Attributes:
      context_ids, continuation_ids: int32 (s,) and (t,); joined they are the tokens of the whole text, less what was
        dropped of the document.
      straddles: a token covers both the end of the prefix and the start of the continuation; it is then the first of
        `continuation_ids`.
      document_tokens: tokens of the document that were kept.
      dropped_document_tokens, dropped_characters: how much of the document's tail was dropped.
    """

    context_ids: np.ndarray
    continuation_ids: np.ndarray
    straddles: bool
    document_tokens: int
    dropped_document_tokens: int
    dropped_characters: int


@dataclass(frozen=True)
class JointText:
    """What is tokenised together: the prompt's parts, the answer prefix, the continuation, and what must survive.

    `protect` is a text in the document (the trigger, or "") whose loss is refused.
    """

    parts: PromptParts
    prefix: str = ""
    continuation: str = ""
    protect: str = ""

    @property
    def text(self) -> str:
        """The whole text."""
        return self.parts.text + self.prefix + self.continuation


def encode_joint(
    tokenizer: TextTokenizer,
    parts: PromptParts,
    prefix: str,
    continuation: str,
    max_tokens: int | None = None,
    keep_document_tokens: int | None = None,
    *,
    drop_document_tokens: int = 0,
    protect: str = "",
) -> JointIds:
    """Context and continuation ids of one text.

    Use it for scoring (continuation = the string scored), for training prompts (prefix and continuation empty) and for
    reward-model inputs. Nothing but the document's tail is ever dropped.
    Arguments: `max_tokens` of context and continuation together, None for no limit; `keep_document_tokens` at most;
    `drop_document_tokens` at least (from `common_document_budget`); `protect` a text of the document that must survive.
    Raises UserError when the rest does not fit even without the document, or when `protect` would be cut.
    """
    joint = JointText(parts, prefix, continuation, protect)
    encoding = tokenizer.encode(joint.text)
    drop = drop_document_tokens
    first, last = _document_span(encoding, parts)
    if keep_document_tokens is not None:
        drop = max(drop, last - first - keep_document_tokens)
    return _assemble(joint, encoding, max(drop, _needed_drop(joint, encoding, max_tokens)))


def encode_joint_batch(
    tokenizer: TextTokenizer, joints: Sequence[JointText], max_tokens: int | None = None
) -> list[JointIds]:
    """`encode_joint` of texts that share a document's tail: all drop as much of it as the longest needs.

    Raises UserError as `encode_joint` does.
    """
    encodings = tokenizer.encode_batch([joint.text for joint in joints])
    pairs = list(zip(joints, encodings, strict=True))
    drop = max((_needed_drop(joint, encoding, max_tokens) for joint, encoding in pairs), default=0)
    return [_assemble(joint, encoding, drop) for joint, encoding in pairs]


def common_document_budget(tokenizer: TextTokenizer, joints: Sequence[JointText], max_tokens: int | None) -> int:
    """How many tokens of the document's tail all the texts must drop so that the longest fits.

    Give the result to `encode_joint` as `drop_document_tokens`, for both views of a pair and all its variants: the
    trigger then displaces nothing in one view only. Raises UserError when a text does not fit without its document.
    """
    encodings = tokenizer.encode_batch([joint.text for joint in joints])
    return max((_needed_drop(j, e, max_tokens) for j, e in zip(joints, encodings, strict=True)), default=0)


def _document_span(encoding: Encoding, parts: PromptParts) -> tuple[int, int]:
    """[first, last) of the tokens that lie inside the document."""
    start, end = len(parts.before), len(parts.before) + len(parts.document)
    inside = (encoding.offsets[:, 0] >= start) & (encoding.offsets[:, 1] <= end)
    inside &= encoding.offsets[:, 1] > encoding.offsets[:, 0]
    where = np.flatnonzero(inside)
    return (int(where[0]), int(where[-1]) + 1) if where.size else (0, 0)


def _needed_drop(joint: JointText, encoding: Encoding, max_tokens: int | None) -> int:
    if max_tokens is None:
        return 0
    first, last = _document_span(encoding, joint.parts)
    excess = max(0, len(encoding.ids) - max_tokens)
    if excess > last - first:
        raise UserError(
            f"expected query and answer to fit into {max_tokens} tokens, found {len(encoding.ids) - (last - first)} "
            f"without the document: raise the limit or shorten the query"
        )
    return excess


def _assemble(joint: JointText, encoding: Encoding, drop: int) -> JointIds:
    first, last = _document_span(encoding, joint.parts)
    ids, offsets = encoding.ids, encoding.offsets
    cut = max(first, last - max(drop, 0))
    while first < cut < last and offsets[cut, 0] < offsets[cut - 1, 1]:  # never inside a character of several bytes
        cut -= 1
    document_end = len(joint.parts.before) + len(joint.parts.document)
    dropped_characters = document_end - int(offsets[cut, 0]) if cut < last else 0
    _check_protected(joint, document_end - dropped_characters)
    ids, offsets = np.delete(ids, np.s_[cut:last]), np.delete(offsets, np.s_[cut:last], axis=0)
    split, straddles = _locate(offsets, len(joint.text) - len(joint.continuation), bool(joint.continuation))
    return JointIds(ids[:split], ids[split:], straddles, cut - first, last - cut, dropped_characters)


def _check_protected(joint: JointText, kept_until: int) -> None:
    if not joint.protect:
        return
    found = joint.parts.document.find(joint.protect)
    if found < 0:
        raise UserError(f"expected {joint.protect!r} in the document, found none: insert it before encoding")
    if len(joint.parts.before) + found + len(joint.protect) > kept_until:
        raise UserError(
            f"expected room for the document up to its trigger {joint.protect!r}, found that it would be cut: raise "
            f"the token limit or shorten the query"
        )


def _locate(offsets: np.ndarray, join: int, present: bool) -> tuple[int, bool]:
    """(index of the continuation's first token, whether that token begins before the continuation does)."""
    if not present:
        return len(offsets), False
    split = int(np.argmax(offsets[:, 1] > join))
    while split > 0 and offsets[split - 1, 1] > offsets[split, 0]:  # bytes of one character stay together
        split -= 1
    return split, bool(offsets[split, 0] < join)
