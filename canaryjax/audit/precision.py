"""What computing in bfloat16 costs the scorer: the same weights, the same strings, once in float32."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canaryjax.audit.chunk_size import free_memory
from canaryjax.audit.measure import Cell, plan_cells, query_mode
from canaryjax.audit.plan import MEMORY_SHARE
from canaryjax.audit.scoring import score_items
from canaryjax.audit.trial import Trial
from canaryjax.config import AuditConfig
from canaryjax.models.mesh import axis_size
from canaryjax.models.transformer import Transformer, parameter_arrays

NUMBERS = ("max_abs_nats", "median_abs_nats", "max_abs_nats_per_token", "median_abs_nats_per_token", "max_abs_score")


def precision_residual(model: Transformer, trial: Trial, config: AuditConfig) -> dict[str, Any]:
    """How far the base's log-probs in bfloat16 are from those of the same weights computed in float32.

    Of the real canary of `evaluation.noise_floor_pairs` pairs, in both views and under the primary score's query.
    Rounding of the weights themselves is not in it: the float32 copy holds the bfloat16 weights.

    Args:
      model: The base, warm start merged.
      trial: Whose pairs are scored.
      config: The study.

    Returns:
      `max_abs_nats` and `median_abs_nats` of a canary's log-prob, both also per token of it; `max_abs_score`, in nats,
      of a pair's triggered minus clean; `pairs`. All but the last are None, with the reason, where nothing is measured.
    """
    limit = config.evaluation.noise_floor_pairs
    reason = _hindrance(model, limit)
    if reason is not None:
        return dict.fromkeys(NUMBERS) | {"pairs": 0, "reason": reason}
    plan = plan_cells(trial, config)
    cells = [c for c in plan if c.trigger_kind == "real" and c.query_mode == query_mode(config)][: 2 * limit]
    items, batch = [[cell.item for cell in cells]], config.evaluation.batch_size
    rounded = score_items(model, None, items, batch)[0]
    # By default an accelerator rounds the factors of a float32 product.
    with jax.default_matmul_precision("highest"):
        exact = score_items(_in_float32(model), None, items, batch)[0]
    return _summary(cells, rounded - exact)


def _summary(cells: list[Cell], gaps: np.ndarray) -> dict[str, Any]:
    """Of signed differences, one a cell; a pair's two views stand side by side."""
    lengths = np.array([len(cell.item.string) for cell in cells])
    assert [cell.pair for cell in cells[::2]] == [cell.pair for cell in cells[1::2]]
    whole = np.isfinite(gaps).reshape(-1, 2).all(axis=1)
    if not whole.any():
        return dict.fromkeys(NUMBERS) | {"pairs": 0, "reason": "no pair has finite log-probs in both"}
    kept = np.repeat(whole, 2)
    of_canary, of_token = np.abs(gaps[kept]), np.abs(gaps[kept] / lengths[kept])
    of_score = np.abs(np.diff(gaps[kept].reshape(-1, 2), axis=1))
    values = (of_canary.max(), np.median(of_canary), of_token.max(), np.median(of_token), of_score.max())
    return dict(zip(NUMBERS, map(float, values), strict=True)) | {"pairs": int(whole.sum()), "reason": None}


def _hindrance(model: Transformer, limit: int) -> str | None:
    if model.config.dtype == "float32":
        return "the base is computed in float32"
    if limit == 0:
        return "evaluation.noise_floor_pairs is 0"
    needed = 4.0 * sum(x.size for x in parameter_arrays(model).values()) / axis_size(model, "model")
    free = free_memory()
    if needed > MEMORY_SHARE * free:  # what scoring with it takes comes on top
        return (
            f"a float32 copy of the base takes {needed / 1e9:.3g} GB a device, more than {MEMORY_SHARE:.0%} of the "
            f"{free / 1e9:.3g} GB that are free"
        )
    return None


def _in_float32(model: Transformer) -> Transformer:
    arrays = {path: x.astype(jnp.float32) for path, x in parameter_arrays(model).items()}
    return Transformer(dataclasses.replace(model.config, dtype="float32"), arrays)
