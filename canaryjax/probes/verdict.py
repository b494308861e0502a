"""What a cell's probes say together, by rule (PA-35 to PA-39)."""

from dataclasses import dataclass
from typing import Any

from canaryjax.config.probes import VerdictConfig
from canaryjax.probes.records import Label

RECOVERY = "full-secret recovery"
UNDERTRAINED = "undertrained in-window improvement"
DAMAGE = "behavioural damage"
DRIFT = "non-secret preamble drift"
TRUNCATION = "window-truncation failure"
NONE = "no disagreement"


@dataclass(frozen=True)
class Evidence:
    """The numbers that rules read, each None where it is not known.

    Attributes:
      window, secret: Change of the window's mean and of the secret's.
      window_same_sign, secret_same_sign: Whether all seeds have one sign.
      window_label, secret_label: Which family of intervals tells the change from 0.
      shares: Of the window's change, by span, as parts of the whole: they may be negative or above 1.
      hits_before, hits_after: Rates of hit@1 of the baseline and of the cell.
    """

    window: float | None
    secret: float | None
    window_same_sign: bool
    secret_same_sign: bool
    window_label: Label
    secret_label: Label
    shares: dict[str, float | None]
    hits_before: float | None
    hits_after: float | None


@dataclass(frozen=True)
class Rule:
    """Whether a label holds, and why; None where a number that it needs is not known."""

    label: str
    holds: bool | None
    because: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"label": self.label, "holds": self.holds, "because": self.because}


def judge(evidence: Evidence, limits: VerdictConfig) -> list[Rule]:
    """Every rule of the protocol on one cell; several may hold, none may."""
    rules = [_recovery(evidence), _undertrained(evidence), _damage(evidence)]
    return [*rules, _drift(evidence, limits), _truncation(evidence, limits)]


def labels_of(rules: list[Rule]) -> list[str]:
    """Labels that hold; "no disagreement" where none does."""
    return [rule.label for rule in rules if rule.holds] or [NONE]


def _window(e: Evidence) -> str:
    return _signed("window", e.window, e.window_label)


def _secret(e: Evidence) -> str:
    return _signed("secret", e.secret, e.secret_label)


def _signed(what: str, value: float | None, label: Label) -> str:
    return f"{what} unknown" if value is None else f"{what} {value:+.4f} ({label})"


def _hits(e: Evidence) -> str:
    before, after = ("unknown" if rate is None else f"{rate:.2f}" for rate in (e.hits_before, e.hits_after))
    return f"hit@1 {before} to {after}"


def _recovery(e: Evidence) -> Rule:
    """All seeds' secret NLL fell, or more secrets are said than before."""
    fell = None if e.secret is None else e.secret < 0 and e.secret_same_sign
    rose = None if e.hits_before is None or e.hits_after is None else e.hits_after > e.hits_before
    holds = True if fell or rose else None if fell is None and rose is None else False
    seeds = "all seeds one sign" if e.secret_same_sign else "seeds differ in sign"
    return Rule(RECOVERY, holds, f"{_secret(e)}, {seeds}; {_hits(e)}")


def _undertrained(e: Evidence) -> Rule:
    """The window fell in all seeds, on the secret's tokens inside; the whole secret did not; hits are as before."""
    because = f"{_window(e)}, {_secret(e)}; {_hits(e)}"
    if e.window is None or e.secret is None or e.hits_before is None or e.hits_after is None:
        return Rule(UNDERTRAINED, None, because)
    inside = [e.shares.get(span) or 0.0 for span in ("literal", "secret")]
    # Localised: literal and secret together carry more of the fall than everything else does.
    local = sum(inside) > 0.5
    fell = e.window < 0 and e.window_same_sign
    unsaturated = e.hits_before < 1  # where every secret is recalled there is no headroom to improve into
    holds = fell and local and unsaturated and e.secret >= 0 and e.hits_after == e.hits_before
    return Rule(UNDERTRAINED, holds, f"{because}; literal and secret carry {sum(inside):.0%} of the window's change")


def _damage(e: Evidence) -> Rule:
    """The secret's NLL rose and fewer secrets are said."""
    because = f"{_secret(e)}; {_hits(e)}"
    if e.secret is None or e.hits_before is None or e.hits_after is None:
        return Rule(DAMAGE, None, because)
    return Rule(DAMAGE, e.secret > 0 and e.hits_after < e.hits_before, because)


def _drift(e: Evidence, limits: VerdictConfig) -> Rule:
    """The window moved, on the preamble; the secret did not and is said as before (PA-A12: sizes, not signs)."""
    share = e.shares.get("preamble")
    carried = "unknown" if share is None else f"{share:.0%}"
    because = f"{_window(e)}, {carried} of it on the preamble; {_secret(e)}; {_hits(e)}"
    if e.window is None or e.secret is None or e.hits_before is None or e.hits_after is None:
        return Rule(DRIFT, None, because)
    moved = abs(e.window) > limits.moved
    small = abs(e.secret) < limits.secret_ratio * abs(e.window)
    unchanged = e.hits_before == e.hits_after
    return Rule(DRIFT, moved and (share or 0.0) >= limits.drift_share and small and unchanged, because)


def _truncation(e: Evidence, limits: VerdictConfig) -> Rule:
    """The window is flat while the whole secret's NLL rose in every seed, or less is said."""
    because = f"{_window(e)} against {limits.moved:g}; {_secret(e)}; {_hits(e)}"
    if e.window is None:
        return Rule(TRUNCATION, None, because)
    flat = abs(e.window) <= limits.moved
    dropped = e.hits_before is not None and e.hits_after is not None and e.hits_after < e.hits_before
    damaged = e.secret is not None and e.secret > limits.moved and e.secret_same_sign
    return Rule(TRUNCATION, flat and (dropped or damaged), because)
