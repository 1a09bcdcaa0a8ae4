"""The nearest centroid of each row: what k-means, its seeding and its streams have in common."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxgeom.kernels._accumulate import map_rows
from jaxgeom.kernels._arrays import compute_dtype
from jaxgeom.kernels._linalg import matmul


def nearest(rows: Float[Array, "b d"], centroids: Float[Array, "c d"]) -> Int[Array, " b"]:
    """Return the nearest centroid of each row; |row|^2 is common to all and left out."""
    half_square = jnp.square(centroids).sum(1) / 2
    return jnp.argmax(matmul(rows, centroids.T) - half_square[None, :], axis=1).astype(jnp.int32)


def nearest_about(
    x: Float[Array, "n d"],
    centroids: Float[Array, "c d"],
    origin: Float[Array, " d"],
    chunk_size: int | None = None,
) -> Int[Array, " n"]:
    """Return every row's nearest centroid; the centroids are relative to `origin`."""

    def labels(part: Float[Array, "b d"]) -> Int[Array, " b"]:
        return nearest(part.astype(centroids.dtype) - origin[None, :], centroids)

    return map_rows(labels, x, chunk_size=chunk_size)


def nearest_labels(
    x: Float[Array, "n d"], centroids: Float[Array, "c d"], chunk_size: int | None = None
) -> Int[Array, " n"]:
    """Return every row's nearest centroid, computed about the centroids' own mean."""
    centroids = centroids.astype(compute_dtype(x, centroids))
    origin = centroids.mean(0)
    return nearest_about(x, centroids - origin[None, :], origin, chunk_size)
