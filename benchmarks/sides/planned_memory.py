"""What the compiler plans for a program of given shapes, without making any array."""

import jax
import jax.numpy as jnp

from canaryjax.inference.logprobs import score_shared
from canaryjax.models.lora import init_adapter
from canaryjax.models.transformer import init_transformer
from harness.shape import Shape


def planned_bytes(shape: Shape) -> dict[str, int]:
    """Temporary bytes of scoring under an adapter, and of the gradient of the summed log-probs for the adapter."""
    model = jax.eval_shape(lambda: init_transformer(jax.random.key(0), shape.config()))
    adapter = jax.eval_shape(lambda: init_adapter(jax.random.key(0), shape.config(), shape.rank, 1.0))
    b, s, g, t = 1, shape.context, shape.group, shape.completion
    ids, own = (jax.ShapeDtypeStruct(size, jnp.int32) for size in ((b, s), (b, g, t)))
    mask, own_mask = (jax.ShapeDtypeStruct(size, jnp.bool_) for size in ((b, s), (b, g, t)))

    def total(adapter, model, *batch):
        return score_shared(model, adapter, *batch).sum()

    batch = (ids, mask, own, own_mask)
    return {
        "forward_bytes": _temporary(score_shared, model, adapter, *batch),
        "gradient_bytes": _temporary(jax.grad(total), adapter, model, *batch),
    }


def _temporary(work, *shapes) -> int:
    plan = jax.jit(work).lower(*shapes).compile().memory_analysis()
    assert plan is not None  # every backend that we know plans
    return plan.temp_size_in_bytes
