"""Audits whether RL fine-tuning used private documents.

The names below are imported on first use, so that `import canaryjax` and `canaryjax.stats` start without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canaryjax import stats
    from canaryjax.inference.api import generate, logits, score
    from canaryjax.inference.records import Completion, TokenScores
    from canaryjax.weights.checkpoint import load_model
    from canaryjax.weights.merged import save_merged
    from canaryjax.weights.peft import load_adapter, save_adapter

    __version__: str

_HOMES = {
    "load_model": "canaryjax.weights.checkpoint",
    "logits": "canaryjax.inference.api",
    "score": "canaryjax.inference.api",
    "generate": "canaryjax.inference.api",
    "TokenScores": "canaryjax.inference.records",
    "Completion": "canaryjax.inference.records",
    "load_adapter": "canaryjax.weights.peft",
    "save_adapter": "canaryjax.weights.peft",
    "save_merged": "canaryjax.weights.merged",
}

__all__ = [
    "Completion",
    "TokenScores",
    "__version__",
    "generate",
    "load_adapter",
    "load_model",
    "logits",
    "save_adapter",
    "save_merged",
    "score",
    "stats",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("canaryjax")
    if name == "stats":
        return importlib.import_module("canaryjax.stats")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'canaryjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
