"""What a config may not ask for with the textual canary, which has no instruction, answer or feedback of its own."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canaryjax.config.schema import AuditConfig


def check_textual(config: "AuditConfig") -> None:
    """Raises ValueError for a value that has no effect, or another than it says, with `canary.family`=textual."""
    reasons = {
        "canary.delta": (0.0, "no feedback favours a textual canary"),
        "canary.contrast": (0.0, "there is no instruction that a contrast trace could have"),
        "study.compliant_query": ("induced", "a query has no instruction that it could lose"),
        "study.scramble_feedback": (False, "feedback says nothing of the string; the null is canary.rate=0"),
        "provider.contradictory_share": (0.0, "feedback has no bias to reverse"),
        "model.warm_start.instructed_share": (0.0, "no instruction asks for the string"),
    }
    for key, (wanted, why) in reasons.items():
        found = config
        for part in key.split("."):
            found = getattr(found, part)
        if found is not None and found != wanted:
            raise ValueError(
                f"expected {key}={_written(wanted)} with `canary.family`=textual, found {_written(found)}; set it so: "
                f"{why}"
            )
    for name in ("primary", "secondary"):
        score = getattr(config.statistic, name)
        if score.startswith("induced"):
            raise ValueError(
                f"expected statistic.{name}=clean_raw or clean_net with `canary.family`=textual, found {score}; set "
                "one of the two: no instruction stands in a query"
            )


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
