"""First centroids for k-means: k-means++ or distinct random rows, for all restarts together.

One uniform decides each pick, so that a run over the devices of a mesh repeats the draw: with an
`axis` (inside `shard_map`) the rows lie along it in order, `mask` says which of them are real, and
the number of a row counts through all devices.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxgeom.kernels._accumulate import map_rows
from jaxgeom.kernels._arrays import compute_dtype
from jaxgeom.kernels._linalg import matmul
from jaxgeom.kernels._moments import count_rows, mean_of_rows


@partial(jax.jit, static_argnames=("n_clusters", "n_init", "init", "chunk_size", "axis", "n_rows"))
def seed_centroids(
    x: Float[Array, "n d"],
    key: Array,
    mask: Bool[Array, " n"] | None = None,
    *,
    n_clusters: int,
    n_init: int,
    init: str,
    chunk_size: int | None,
    axis: str | None = None,
    n_rows: int | None = None,
) -> Float[Array, "r c d"]:
    """Return first centroids for each of `n_init` restarts; `n_rows` are real, by default all."""
    keys = jax.random.split(key, n_init)
    if init == "random":
        a = x.shape[0] if n_rows is None else n_rows
        draw = partial(jax.random.choice, a=a, shape=(n_clusters,), replace=False)
        rows = _row_number(jax.vmap(draw)(keys), mask, axis)
    else:
        uniforms = jax.vmap(lambda k: jax.random.uniform(k, (n_clusters,)))(keys)
        rows = _plus_plus(x, uniforms, chunk_size, mask, axis)
    return _take_rows(x, rows, axis).astype(compute_dtype(x))


@partial(jax.jit, static_argnames="n_clusters")
def plus_plus_of_each(x: Float[Array, "n d"], keys: Array, *, n_clusters: int) -> Array:
    """Return [r c d], what `kmeans` draws with each of the keys and one restart, drawn together.

    A pass over the rows serves every restart: drawn one by one they cost r times as many.
    """
    of_restart = jax.vmap(lambda key: jax.random.split(key, 1)[0])(keys)
    uniforms = jax.vmap(lambda key: jax.random.uniform(key, (n_clusters,)))(of_restart)
    return x[_plus_plus(x, uniforms, None)].astype(compute_dtype(x))


def _plus_plus(
    x: Float[Array, "n d"],
    uniforms: Float[Array, "r c"],
    chunk_size: int | None,
    mask: Bool[Array, " n"] | None = None,
    axis: str | None = None,
) -> Int[Array, "r c"]:
    """Return the rows that k-means++ picks; one uniform decides each pick."""
    n_init, n_clusters = uniforms.shape
    origin = mean_of_rows(x, chunk_size, mask, axis)

    def distance_to(chosen: Int[Array, " r"]) -> Float[Array, "r n"]:
        distance = _squared_distances(x, _take_rows(x, chosen, axis), origin, chunk_size).T
        # Exactly 0, not its rounding: a row that was drawn must not be drawn again.
        own = _own_rows(chosen, x.shape[0], axis)
        distance = distance.at[jnp.arange(n_init), own].set(0, mode="drop")
        return distance if mask is None else jnp.where(mask[None, :], distance, 0)

    def pick(j: Int[Array, ""] | int, state: tuple) -> tuple:
        closest, rows = state
        chosen = jax.vmap(partial(_draw, axis=axis))(closest, uniforms[:, j])
        return jnp.minimum(closest, distance_to(chosen)), rows.at[:, j].set(chosen)

    n = count_rows(x, mask, axis)
    first = jnp.minimum((uniforms[:, 0] * n).astype(jnp.int32), n - 1)
    first = _row_number(first, mask, axis)
    rows = jnp.zeros((n_init, n_clusters), jnp.int32).at[:, 0].set(first)
    return lax.fori_loop(1, n_clusters, pick, (distance_to(first), rows))[1]


def _draw(
    weights: Float[Array, " n"], uniform: Float[Array, ""], axis: str | None
) -> Int[Array, ""]:
    """Return a row with probability proportional to its weight, by inverting the running sum."""
    running = jnp.cumsum(weights)
    if axis is None:
        return _invert(running, uniform * running[-1])
    totals = jnp.cumsum(lax.all_gather(running[-1], axis))
    target = uniform * totals[-1]
    owner = _invert(totals, target)
    target = target - jnp.where(owner > 0, totals[owner - 1], 0)
    return _from_owner(_invert(running, target), owner, weights.size, axis)


def _invert(running: Float[Array, " n"], target: Float[Array, ""]) -> Int[Array, ""]:
    """Return where the running sum passes `target`: at the latest, where it reaches its total."""
    index = jnp.searchsorted(running, target, side="right")
    last = jnp.searchsorted(running, running[-1], side="left")
    return jnp.minimum(jnp.minimum(index, last), running.size - 1).astype(jnp.int32)


def _row_number(
    real: Int[Array, "*r"], mask: Bool[Array, " n"] | None, axis: str | None
) -> Int[Array, "*r"]:
    """Return the numbers of rows that are counted among the real ones alone."""
    if mask is None:
        return real
    running = jnp.cumsum(mask, dtype=jnp.int32)
    if axis is None:
        return jnp.searchsorted(running, real, side="right").astype(jnp.int32)
    ends = jnp.cumsum(lax.all_gather(running[-1], axis))
    owner = jnp.searchsorted(ends, real, side="right").astype(jnp.int32)
    before = jnp.where(owner > 0, ends[owner - 1], 0)
    here = jnp.searchsorted(running, real - before, side="right").astype(jnp.int32)
    return _from_owner(here, owner, mask.size, axis)


def _from_owner(
    here: Int[Array, "*r"], owner: Int[Array, "*r"], size: int, axis: str
) -> Int[Array, "*r"]:
    """Return the row that the owning device found among its own, counted through all devices."""
    mine = lax.axis_index(axis) == owner
    return owner * size + lax.psum(jnp.where(mine, here, 0), axis)


def _own_rows(rows: Int[Array, "*r"], size: int, axis: str | None) -> Int[Array, "*r"]:
    """Return row numbers within this device's `size` rows; `size` itself for another's row."""
    if axis is None:
        return rows
    own = rows - lax.axis_index(axis) * size
    return jnp.where((own >= 0) & (own < size), own, size)


def _take_rows(
    x: Float[Array, "n d"], rows: Int[Array, "*r"], axis: str | None
) -> Float[Array, "*r d"]:
    """Return rows of `x`, wherever along the mesh axis they lie."""
    if axis is None:
        return x[rows]
    own = _own_rows(rows, x.shape[0], axis)
    return lax.psum(x.at[own].get(mode="fill", fill_value=0), axis)


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
