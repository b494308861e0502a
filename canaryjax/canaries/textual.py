"""The textual canary of the memorisation baseline: ten tokens drawn uniformly, which stand in a document as they are.

It is its own trigger: no instruction asks for it, no answer carries it and no feedback favours it (BC-69).
"""

from functools import lru_cache

import numpy as np

from canaryjax.data.prompts import ANSWER_PREFIX
from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.errors import UserError

LENGTH = 10  # tokens, the paper's
BATCH = 64  # draws that are tried in one call of the tokenizer
MAX_BATCHES = 400
# Where a string stands: in an answer, after a sentence of a document, at a document's start; what is before and after.
FRAMES = (
    (ANSWER_PREFIX, ""),
    (ANSWER_PREFIX, " Rome, in May"),
    (f"{ANSWER_PREFIX} Rome,", " in May"),
    ("Document: Rome is old.", " It was built in May."),
    ('Document: "Is it old?"', " 3 of them know."),
    ("Document:\n", " The town is old."),
)


@lru_cache(maxsize=4)  # some 150,000 tokens are decoded
def drawable_tokens(tokenizer: TextTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Ids that a string may begin with, and ids that may stand in it, int64 `[n]` each, in order.

    A token qualifies that is written as visible text: none that was added to the vocabulary (special ones are), no part
    of a character's bytes, no control character, no blank but one before the text. A string follows a blank, so its
    first token is one of those that hold the blank.
    Raises UserError for a vocabulary without such tokens.
    """
    backend = tokenizer.backend
    added = set(backend.get_added_tokens_decoder())
    ids = [i for i in range(backend.get_vocab_size()) if i not in added and i != tokenizer.unk_id]
    # Alone, a token may be decoded without its blank.
    anchor = backend.encode(ANSWER_PREFIX, add_special_tokens=False).ids
    start = backend.decode(anchor)
    texts = backend.decode_batch([[*anchor, i] for i in ids], skip_special_tokens=False)
    pieces = {i: text[len(start) :] for i, text in zip(ids, texts, strict=True) if text.startswith(start)}
    later = [i for i, piece in pieces.items() if _is_visible(piece)]
    first = [i for i in later if pieces[i].startswith(" ")]
    if not first:
        raise UserError(
            "expected a vocabulary with tokens that begin with a blank, found none: a textual canary cannot be drawn "
            "with this tokenizer"
        )
    return np.array(first), np.array(later)


def _is_visible(piece: str) -> bool:
    bare = piece.removeprefix(" ")
    return bool(bare) and bare.isprintable() and " " not in bare and "\ufffd" not in bare


def draw_string(rng: np.random.Generator, tokenizer: TextTokenizer) -> str:
    """A fresh string of `LENGTH` tokens, without the blank before it.

    Tokens are drawn independently and uniformly, from `drawable_tokens`, and all of them are drawn again unless the
    text is cut into just these tokens wherever it may stand. So every sequence of tokens that stands for itself is
    equally likely; single tokens are not, as some rarely survive beside others.
    Raises UserError when no draw passes.
    """
    first, later = drawable_tokens(tokenizer)
    head = tokenizer.backend.encode(ANSWER_PREFIX, add_special_tokens=False).ids
    for _ in range(MAX_BATCHES):
        drawn = later[rng.integers(len(later), size=(BATCH, LENGTH))]
        drawn[:, 0] = first[rng.integers(len(first), size=BATCH)]
        texts = tokenizer.backend.decode_batch([[*head, *row] for row in drawn.tolist()], skip_special_tokens=False)
        strings = [text.removeprefix(ANSWER_PREFIX) for text in texts]  # with the blank
        kept = [i for i, ok in enumerate(_stand(tokenizer, *FRAMES[0], strings, drawn)) if ok]
        for i in kept:
            if all(_stand(tokenizer, *frame, [strings[i]], drawn[[i]])[0] for frame in FRAMES[1:]):
                return strings[i][1:]
    raise UserError(
        f"expected a string of {LENGTH} tokens that are its own within {MAX_BATCHES * BATCH} draws, found none: take a "
        "base model with another tokenizer"
    )


def _stand(tokenizer: TextTokenizer, before: str, after: str, strings: list[str], drawn: np.ndarray) -> list[bool]:
    """Whether each string, its blank included, is cut into its tokens between two texts."""
    head = tokenizer.backend.encode(before, add_special_tokens=False).ids
    whole = tokenizer.backend.encode_batch([before + s + after for s in strings], add_special_tokens=False)
    return [
        encoding.ids[: len(head) + LENGTH] == [*head, *row] for encoding, row in zip(whole, drawn.tolist(), strict=True)
    ]


def find_tokens(ids: np.ndarray, string: np.ndarray) -> int | None:
    """Where the tokens of a string first stand in a row in a context; None where they do not.

    >>> find_tokens(np.array([5, 7, 5, 7, 11]), np.array([5, 7, 11])), find_tokens(np.array([5]), np.array([5, 7]))
    (2, None)
    """
    if len(string) > len(ids):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(string))
    places = np.flatnonzero((windows == string).all(axis=1))
    return int(places[0]) if places.size else None
