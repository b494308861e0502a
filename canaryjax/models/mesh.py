"""Several devices as one mesh with the axes `policy`, `data` and `model`.

A base laid on a mesh (`canaryjax.models.sharding.place_base`) is all that a trainer or a scorer needs: its arrays say
where they lie, on the host and while a program is traced. Without a mesh nothing changes.
"""

import math
from collections.abc import Mapping, Sequence

import jax
from jax.sharding import AxisType, Mesh

from canaryjax.errors import UserError
from canaryjax.models.transformer import Transformer

AXES = ("policy", "data", "model")


def make_mesh(shape: Mapping[str, int], devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Lays devices out along the axes; those of `model`, which talk most, are neighbours.

    Args:
      shape: Devices along each axis of `AXES`; an axis that is not named has one.
      devices: Which to take, from the first on; None is all devices of all processes.

    Raises:
      UserError: An unknown axis, a size below 1, more devices than there are, or a process left without any.

    >>> dict(make_mesh({"data": 1}).shape)
    {'policy': 1, 'data': 1, 'model': 1}
    """
    unknown = sorted(set(shape) - set(AXES))
    if unknown:
        raise UserError(f"expected mesh axes among {list(AXES)}; found {unknown}; correct the name")
    sizes = {axis: shape.get(axis, 1) for axis in AXES}
    if not all(isinstance(size, int) and size >= 1 for size in sizes.values()):
        raise UserError(f"expected at least one device along every axis of a mesh; found {sizes}; correct the sizes")
    devices = jax.devices() if devices is None else devices
    wanted = math.prod(sizes.values())
    if wanted > len(devices):
        raise UserError(
            f"expected a mesh of at most the {len(devices)} devices there are; found {sizes}, which takes {wanted}; "
            "make an axis smaller"
        )
    idle = _processes(devices) - _processes(devices[:wanted])
    if idle:  # it would wait for programs that it has no part in
        raise UserError(
            f"expected devices of every process in a mesh; found {sizes}, which leaves process {min(idle)} without; "
            f"make an axis larger: there are {len(devices)} devices"
        )
    return jax.make_mesh(tuple(sizes.values()), AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices[:wanted])


def _processes(devices: Sequence[jax.Device]) -> set[int]:
    return {device.process_index for device in devices}


def mesh_of(model: Transformer) -> Mesh | None:
    """The mesh a base lies on, None where it lies on one device; for the host."""
    return getattr(model.final_norm[...].sharding, "mesh", None)


def axis_size(model: Transformer, axis: str) -> int:
    """Devices along an axis of the base's mesh, 1 without a mesh; on the host and inside a program."""
    # A traced array knows the mesh it came from, though not how it is split.
    return jax.typeof(model.final_norm[...]).sharding.mesh.shape.get(axis, 1)
