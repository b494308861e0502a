"""The same weights in PyTorch, and what its sides share; every setting is the fastest that makes sense on a CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from peft import PeftModel

from canaryjax.runlog import cores


def use_cores() -> None:
    """As many threads as XLA has."""
    torch.set_num_threads(cores() or 1)
    transformers.logging.set_verbosity_error()


def load_base(directory: Path) -> Any:
    """The model in float32, with PyTorch's fused attention."""
    use_cores()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="sdpa"
    )
    return model.eval()


def load_policy(directory: Path, adapter: Path) -> Any:
    """The base with a trainable adapter on it."""
    return PeftModel.from_pretrained(load_base(directory), adapter, is_trainable=True)


def completion_logps(model: Any, sequences: torch.Tensor, completion: int) -> torch.Tensor:
    """Log-probs of the last `completion` tokens of equally long rows: float32 `[rows, completion]`.

    The head runs on those positions alone. Padding stands behind real tokens, so no mask is needed and attention takes
    its causal path, the fastest.
    """
    logits = model(sequences, logits_to_keep=completion + 1, use_cache=False).logits[:, :-1].float()
    targets = sequences[:, -completion:]
    return logits.gather(-1, targets[..., None])[..., 0] - logits.logsumexp(-1)


def sequences_of(context: np.ndarray, continuations: np.ndarray) -> torch.Tensor:
    """Each continuation behind the context: int64 `[g, s + t]`."""
    repeated = np.broadcast_to(context, (len(continuations), len(context)))
    return torch.tensor(np.concatenate([repeated, continuations], axis=1), dtype=torch.int64)


def sample(model: Any, context: np.ndarray, group: int, completion: int, **settings) -> torch.Tensor:
    """Sampled continuations of one context under the model's own law at temperature 1: int64 `[g, up to t]`."""
    prompt = torch.tensor(context[None], dtype=torch.int64)
    with torch.no_grad():
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            num_return_sequences=group,
            max_new_tokens=completion,
            use_cache=True,
            **({"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} | settings),
        )
    return out[:, len(context) :]


def gradients_of(model: Any) -> dict[str, np.ndarray]:
    """Gradients of the adapter under the names that PEFT saves its tensors by."""
    return {
        name.replace(".default", ""): parameter.grad.numpy().copy()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
