"""Prompts and continuations as the caller gave them -> checked ids: JAX would clamp a wrong id without a word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from canaryjax.data.prompts import PromptParts
from canaryjax.data.tokens import JointText, encode_joint_batch
from canaryjax.errors import UserError
from canaryjax.weights.checkpoint import LoadedModel

Ids = Sequence[int] | np.ndarray


@dataclass(frozen=True, eq=False)
class Pair:
    """One context and one continuation, as ids.

    Attributes:
      prompt: Index of the prompt it belongs to.
      context, continuation: int32 arrays, neither empty.
      text: The continuation's text where it is known.
      straddles: See `TokenScores`.
    """

    prompt: int
    context: np.ndarray
    continuation: np.ndarray
    text: str | None
    straddles: bool


def check_ids(ids: Any, vocab_size: int, what: str) -> np.ndarray:
    """int32 array of the ids; raises UserError naming the first that is no id of the model, or when there is none."""
    if len(ids) == 0:
        raise UserError(f"expected {what} of at least one token, found none; give it some text or ids")
    array = np.asarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(f"expected {what} to be a flat list of token ids, found {_shown(ids)}; pass integers")
    wrong = np.flatnonzero((array < 0) | (array >= vocab_size))
    if wrong.size:
        raise UserError(
            f"expected token ids in [0, {vocab_size}) in {what}, found {array[wrong[0]]} at index {wrong[0]}: "
            f"the ids come from another vocabulary"
        )
    return array.astype(np.int32)


def encode_prompts(model: LoadedModel, prompts: Sequence[str] | Sequence[Ids]) -> list[np.ndarray]:
    """Ids of each prompt, given as texts or as ids."""
    if not _texts(prompts, "prompts"):
        return [check_ids(ids, model.config.vocab_size, f"prompt {i}") for i, ids in enumerate(prompts)]
    encoded = _tokenizer(model).encode_batch(prompts)  # type: ignore[arg-type]
    return [check_ids(found.ids, model.config.vocab_size, f"prompt {i}") for i, found in enumerate(encoded)]


def is_one(continuation: Any) -> bool:
    """Whether a prompt's entry is one continuation (a text, a list of ids) rather than a list of them."""
    if isinstance(continuation, str):
        return True
    return len(continuation) > 0 and isinstance(continuation[0], int | np.integer)


def encode_pairs(model: LoadedModel, prompts: Sequence[Any], continuations: Sequence[Any]) -> list[Pair]:
    """Every (prompt, continuation) in order; texts are tokenised as one string and then cut.

    Raises UserError for lists of different length, an empty prompt or continuation, a text without a tokenizer, an id
    outside the vocabulary.
    """
    if len(prompts) != len(continuations):
        raise UserError(
            f"expected one entry of continuations for each prompt, found {len(continuations)} for {len(prompts)}; "
            f"make the lists match"
        )
    flat = []
    for index, entry in enumerate(continuations):
        several = [entry] if is_one(entry) else list(entry)
        if not several:
            raise UserError(f"expected at least one continuation for prompt {index}, found none; drop the prompt")
        flat += [(index, continuation) for continuation in several]
    as_text = _texts(prompts, "prompts")
    if _texts([continuation for _, continuation in flat], "continuations") != as_text:
        raise UserError(
            "expected prompts and continuations both as text or both as ids, found one of each; tokenise both or none"
        )
    return _text_pairs(model, prompts, flat) if as_text else _id_pairs(model, prompts, flat)


def _id_pairs(model, prompts, flat):
    size, tokenizer = model.config.vocab_size, model.tokenizer
    contexts = [check_ids(ids, size, f"prompt {i}") for i, ids in enumerate(prompts)]
    pairs = []
    for index, ids in flat:
        own = check_ids(ids, size, f"a continuation of prompt {index}")
        pairs.append(Pair(index, contexts[index], own, tokenizer.decode(own) if tokenizer else None, False))
    return pairs


def _text_pairs(model, prompts, flat):
    size, tokenizer = model.config.vocab_size, _tokenizer(model)
    for index, text in flat:
        if not text:
            raise UserError(f"expected a continuation of prompt {index} with some text, found an empty one; drop it")
    joints = [JointText(PromptParts(prompts[index], "", ""), continuation=text) for index, text in flat]
    pairs = []
    for (index, text), joint in zip(flat, encode_joint_batch(tokenizer, joints), strict=True):
        if not len(joint.context_ids):
            raise UserError(
                f"expected prompt {index} to hold at least one token before its continuation, found none "
                f"({prompts[index]!r} and {text!r}): lengthen the prompt"
            )
        context = check_ids(joint.context_ids, size, f"prompt {index}")
        own = check_ids(joint.continuation_ids, size, f"a continuation of prompt {index}")
        pairs.append(Pair(index, context, own, text, joint.straddles))
    return pairs


def _tokenizer(model):
    if model.tokenizer is None:
        raise UserError("expected token ids, found text and a model without a tokenizer; pass ids")
    return model.tokenizer


def _texts(entries, what) -> bool:
    """Whether the entries are texts; raises when only some are."""
    texts = [isinstance(entry, str) for entry in entries]
    if any(texts) and not all(texts):
        raise UserError(f"expected {what} all as text or all as ids, found a mixture; tokenise all or none")
    return any(texts)


def _shown(value, limit=60):
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."
