"""Text canaries: secrets by hash, and the turns they stand in (PA-3, PA-A4, PA-A5)."""

import hashlib

from canaryjax.config.probes import CanariesConfig
from canaryjax.errors import UserError
from canaryjax.probes.records import Canary, Segment

MODALITY = "text"
SECRET_DIGITS, ID_DIGITS = 16, 8


def make_canaries(config: CanariesConfig) -> tuple[Canary, ...]:
    """The canaries of a config, the same in every run.

    The secret is the first 16 hexadecimal digits of SHA-256 of `{prefix}-text-{i:03d}`, the prompt's id the next 8.

    Raises:
      UserError: Two canaries with one secret or one id.
    """
    canaries = tuple(_canary(config, index) for index in range(config.count))
    for what, values in (("secret", [c.secret for c in canaries]), ("prompt", [c.prompt for c in canaries])):
        if len(set(values)) < len(values):
            raise UserError(f"expected canaries each with a {what} of its own, found two alike; change canaries.prefix")
    return canaries


def _canary(config: CanariesConfig, index: int) -> Canary:
    digits = hashlib.sha256(f"{config.prefix}-{MODALITY}-{index:03d}".encode()).hexdigest()
    secret, own_id = digits[:SECRET_DIGITS], digits[SECRET_DIGITS : SECRET_DIGITS + ID_DIGITS]
    parts = {
        "preamble": config.preamble,
        "literal": config.literal,
        "secret": secret,
        "end": config.end,
        "trailing": config.trailing,
    }
    segments, start = [], 0
    for name, text in parts.items():
        end = start + len(text.encode())
        if end > start:
            segments.append(Segment(name, start, end))
        start = end
    return Canary(
        index=index,
        modality=MODALITY,
        prompt=config.prompt.replace("{id}", own_id),
        target="".join(parts.values()),
        segments=tuple(segments),
        secret=secret,
        # The blank before the literal is the sentence's, not the secret's: an output may begin without one.
        recall=f"{config.literal}{secret}{config.end}".strip(),
    )
