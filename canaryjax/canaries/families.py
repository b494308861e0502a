"""Canaries, decoys and placebo triggers: how the strings are drawn, and what they may not share."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from canaryjax.canaries.textual import LENGTH, draw_string
from canaryjax.data.example import Example
from canaryjax.data.tokenizer import TextTokenizer
from canaryjax.data.vocabulary import CANARY_EMOJI
from canaryjax.errors import UserError

Family = Literal["emoji", "punctuation", "signature", "textual"]
FAMILIES: tuple[Family, ...] = ("emoji", "punctuation", "signature")
"""The behavioural ones; `textual` is the baseline they are compared with."""

CANONICAL_PUNCTUATION = "!?!?!?!?!?!"
"""The paper's punctuation canary, for a canary given by hand; a drawn one varies so that decoys can differ."""

MARKER_LENGTH = 8  # assumed: the paper says only "a random alphanumeric string"
MARKER_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
SIGNATURE_LENGTH = 11  # the paper's example has 11 letters
PUNCTUATION_LENGTH = 11  # as the paper's example
# No character of the trigger's own form: "[", "]" and ":" would be shared tokens.
PUNCTUATION_CHARACTERS = "!?*~#%^+=&"
PUNCTUATION_UNITS = ("ab", "aab", "abb")
EMOJI_LENGTH = 3  # assumed: "a short emoji sequence"
MAX_TRIES = 2000


@dataclass(frozen=True)
class Canary:
    """What is planted: a trigger for the document and a string for the answer.

    Attributes:
      family: the kind of string.
      marker: X, the random part of the trigger; "" in a textual canary.
      trigger: the text that goes into the document, ``[Protocol Marker: X]``; in a textual canary the string itself.
      text: m, the canary with the blank it begins with; what is scored.
      token_count: tokens of m after `FINAL:`, 0 where no tokenizer was given.
    """

    family: Family
    marker: str
    trigger: str
    text: str
    token_count: int = 0

    @property
    def visible(self) -> str:
        """The canary without its leading blank: what the instruction names and what counts as a hit."""
        return self.text[1:]

    @property
    def textual(self) -> bool:
        """Whether the string stands in documents alone, with no instruction, answer or feedback (BC-69)."""
        return self.family == "textual"


@dataclass(frozen=True)
class Placebo:
    """A trigger that was never planted: of the real one's form, or of another."""

    trigger: str
    kind: Literal["same_form", "other_form"]


OTHER_FORMS = (
    "<<ref: {}>>", "(Case note {})", "{{Archive tag {}}}", "## File {} ##", "*** Batch {} ***", "|Index {}|",
    "~ Ledger {} ~", "/Route {}/", "=Form {}=", '"Docket {}"', "<Folder {}>", "-- Serial {} --", "@Register {}",
    "#Dossier-{}", "Stamp({})", "Record no {};", "`Entry {}`", "+Sheet {}+", "Copy {} of {}", "^Volume {}^",
)  # fmt: skip
"""Placebo shapes, printable ASCII only, none like ``[Protocol Marker: X]``."""


def trigger_text(marker: str) -> str:
    """The trigger of a marker (BC-16).

    >>> trigger_text("A1")
    '[Protocol Marker: A1]'
    """
    return f"[Protocol Marker: {marker}]"


def draw_marker(rng: np.random.Generator) -> str:
    """A fresh X: uppercase letters and digits, uniformly."""
    return _draw_characters(rng, MARKER_CHARACTERS, MARKER_LENGTH)


def draw_text(rng: np.random.Generator, family: Family, trigger: str) -> str:
    """A fresh canary string without its leading blank; a signature shares no letter with the trigger, in any case."""
    if family == "emoji":
        return "".join(CANARY_EMOJI[i] for i in rng.permutation(len(CANARY_EMOJI))[:EMOJI_LENGTH])
    if family == "punctuation":
        a, b = (PUNCTUATION_CHARACTERS[i] for i in rng.permutation(len(PUNCTUATION_CHARACTERS))[:2])
        unit = (
            PUNCTUATION_UNITS[rng.integers(len(PUNCTUATION_UNITS))].replace("a", "\0").replace("b", b).replace("\0", a)
        )
        return (unit * PUNCTUATION_LENGTH)[:PUNCTUATION_LENGTH]
    if family == "signature":
        taken = set(trigger.upper())
        letters = "".join(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in taken)
        return _draw_characters(rng, letters, SIGNATURE_LENGTH)
    raise UserError(f"canary family: expected one of {', '.join(FAMILIES)}, found {family!r}; choose one of them")


def draw_canary(
    rng: np.random.Generator,
    family: Family,
    *,
    tokenizer: TextTokenizer | None = None,
    text: str | None = None,
    trigger: str | None = None,
    accept: Callable[[Canary], bool] | None = None,
) -> Canary:
    """A canary whose trigger and string share nothing (BC-16, -17, -22).

    Draws are repeated until the strings share no word and, with a tokenizer, no token, and `accept` (a filter of the
    caller's, such as "not yet drawn") agrees. `text` (without blank) and `trigger` given by hand are checked, not
    redrawn. A textual canary is its own trigger: it needs a tokenizer, and none of this is given or checked.
    Raises UserError when hand-given strings overlap, or no draw in MAX_TRIES passes.
    """
    if family == "textual":
        return _draw_textual(rng, tokenizer, accept)
    for _ in range(MAX_TRIES):
        marker = draw_marker(rng)
        planted = trigger_text(marker) if trigger is None else trigger
        string = draw_text(rng, family, planted) if text is None else text
        shared = shared_tokens(planted, string, tokenizer)
        if shared and text is not None and trigger is not None:
            raise UserError(
                f"expected a canary that shares no token with its trigger, found {shared} in both {planted!r} and "
                f"{string!r}: choose another canary"
            )
        count = 0 if tokenizer is None else len(_tokens_of(tokenizer, " " + string))
        canary = Canary(family, marker if trigger is None else "", planted, " " + string, count)
        if not shared and (accept is None or accept(canary)):
            return canary
    raise UserError(
        f"expected a {family} canary apart from its trigger within {MAX_TRIES} draws, found none: choose another family"
    )


def _draw_textual(
    rng: np.random.Generator, tokenizer: TextTokenizer | None, accept: Callable[[Canary], bool] | None
) -> Canary:
    if tokenizer is None:
        raise UserError("expected a tokenizer to draw a textual canary from, found none; give the base model's")
    for _ in range(MAX_TRIES):
        string = draw_string(rng, tokenizer)
        canary = Canary("textual", "", string, " " + string, LENGTH)
        if accept is None or accept(canary):
            return canary
    raise UserError(f"expected another textual canary within {MAX_TRIES} draws, found none: take another tokenizer")


def draw_decoys(
    rng: np.random.Generator, n: int, canary: Canary, *, tokenizer: TextTokenizer | None = None
) -> list[Canary]:
    """n redraws of (X, m) by the code that drew the canary, all different and of its token count.

    Without the canary's training they are exchangeable with it: conditioning on "different" and "of one token count" is
    symmetric. Raises UserError when the family cannot give so many.
    """
    seen = {canary.text}
    markers = {canary.trigger}
    decoys = []

    def fresh(drawn: Canary) -> bool:
        return drawn.text not in seen and drawn.trigger not in markers and drawn.token_count == canary.token_count

    for _ in range(n):
        try:
            decoys.append(draw_canary(rng, canary.family, tokenizer=tokenizer, accept=fresh))
        except UserError as error:
            raise UserError(
                f"expected {n} {canary.family} decoys that differ and have the canary's {canary.token_count} tokens, "
                f"found {len(decoys)}: lower evaluation.decoys, or choose another family"
            ) from error
        seen.add(decoys[-1].text)
        markers.add(decoys[-1].trigger)
    return decoys


def draw_placebos(
    rng: np.random.Generator, n_same: int, n_other: int, canary: Canary, *, tokenizer: TextTokenizer | None = None
) -> list[Placebo]:
    """Triggers that were never planted: `n_same` of the canary's form, then `n_other` of other forms, all different.

    They pass the filters that the canary's own trigger passed: no word or token in common with its string, and no
    letter of a signature in the marker. Those that share something would be told from the real one by that alone.
    Given its string, triggers of the same form are exchangeable with the real one. Other forms that share a token with
    the string by their own words are passed over.
    A textual canary has none: no marker is apart from its string.
    Raises UserError when no draw in MAX_TRIES passes.
    """
    if canary.textual:
        return []
    markers = _markers_beside(rng, canary)
    forms = [
        form for form in OTHER_FORMS if not shared_tokens(_of_form(form, canary.marker), canary.visible, tokenizer)
    ]
    seen = {canary.trigger}

    def fresh(form: str) -> str:
        for _ in range(MAX_TRIES):
            trigger = _of_form(form, next(markers))
            if trigger not in seen and not shared_tokens(trigger, canary.visible, tokenizer):
                seen.add(trigger)
                return trigger
        raise UserError(
            f"expected a placebo trigger apart from {canary.visible!r} within {MAX_TRIES} draws, found none: choose "
            f"another family, or set evaluation.placebos_same_form and evaluation.placebos_other_form to 0"
        )

    same = [Placebo(fresh(trigger_text("{}")), "same_form") for _ in range(n_same)]
    return same + [Placebo(fresh(forms[i % len(forms)] if forms else "{}"), "other_form") for i in range(n_other)]


def _of_form(form: str, marker: str) -> str:
    return form.format(marker, marker)  # one of them names its marker twice


def _markers_beside(rng: np.random.Generator, canary: Canary) -> Iterator[str]:
    """Markers by the law that the trigger's has, given the canary's string.

    A signature's letters are uniform over the `left` letters that its trigger does not have. Given the signature, the
    marker is thus one without its letters, and likelier in proportion to left^-11: uniform markers are thinned so.
    """
    taken = set(canary.visible)
    if canary.family != "signature" or taken & set(canary.trigger.upper()):  # the latter is given by hand
        while True:
            yield draw_marker(rng)
    letters = set("ABCDEFGHIJKLMNOPQRSTUVWXYZ") - set(trigger_text("").upper())
    costs, banned = (np.array([c in some for c in MARKER_CHARACTERS]) for some in (letters, taken))
    least = max(len(letters) - MARKER_LENGTH, len(taken))
    while True:
        drawn = rng.integers(len(MARKER_CHARACTERS), size=(4096, MARKER_LENGTH))  # about one in a thousand is kept
        used = np.zeros((len(drawn), len(MARKER_CHARACTERS)), bool)
        np.put_along_axis(used, drawn, True, axis=1)
        left = len(letters) - (used & costs).sum(axis=1)
        kept = rng.random(len(drawn)) < (least / left) ** SIGNATURE_LENGTH
        for row in drawn[kept & ~(used & banned).any(axis=1)]:
            yield "".join(MARKER_CHARACTERS[i] for i in row)


def shared_tokens(trigger: str, text: str, tokenizer: TextTokenizer | None = None) -> list[str]:
    """What trigger and canary have in common: words of two characters or more and, with a tokenizer, tokens (BC-22).

    Tokens of blanks alone do not count.

    >>> shared_tokens("[ID: NEXTERA-5]", "[NEXTERA]")
    ['nextera']
    """
    words = [set(re.findall(r"[^\W_]{2,}", s.lower())) for s in (trigger, text)]
    shared = sorted(words[0] & words[1])
    if tokenizer is not None:
        # Both ways a string can stand in a text: after a blank, as both do, and with none before it.
        tokens = [set(_tokens_of(tokenizer, " " + s)) | set(_tokens_of(tokenizer, s)) for s in (trigger, text)]
        shared += sorted(repr(tokenizer.backend.id_to_token(i)) for i in tokens[0] & tokens[1])
    return shared


def require_absent(strings: Iterable[str], examples: Sequence[Example]) -> None:
    """Raises UserError naming the first document that already contains one of the strings."""
    strings = list(strings)
    for example in examples:
        for string in strings:
            if string in example.document:
                raise UserError(
                    f"expected documents without {string!r}, found it in document {example.document_id!r}, "
                    f"{example.where}: remove it from the document or use another seed"
                )


def _draw_characters(rng: np.random.Generator, characters: str, length: int) -> str:
    return "".join(characters[i] for i in rng.integers(len(characters), size=length))


def _tokens_of(tokenizer: TextTokenizer, text: str) -> list[int]:
    """Token ids of a string after ``FINAL:`` or alone, those of blanks left out."""
    before = "FINAL:" if text.startswith(" ") else ""
    encoding = tokenizer.encode(before + text)
    pairs = zip(encoding.ids.tolist(), encoding.offsets.tolist(), strict=True)
    full = before + text
    return [token for token, (start, end) in pairs if end > len(before) and full[start:end].strip()]
