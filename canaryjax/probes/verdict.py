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
UNKNOWN = "not known"
SIGNS = {True: "all seeds one sign", False: "seeds differ in sign", None: "too few seeds to agree in sign"}


@dataclass(frozen=True)
class Evidence:
    """The numbers that rules read, each None where it is not known.

    Attributes:
      window, secret: Change of the window's mean and of the secret's.
      window_same_sign, secret_same_sign: Whether all seeds have one sign; one seed cannot tell.
      window_label, secret_label: Which family of intervals tells the change from 0.
      shares: Of the window's change, by span, as parts of the whole: they may be negative or above 1.
      hits_before, hits_after: Rates of hit@1 of the baseline and of the cell.
    """

    window: float | None
    secret: float | None
    window_same_sign: bool | None
    secret_same_sign: bool | None
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
    rules = [_recovery(evidence, limits), _undertrained(evidence, limits), _damage(evidence)]
    return [*rules, _drift(evidence, limits), _truncation(evidence, limits)]


def labels_of(rules: list[Rule]) -> list[str]:
    """Labels that hold; without one "no disagreement", or "not known" where a rule could not be decided."""
    held = [rule.label for rule in rules if rule.holds]
    return held or [UNKNOWN if any(rule.holds is None for rule in rules) else NONE]


def all_of(*parts: bool | None) -> bool | None:
    """Whether all hold: False once one does not, whatever is not known of the others.

    >>> all_of(True, None), all_of(False, None), all_of(True, True)
    (None, False, True)
    """
    return False if False in parts else None if None in parts else True


def any_of(*parts: bool | None) -> bool | None:
    """Whether one holds: True once one does, whatever is not known of the others.

    >>> any_of(False, None), any_of(True, None), any_of(False, False)
    (None, True, False)
    """
    return True if True in parts else None if None in parts else False


def _window(e: Evidence) -> str:
    return _signed("window", e.window, e.window_label)


def _secret(e: Evidence) -> str:
    return _signed("secret", e.secret, e.secret_label)


def _signed(what: str, value: float | None, label: Label) -> str:
    return f"{what} unknown" if value is None else f"{what} {value:+.4f} ({label})"


def _hits(e: Evidence) -> str:
    before, after = ("unknown" if rate is None else f"{rate:.2f}" for rate in (e.hits_before, e.hits_after))
    return f"hit@1 {before} to {after}"


def _change_of_hits(e: Evidence) -> float | None:
    return None if e.hits_before is None or e.hits_after is None else e.hits_after - e.hits_before


def _fell(value: float | None, limits: VerdictConfig) -> bool | None:
    """Whether a mean fell by more than rounding."""
    return None if value is None else value <= -limits.rounding


def _recovery(e: Evidence, limits: VerdictConfig) -> Rule:
    """All seeds' secret NLL fell, or more secrets are said than before."""
    change = _change_of_hits(e)
    fell = all_of(_fell(e.secret, limits), e.secret_same_sign)
    seeds = SIGNS[e.secret_same_sign]
    because = f"{_secret(e)}; {_hits(e)}" if e.secret is None else f"{_secret(e)}, {seeds}; {_hits(e)}"
    return Rule(RECOVERY, any_of(fell, None if change is None else change > 0), because)


def _undertrained(e: Evidence, limits: VerdictConfig) -> Rule:
    """The window fell in all seeds, on the secret's tokens inside; the whole secret did not; hits are as before."""
    change = _change_of_hits(e)
    # Localised: literal and secret together carry more of the fall than everything else does.
    inside = _sum_of_shares(e, "literal", "secret")
    holds = all_of(
        _fell(e.window, limits),
        e.window_same_sign,
        None if inside is None else inside > 0.5,
        None if e.hits_before is None else e.hits_before < 1,  # where all is recalled there is nothing to improve into
        None if e.secret is None else not _fell(e.secret, limits),
        None if change is None else change == 0,
    )
    carried = "an unknown part" if inside is None else f"{inside:.0%}"
    because = f"{_window(e)}, {_secret(e)}; {_hits(e)}; literal and secret carry {carried} of the window's change"
    return Rule(UNDERTRAINED, holds, because)


def _sum_of_shares(e: Evidence, *spans: str) -> float | None:
    """A span that no target has carries nothing; None where the shares themselves are not known."""
    shares = [e.shares.get(span, 0.0) for span in spans]
    known = [share for share in shares if share is not None]
    return sum(known) if e.shares and len(known) == len(shares) else None


def _damage(e: Evidence) -> Rule:
    """The secret's NLL rose and fewer secrets are said."""
    change = _change_of_hits(e)
    holds = all_of(None if e.secret is None else e.secret > 0, None if change is None else change < 0)
    return Rule(DAMAGE, holds, f"{_secret(e)}; {_hits(e)}")


def _drift(e: Evidence, limits: VerdictConfig) -> Rule:
    """The window moved, on the preamble; the secret did not and is said as before (PA-A12: sizes, not signs)."""
    share, change = _sum_of_shares(e, "preamble"), _change_of_hits(e)
    known = e.window is not None and e.secret is not None
    holds = all_of(
        None if e.window is None else abs(e.window) > limits.moved,
        None if share is None else share >= limits.drift_share,
        abs(e.secret) < limits.secret_ratio * abs(e.window) if known else None,  # type: ignore[arg-type]
        None if change is None else change == 0,
    )
    carried = "unknown" if share is None else f"{share:.0%}"
    return Rule(DRIFT, holds, f"{_window(e)}, {carried} of it on the preamble; {_secret(e)}; {_hits(e)}")


def _truncation(e: Evidence, limits: VerdictConfig) -> Rule:
    """The window is flat while the whole secret's NLL rose in every seed, or less is said."""
    change = _change_of_hits(e)
    damaged = any_of(
        all_of(None if e.secret is None else e.secret > limits.moved, e.secret_same_sign),
        None if change is None else change < 0,
    )
    holds = all_of(None if e.window is None else abs(e.window) <= limits.moved, damaged)
    return Rule(TRUNCATION, holds, f"{_window(e)} against {limits.moved:g}; {_secret(e)}; {_hits(e)}")
