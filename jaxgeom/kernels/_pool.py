"""Means over segments: sentence vectors out of token vectors."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxgeom import _checks
from jaxgeom.kernels._arrays import as_labels, as_matrix, compute_dtype


def segment_mean(x: ArrayLike, segment_ids: ArrayLike, *, num_segments: int) -> Float[Array, "s d"]:
    """Return the mean of the rows of each segment, such as a sentence's tokens.

    Args:
        x: [n d] floating.
        segment_ids: [n] integer in 0..num_segments - 1, in any order.
        num_segments: s, static.

    Returns:
        [s d] float32 (float64 for float64 data); 0 for a segment without rows.

    Raises:
        TypeError: `x` is not floating or `segment_ids` not integer.
        ValueError: a shape does not fit, or a segment is out of range. Under a transformation
            segments cannot be read: there a row out of range counts for none.

    Numerics:
        Sums in float32 (float64). A row with NaN or infinity reaches its own segment alone.
        Differentiable in `x`.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> x = np.array([[1.0], [3.0], [8.0]])
        >>> jg.segment_mean(x, np.array([0, 0, 1]), num_segments=2).tolist()
        [[2.0], [8.0]]
    """
    x = as_matrix("x", x)
    num_segments = _checks.integer("num_segments", num_segments, 1)
    segment_ids = as_labels("segment_ids", segment_ids, x.shape[0], num_segments)
    return _segment_mean(x, segment_ids, num_segments=num_segments)


@partial(jax.jit, static_argnames="num_segments")
def _segment_mean(
    x: Float[Array, "n d"], segment_ids: Int[Array, " n"], *, num_segments: int
) -> Float[Array, "s d"]:
    """Divide the sums by the counts."""
    total, count = segment_sums(x, segment_ids, num_segments)
    return total / jnp.maximum(count, 1)[:, None]


def segment_sums(
    x: Float[Array, "n d"], segment_ids: Int[Array, " n"], num_segments: int
) -> tuple[Float[Array, "s d"], Int[Array, " s"]]:
    """Return the sum and the count of the rows of each segment; one out of range is of none."""
    total = jax.ops.segment_sum(x.astype(compute_dtype(x)), segment_ids, num_segments)
    count = jax.ops.segment_sum(jnp.ones(x.shape[0], jnp.int32), segment_ids, num_segments)
    return total, count
