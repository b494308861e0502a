"""A base and an adapter as one set of weights."""

import dataclasses

import jax
import jax.numpy as jnp

from canaryjax.errors import UserError
from canaryjax.models.lora import HEAD, Adapter, adapter_pairs, check_adapter
from canaryjax.models.transformer import Transformer, head_table, parameter_arrays


def merge_adapter(model: Transformer, adapter: Adapter) -> tuple[Transformer, float]:
    """The base with one adapter added into its kernels, for export; audits score unmerged.

    The sum is made in float32 and then rounded to the kernels' dtype, which can lose a small update altogether. A tied
    model whose head the adapter changes comes out untied: the embedding is the base's, the head another table.

    Args:
      model: The base, left as it is.
      adapter: One policy's adapter.

    Returns:
      The merged model, and the largest absolute difference between a merged kernel and the exact float32 sum: 0 in
      float32, the rounding error in bfloat16.

    Raises:
      UserError: An adapter of another base, by the array that does not fit, or a kernel that comes out NaN or infinite.
    """
    check_adapter(adapter, model.config)
    config, arrays, residual = model.config, parameter_arrays(model), 0.0
    if adapter.head is not None:
        config = dataclasses.replace(config, tied=False)
        arrays[HEAD] = head_table(model)
    for name, pair in adapter_pairs(adapter).items():
        path = HEAD if name == HEAD else f"blocks.{name}"
        kernel = arrays[path]
        update = jnp.einsum("...ir,...ro->...io", pair.a, pair.b, precision=jax.lax.Precision.HIGHEST)
        if name == HEAD:
            update = update.T  # tables are stored by vocabulary entry
        exact = kernel.astype(jnp.float32) + adapter.scale * update
        arrays[path] = exact.astype(kernel.dtype)
        if not bool(jnp.isfinite(arrays[path]).all()):
            raise UserError(
                f"expected finite merged weights; found NaN or infinity in {path}; train the adapter again, with a "
                "smaller learning rate, or merge another"
            )
        residual = max(residual, float(jnp.abs(arrays[path].astype(jnp.float32) - exact).max()))
    return Transformer(config, arrays), residual
