"""What every kernel does at its door: take NumPy or JAX arrays in, check them, pick a precision."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from jaxgeom import _checks


def as_array(name: str, x: Any) -> Array | np.ndarray:
    """Return `x` as an array in the dtype it came with; raise `TypeError` where it is none.

    A NumPy array stays one until it was checked: JAX would first cut it down to 32 bits.
    """
    if isinstance(x, np.ndarray) and x.dtype.kind not in "OSU":
        return x
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array, got {type(x).__name__}") from error


def as_matrix(name: str, x: ArrayLike, axes: str = "n d") -> Array:
    """Return `x` as a checked floating JAX matrix in its own dtype."""
    array = as_array(name, x)
    _checks.matrix(name, array, axes)
    return jnp.asarray(array)


def as_labels(name: str, x: ArrayLike, length: int, n_clusters: int) -> Array:
    """Return `x` as checked int32 labels; values are read unless a transformation hides them."""
    array = as_array(name, x)
    _checks.labels(name, array if _is_traced(array) else np.asarray(array), length, n_clusters)
    return jnp.asarray(array).astype(jnp.int32)


def compute_dtype(*arrays: Array | np.ndarray) -> jnp.dtype:
    """Return the dtype a statistic is held in: float64 for float64 data, else float32."""
    return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)


def _is_traced(x: Array | np.ndarray) -> bool:
    """Whether `x` is being traced, so that only its shape and dtype are known."""
    return isinstance(x, jax.core.Tracer)
