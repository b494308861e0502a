"""How ids come from secrets: the first 48 bits of an HMAC of what the id is for."""

from typing import get_args

from canaryjax.detector.records import STATIC_TIERS, Tier
from canaryjax.detector.secret import Secret
from canaryjax.errors import UserError

PREFIX = "canaryjax-canary/1/"
ID_BYTES = 6
EDGE_TIERS: tuple[Tier, ...] = tuple(tier for tier in get_args(Tier) if tier not in STATIC_TIERS)


def static_id(seed: Secret, position: int) -> int:
    """Id, 48 bits, of the sentence at a position of the pool that the seed makes; `position` counts from 0.

    >>> f"{static_id(Secret(b'example-not-secret'), 0):012x}"
    '663b3f8917c4'
    """
    return _id(seed, "static", _position(position))


def negative_id(control_seed: Secret, position: int) -> int:
    """Id, 48 bits, of a never-published sentence: as `static_id`, from the control seed and under another name."""
    return _id(control_seed, "negative", _position(position))


def edge_id(edge_secret: Secret, tier: Tier, label: str) -> int:
    """Id, 48 bits, of a sentence that the edge made for one request.

    Args:
      edge_secret: The edge's own secret, so that a leak of the seed forges no request, and the other way round.
      tier: `vendor` or `window`.
      label: What of the request the sentence is for, as the request log's row holds it.

    Raises:
      UserError: Another tier, no label, or one that is not Unicode text.
    """
    if tier not in EDGE_TIERS:
        raise UserError(f"expected an edge tier, {' or '.join(EDGE_TIERS)}, found {tier!r}; correct the log's row")
    if not label or any("\ud800" <= character <= "\udfff" for character in label):
        raise UserError("expected a label of Unicode text, found none or half a character; correct the log's row")
    return _id(edge_secret, tier, label)


def _position(position: int) -> str:
    if isinstance(position, bool) or not isinstance(position, int) or position < 0:
        raise UserError(f"expected a position counted from 0, found {position!r}; correct it")
    return str(position)


def _id(secret: Secret, kind: str, label: str) -> int:
    return int.from_bytes(secret.mac(f"{PREFIX}{kind}/{label}".encode())[:ID_BYTES], "big")
