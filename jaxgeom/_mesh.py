"""Meshes of one axis, along which rows lie, and how arrays are laid out over them."""

from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

T = TypeVar("T")

AXIS = "rows"
ROWS, COMMON = PartitionSpec(AXIS), PartitionSpec()


def row_mesh(devices: list[jax.Device] | None = None) -> Mesh:
    """Return a mesh of one axis; by default over all devices of all processes."""
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh((len(devices),), (AXIS,), axis_types=(AxisType.Auto,), devices=devices)


def shared_mesh() -> Mesh | None:
    """Return a mesh over all devices of all processes where there are several, None for one."""
    return row_mesh() if jax.device_count() > 1 else None


def place(tree: T, mesh: Mesh, spec: PartitionSpec = COMMON) -> T:
    """Return arrays that are the same on every process, laid out over a mesh.

    Args:
        tree: arrays in a pytree.
        mesh: from `row_mesh`.
        spec: `COMMON`, every device holds all of it, or `ROWS`, each its share of the first axis.

    Returns:
        The tree of global arrays.
    """

    def put(a: Any) -> Array:
        host, sharding = np.asarray(a), NamedSharding(mesh, spec)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(put, tree)
