"""The mathematics of a PPO step in PyTorch, for the side that is written by hand and to check TRL's models with."""

from typing import Any

import numpy as np
import torch
import transformers
from peft import get_peft_model, load_peft_weights, set_peft_model_state_dict

from harness.agreement import Answers
from sides.ppo_case import PpoCase
from sides.torch_model import gradients_of, use_cores
from sides.trl_turns import lora


def load_values(case: PpoCase) -> tuple[Any, Any]:
    """The value model, a base with a scalar head and the case's adapter: PEFT's wrapper and the module inside it."""
    use_cores()
    base = transformers.AutoModelForSequenceClassification.from_pretrained(
        case.model, dtype=torch.float32, attn_implementation="sdpa", num_labels=1
    )
    wrapped = get_peft_model(base.eval(), lora(case.shape.rank, "SEQ_CLS", ["score"]))
    stored = load_peft_weights(str(case.adapter), device="cpu")
    set_peft_model_state_dict(wrapped, stored | {"base_model.model.score.weight": torch.tensor(case.head)[None]})
    return wrapped, wrapped.base_model.model


def values_of(value_model: Any, sequences: torch.Tensor, completion: int) -> torch.Tensor:
    """The value before each of the last `completion` tokens: float32 `[rows, completion]`."""
    states = value_model.model(sequences, use_cache=False).last_hidden_state
    return value_model.score(states[:, -completion - 1 : -1])[..., 0]


def stored_rollout(case: PpoCase) -> dict[str, torch.Tensor]:
    """The case's arrays as tensors, one row a completion."""
    names = ("mask", "drift", "advantages", "old_values", "returns")
    return {name: torch.tensor(case.flat(getattr(case, name))) for name in names}


def ppo_loss(logps: torch.Tensor, values: torch.Tensor, stored: dict[str, torch.Tensor], settings: Any) -> torch.Tensor:
    """The clipped objective and the clipped value loss, each a mean over all real tokens."""
    real = stored["mask"].float()
    ratio = (logps - stored["old_logps"]).exp()
    held = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
    policy = torch.maximum(-ratio * stored["advantages"], -held * stored["advantages"])
    width, old = settings.value_clip_range, stored["old_values"]
    near = torch.clamp(values, old - width, old + width)
    error = torch.maximum((values - stored["returns"]) ** 2, (near - stored["returns"]) ** 2)
    return ((policy + 0.5 * settings.value_coefficient * error) * real).sum() / real.sum()


def answers_of(case: PpoCase, policy: Any, wrapped: Any, logps: torch.Tensor, values: torch.Tensor) -> Answers:
    """The answers of a side from its log-probs and values on the stored rollout, which carry their gradients."""
    stored = stored_rollout(case)
    loss = ppo_loss(logps, values, stored | {"old_logps": logps.detach() - stored["drift"]}, case.settings)
    loss.backward()
    found = [{name: x for name, x in gradients_of(model).items() if ".lora_" in name} for model in (policy, wrapped)]
    for model in (policy, wrapped):
        model.zero_grad()
    mask = case.flat(case.mask)
    return {
        "policy_logps": np.where(mask, logps.detach().numpy(), 0.0),
        "values": np.where(mask, values.detach().numpy(), 0.0),
        "loss": loss.item(),
        "policy_gradients": found[0],
        "value_gradients": found[1],
    }
