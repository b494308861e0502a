"""Prompts and continuations as the caller gave them -> checked ids: JAX would clamp a wrong id without a word."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Number
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


@dataclass(frozen=True)
class Request:
    """What is to be scored, as lists.

    Attributes:
      prompts: One entry a prompt.
      continuations: Per prompt its continuations.
      single: Per prompt whether one continuation was given rather than a list of them.
    """

    prompts: list[Any]
    continuations: list[list[Any]]
    single: list[bool]


def plain(value: Any) -> Any:
    """The Python number of a NumPy or JAX scalar; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def as_entries(given: Any, what: str, expected: str) -> list[Any]:
    """The entries of a list, tuple, array or iterator; text, sets and mappings have none in an order that counts."""
    listed = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, Set))
    if not listed or getattr(given, "ndim", 1) == 0:
        raise UserError(f"expected {what} as {expected}, found {_shown(given)}; pass a list")
    return list(given)


def check_ids(ids: Any, vocab_size: int, what: str) -> np.ndarray:
    """int32 array of the ids; raises UserError naming the first that is no id of the model, or when there is none."""
    stacked = getattr(ids, "ndim", 0) > 0
    flat = np.asarray(ids) if stacked else as_entries(ids, what, "a flat list of token ids")
    if len(flat) == 0:
        raise UserError(f"expected {what} of at least one token, found none; give it some text or ids")
    try:
        array = np.asarray(flat)
    except ValueError:  # lists of several lengths among them
        array = np.zeros((0, 0))
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(f"expected {what} as a flat list of token ids, found {_shown(ids)}; pass integers")
    wrong = np.flatnonzero((array < 0) | (array >= vocab_size))
    if wrong.size:
        raise UserError(
            f"expected token ids in [0, {vocab_size}) in {what}, found {array[wrong[0]]} at index {wrong[0]}: "
            f"the ids come from another vocabulary"
        )
    return array.astype(np.int32)


def _as_prompts(prompts: Any) -> list[Any]:
    return [prompts] if isinstance(prompts, str) else as_entries(prompts, "prompts", "texts or lists of ids")


def encode_prompts(model: LoadedModel, prompts: Sequence[str] | Sequence[Ids] | str) -> list[np.ndarray]:
    """Ids of each prompt, given as texts or as ids."""
    given = _as_prompts(prompts)
    if not _texts(given, "prompts"):
        return [check_ids(ids, model.config.vocab_size, f"prompt {i}") for i, ids in enumerate(given)]
    encoded = _tokenizer(model).encode_batch(given)
    return [check_ids(found.ids, model.config.vocab_size, f"prompt {i}") for i, found in enumerate(encoded)]


def read_request(prompts: Any, continuations: Any) -> Request:
    """Prompts and their continuations as lists; a single text is a list of one prompt.

    Raises UserError for lists of different length, a prompt without continuations, or what is no list at all.
    """
    given = _as_prompts(prompts)
    entries = (
        [continuations]
        if isinstance(prompts, str)
        else as_entries(continuations, "continuations", "one entry a prompt, each a text, a list of ids or several")
    )
    if len(given) != len(entries):
        raise UserError(
            f"expected one entry of continuations for each prompt, found {len(entries)} for {len(given)}; "
            f"make the lists match"
        )
    several, single = [], []
    for index, entry in enumerate(entries):
        own = entry
        if not isinstance(entry, str):
            own = as_entries(entry, f"the continuation of prompt {index}", "a text, a list of ids, or several of them")
            if not own:
                raise UserError(f"expected at least one continuation for prompt {index}, found none; drop the prompt")
        single.append(isinstance(own, str) or isinstance(plain(own[0]), Number))
        several.append([own] if single[-1] else own)
    return Request(given, several, single)


def encode_pairs(model: LoadedModel, request: Request) -> list[Pair]:
    """Every (prompt, continuation) in order; texts are tokenised as one string and then cut.

    Raises UserError for an empty prompt or continuation, a text without a tokenizer, an id outside the vocabulary.
    """
    prompts = request.prompts
    flat = [(index, own) for index, several in enumerate(request.continuations) for own in several]
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
