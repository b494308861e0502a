"""A base and an adapter as one set of weights."""

import jax.numpy as jnp

from canaryjax.models.lora import Adapter
from canaryjax.models.transformer import Transformer, parameter_arrays


def merge_adapter(model: Transformer, adapter: Adapter) -> tuple[Transformer, float]:
    """The base with one adapter added into its kernels, for export; audits score unmerged.

    The sum is made in float32 and then rounded to the kernels' dtype, which can lose a small update altogether.

    Args:
      model: The base, left as it is.
      adapter: One policy's adapter.

    Returns:
      The merged model, and the largest absolute difference between a merged kernel and the exact float32 sum: 0 in
      float32, the rounding error in bfloat16.
    """
    arrays, residual = parameter_arrays(model), 0.0
    for name, pair in adapter.layers.items():
        kernel = arrays[f"blocks.{name}"]
        exact = kernel.astype(jnp.float32) + adapter.scale * jnp.einsum("lir,lro->lio", pair.a, pair.b)
        arrays[f"blocks.{name}"] = exact.astype(kernel.dtype)
        residual = max(residual, float(jnp.abs(arrays[f"blocks.{name}"].astype(jnp.float32) - exact).max()))
    return Transformer(model.config, arrays), residual
