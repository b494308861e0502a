"""Which span each token of a target counts for, from the bytes it covers and never from its number (PA-17, PA-A3)."""

from collections.abc import Sequence
from typing import Any

from canaryjax.errors import UserError
from canaryjax.probes.records import Canary, Segment, TargetTokens


def target_tokens(canary: Canary, ids: Any, character_offsets: Any, owner: str) -> TargetTokens:
    """A target's tokens and their spans.

    Args:
      canary: Whose target it is.
      ids: int `[t]`.
      character_offsets: int `[t, 2]`, the characters `[start, end)` of the target that each token covers; tokens that
        share a character of several bytes share its offsets.
      owner: `last_byte` or `first_byte`; see `own`.

    Raises:
      UserError: A span of the target that no token counts for, a character that no token covers, offsets out of order
        or outside of the text.
    """
    where = f"canary {canary.index}"
    offsets = byte_offsets(canary.target, character_offsets, where)
    refuse_gaps(canary.target, offsets, where)
    owners, straddles = own(offsets, canary.segments, owner, where)
    return TargetTokens(canary.index, tuple(int(i) for i in ids), offsets, owners, straddles)


def byte_offsets(text: str, character_offsets: Any, where: str) -> tuple[tuple[int, int], ...]:
    """Character offsets as offsets in the text's UTF-8 form.

    >>> byte_offsets("né!", [(0, 1), (1, 2), (2, 3)], "it")
    ((0, 1), (1, 3), (3, 4))
    """
    at = [0]
    for character in text:
        at.append(at[-1] + len(character.encode("utf-8", "surrogatepass")))
    pairs = [(int(start), int(end)) for start, end in character_offsets]
    for position, (start, end) in enumerate(pairs):
        if not 0 <= start <= end <= len(text):
            raise UserError(
                f"expected offsets within the {len(text)} characters of the text in {where}, found [{start}, {end}) of "
                f"token {position}; correct offsets, or offset_unit"
            )
    return tuple((at[start], at[end]) for start, end in pairs)


def refuse_gaps(text: str, offsets: Sequence[tuple[int, int]], where: str) -> None:
    """Refuses tokens that leave out some of a text: its log-probs would be those of another text.

    Blanks may be left out, as some tokenizers trim them off their offsets.

    Args:
      text: The target.
      offsets: Bytes `[start, end)` of each token.
      where: Names the target in messages.

    Raises:
      UserError: A character other than a blank with a byte that no token covers.
    """
    covered = bytearray(len(text.encode()))
    for start, end in offsets:
        covered[start:end] = b"\x01" * (end - start)
    at = 0
    for character in text:
        end = at + len(character.encode())
        if not (character.isspace() or all(covered[at:end])):
            raise UserError(
                f"expected a token for every character of {where}, found none for {character!r} at byte {at}; give the "
                "offsets of all tokens of the text, in their order"
            )
        at = end


def own(
    offsets: Sequence[tuple[int, int]], segments: Sequence[Segment], owner: str, where: str
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The span of each token, and the positions of tokens that cover bytes of several.

    Args:
      offsets: Bytes `[start, end)` of each token, rising; a token without bytes counts where it stands.
      segments: The spans, in order and without gaps.
      owner: `last_byte`: a token counts for the span of its last byte; `first_byte`: of its first.
      where: Names the target in messages.

    >>> segments = [Segment("preamble", 0, 4), Segment("secret", 4, 8)]
    >>> own([(0, 3), (3, 6), (6, 8)], segments, "last_byte", "it")
    (('preamble', 'secret', 'secret'), (1,))
    """
    owners, straddles, before = [], [], (0, 0)
    for position, (start, end) in enumerate(offsets):
        if start < before[0] or end < max(start, before[1]) or end > segments[-1].end:
            raise UserError(
                f"expected rising offsets within the {segments[-1].end} bytes of the text in {where}, found "
                f"[{start}, {end}) of token {position}; correct them"
            )
        before = (start, end)
        first_span, last_span = _at(segments, start), _at(segments, max(end - 1, start))
        owners.append(last_span if owner == "last_byte" else first_span)
        if first_span != last_span:
            straddles.append(position)
    for segment in segments:
        if segment.name not in owners:
            raise UserError(
                f"expected a token for every span of {where}, found none for its {segment.name}: its bytes lie in "
                "tokens of its neighbours; lengthen the span, begin it elsewhere, or take the other canaries.owner"
            )
    return tuple(owners), tuple(straddles)


def _at(segments: Sequence[Segment], byte: int) -> str:
    return next((segment.name for segment in segments if byte < segment.end), segments[-1].name)


def span_counts(owners: Sequence[str], window: int | None = None) -> dict[str, int]:
    """Tokens of each span, in the first `window` positions or in all.

    >>> span_counts(("preamble", "secret", "secret"), 2)
    {'preamble': 1, 'secret': 1}
    """
    counts: dict[str, int] = {}
    for name in owners[:window]:
        counts[name] = counts.get(name, 0) + 1
    return counts
