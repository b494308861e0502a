"""What a run would cost before anything is sent: calls, time, tokens, money, and the user's limits on them."""

import math
from dataclasses import dataclass
from pathlib import Path

from canaryjax.config.detector import DetectorConfig
from canaryjax.detector.call import Call
from canaryjax.errors import UserError

# Estimates, each on the high side so that a limit is met before it is passed.
CHARACTERS_A_TOKEN = 3.0  # of invented names; plain English has 4
FRAME_TOKENS = 16  # of a chat's marks around system prompt and question
CALL_SECONDS = 4.0  # of a short call of a hosted model
BYTES_A_SECOND = 5e9  # of weights that a CPU reads: each step of a batch reads all of them once
STEP_SECONDS = 3e-3  # of one step of the smallest model
WEIGHTS = (".safetensors", ".gguf")


@dataclass(frozen=True)
class Plan:
    """Estimates for what is still to be asked.

    Attributes:
      calls: Answers to ask for, exactly.
      answered: Answers there already, of a resumed run.
      scored: Whole sentences whose log-probs are asked for besides, where the backend gives any.
      seconds: About; None where the weights' size is not known.
      tokens_in, tokens_out: About, and at most.
      cost: By the config's prices, that of earlier answers included; None without prices.
    """

    calls: int
    answered: int
    scored: int
    seconds: float | None
    tokens_in: int
    tokens_out: int
    cost: float | None


def plan_run(config: DetectorConfig, calls: list[Call], answered: int = 0, spent: float = 0.0) -> Plan:
    """Reckons what a run takes.

    Args:
      config: Limits, prices, batch size.
      calls: All of the run's.
      answered: How many of them have an answer already.
      spent: What the run has cost so far.
    """
    left = max(0, len(calls) - answered)
    characters = sum(len(call.request.system) + len(call.request.prompt) for call in calls) / max(1, len(calls))
    scored = _scored(config, calls)
    # A sentence is shorter than the system prompt with a question; one token may be written beside its echo.
    tokens_in = math.ceil((left + scored) * (characters / CHARACTERS_A_TOKEN + FRAME_TOKENS))
    tokens_out = left * config.probing.max_tokens + scored
    prices = config.model.price_in, config.model.price_out
    return Plan(
        calls=left,
        answered=answered,
        scored=scored,
        seconds=_seconds(config, left),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=spent + (tokens_in * prices[0] + tokens_out * prices[1]) / 1e6 if any(prices) else None,
    )


def check_limits(plan: Plan, config: DetectorConfig) -> None:
    """Raises UserError for a run that may pass a limit of its config, before anything is sent (SD-22)."""
    most, limit = config.probing.max_calls, config.model.spending_limit
    total = plan.calls + plan.answered + plan.scored
    if most is not None and total > most:
        raise UserError(
            f"expected at most {most} calls (probing.max_calls), found {total} in the plan; ask about fewer "
            "(probing.most_per_group, kinds, repeats, negatives), or raise the limit"
        )
    if limit is not None and plan.cost is not None and plan.cost > limit:
        raise UserError(
            f"expected a cost of at most {limit:g} (model.spending_limit), found up to {plan.cost:.4g} in the plan; "
            "ask about fewer (probing.most_per_group, kinds, repeats, max_tokens), or raise the limit"
        )


def _scored(config: DetectorConfig, calls: list[Call]) -> int:
    """Canaries and negatives, each once: no log-probs of famous facts are held against anything."""
    if config.model.logprobs == "off":
        return 0
    return len({call.target.key for call in calls if call.target.population != "positive"})


def _seconds(config: DetectorConfig, left: int) -> float | None:
    rounds = math.ceil(left / config.model.concurrency)
    if config.model.backend == "api":
        return rounds * CALL_SECONDS
    from canaryjax.weights.checkpoint import model_location  # loads JAX, which an endpoint needs none of

    size = weight_bytes(model_location(config.model.path or ""))
    if size is None:
        return None
    return rounds * config.probing.max_tokens * max(STEP_SECONDS, size / BYTES_A_SECOND)


def weight_bytes(path: Path) -> int | None:
    """Size of a model's weights; None where none are found."""
    files = [path] if path.is_file() else [file for file in path.glob("*") if file.suffix in WEIGHTS]
    return sum(file.stat().st_size for file in files) or None
