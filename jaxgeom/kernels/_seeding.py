"""First centroids for k-means: k-means++ or distinct random rows, for all restarts together."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxgeom.kernels._accumulate import map_rows
from jaxgeom.kernels._arrays import compute_dtype
from jaxgeom.kernels._linalg import matmul
from jaxgeom.kernels._moments import mean_of_rows


@partial(jax.jit, static_argnames=("n_clusters", "n_init", "init", "chunk_size"))
def seed_centroids(
    x: Float[Array, "n d"],
    key: Array,
    *,
    n_clusters: int,
    n_init: int,
    init: str,
    chunk_size: int | None,
) -> Float[Array, "r c d"]:
    """Return first centroids for each of `n_init` restarts."""
    keys = jax.random.split(key, n_init)
    if init == "random":
        draw = partial(jax.random.choice, a=x.shape[0], shape=(n_clusters,), replace=False)
        rows = jax.vmap(draw)(keys)
    else:
        uniforms = jax.vmap(lambda k: jax.random.uniform(k, (n_clusters,)))(keys)
        rows = _plus_plus(x, uniforms, chunk_size)
    return x[rows].astype(compute_dtype(x))


@partial(jax.jit, static_argnames="n_clusters")
def plus_plus_of_each(x: Float[Array, "n d"], keys: Array, *, n_clusters: int) -> Array:
    """Return [r c d], what `kmeans` draws with each of the keys and one restart, drawn together.

    A pass over the rows serves every restart: drawn one by one they cost r times as many.
    """
    of_restart = jax.vmap(lambda key: jax.random.split(key, 1)[0])(keys)
    uniforms = jax.vmap(lambda key: jax.random.uniform(key, (n_clusters,)))(of_restart)
    return x[_plus_plus(x, uniforms, None)].astype(compute_dtype(x))


def _plus_plus(
    x: Float[Array, "n d"], uniforms: Float[Array, "r c"], chunk_size: int | None
) -> Int[Array, "r c"]:
    """Return the rows that k-means++ picks; one uniform decides each pick."""
    n = x.shape[0]
    n_init, n_clusters = uniforms.shape
    origin = mean_of_rows(x, chunk_size)

    def distance_to(chosen: Int[Array, " r"]) -> Float[Array, "r n"]:
        distance = _squared_distances(x, x[chosen], origin, chunk_size).T
        # Exactly 0, not its rounding: a row that was drawn must not be drawn again.
        return distance.at[jnp.arange(n_init), chosen].set(0)

    def pick(j: Int[Array, ""] | int, state: tuple) -> tuple:
        nearest, rows = state
        chosen = jax.vmap(_draw)(nearest, uniforms[:, j])
        return jnp.minimum(nearest, distance_to(chosen)), rows.at[:, j].set(chosen)

    first = jnp.minimum((uniforms[:, 0] * n).astype(jnp.int32), n - 1)
    nearest = distance_to(first)
    rows = jnp.zeros((n_init, n_clusters), jnp.int32).at[:, 0].set(first)
    return lax.fori_loop(1, n_clusters, pick, (nearest, rows))[1]


def _draw(weights: Float[Array, " n"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Return an index with probability proportional to its weight, by inverting the running sum."""
    running = jnp.cumsum(weights)
    index = jnp.searchsorted(running, uniform * running[-1], side="right")
    return jnp.minimum(index, weights.size - 1).astype(jnp.int32)


def _squared_distances(
    x: Float[Array, "n d"],
    centroids: Float[Array, "r d"],
    origin: Float[Array, " d"],
    chunk_size: int | None,
) -> Float[Array, "n r"]:
    """Return the squared distance of every row to every centroid, never below 0."""
    centroids = centroids.astype(origin.dtype) - origin[None, :]
    square = jnp.square(centroids).sum(1)

    def distances(part: Float[Array, "b d"]) -> Float[Array, "b r"]:
        part = part.astype(origin.dtype) - origin[None, :]
        cross = matmul(part, centroids.T)
        return jnp.maximum(jnp.square(part).sum(1)[:, None] - 2 * cross + square[None, :], 0)

    return map_rows(distances, x, chunk_size=chunk_size)
