"""k-means: Lloyd's iterations from k-means++, random or given centroids, best of several restarts.

Rows are read relative to their common mean, so that a space far from the origin loses no digits to
|x|^2 - 2 x.c + |c|^2. All restarts draw their centroids together, in one pass over the rows a draw.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxgeom import _checks
from jaxgeom.kernels import _bounds
from jaxgeom.kernels._accumulate import fold_rows, map_rows
from jaxgeom.kernels._arrays import as_array, as_matrix, compute_dtype
from jaxgeom.kernels._linalg import matmul
from jaxgeom.kernels._moments import mean_of_rows
from jaxgeom.kernels._seeding import seed_centroids
from jaxgeom.results import KMeans

INIT = ("k-means++", "random")


def kmeans(
    x: ArrayLike,
    n_clusters: int,
    *,
    key: Array | None = None,
    init: str | ArrayLike = "k-means++",
    n_init: int = 10,
    max_iter: int | ArrayLike = 300,
    tol: float | ArrayLike = 0.0,
    chunk_size: int | None = None,
) -> KMeans:
    """Return the best of `n_init` k-means clusterings of the rows of `x`.

    Args:
        x: [n d] floating.
        n_clusters: c in 1..n, static.
        key: a typed key, `jax.random.key(seed)`; None only with given centroids.
        init: "k-means++", "random" (distinct rows), or centroids [c d] (then one run is made).
        n_init: restarts, at least 1, static.
        max_iter: most Lloyd iterations of one restart, at least 1.
        tol: at least 0; a restart stops once its centroids' summed squared step is at most `tol`
            times the mean variance of the features; 0 stops where nothing moves.
        chunk_size: rows held in the cache at once (static); by default chosen from d.

    Returns:
        `KMeans(centroids [c d], labels [n], counts [c], inertia, n_iter, converged)`; labels,
        counts and inertia belong to the returned centroids.

    Raises:
        TypeError: `x` is not floating, `key` not a typed key, or an option of the wrong kind.
        ValueError: a shape does not fit, an option is out of range, or the key is missing.

    Numerics:
        Distances in float32 about the mean of the rows: what is closer together than about 3e-4 of
        its distance to that mean cannot be told apart. A tie goes to the lowest label. An empty
        cluster keeps its centroid and has count 0. With fewer distinct rows than clusters,
        k-means++ repeats rows. NaN rows make inertia NaN, and no run converges. No gradient.

    Source:
        Lloyd (1982); Arthur and Vassilvitskii (2007) for k-means++, with one uniform a centroid, so
        that a run over shards or a stream can repeat the draw.

    Example:
        >>> import jax, numpy as np, jaxgeom as jg
        >>> x = np.array([[0.0], [1.0], [10.0], [11.0]])
        >>> sorted(jg.kmeans(x, 2, key=jax.random.key(0)).centroids.ravel().tolist())
        [0.5, 10.5]
    """
    x = as_matrix("x", x)
    n, d = x.shape
    n_clusters = _checks.integer("n_clusters", n_clusters, 1, n, "n")
    n_init = _checks.integer("n_init", n_init, 1)
    chunk_size = _checks.chunk_size(chunk_size)
    if not isinstance(max_iter, jax.Array):  # a traced value cannot be read
        max_iter = _checks.integer("max_iter", max_iter, 1)
    if not isinstance(tol, jax.Array):
        _checks.non_negative("tol", tol)
    if isinstance(init, str):
        _checks.option("init", init, INIT)
        start = seed_centroids(
            x,
            _typed_key(key),
            n_clusters=n_clusters,
            n_init=n_init,
            init=init,
            chunk_size=chunk_size,
        )
    else:
        start = as_array("init", init)
        _checks.shape("init", start, (n_clusters, d), "c d")
        start = jnp.asarray(start, compute_dtype(x))[None]
    max_iter, tol = jnp.asarray(max_iter, jnp.int32), jnp.asarray(tol, start.dtype)
    return _kmeans(x, start, max_iter, tol, chunk_size=chunk_size)


def assign(
    x: ArrayLike, centroids: ArrayLike, *, chunk_size: int | None = None
) -> Int[Array, " n"]:
    """Return for each row of `x` the label of its nearest centroid.

    Args:
        x: [n d] floating.
        centroids: [c d] floating.
        chunk_size: rows held in the cache at once (static); by default chosen from d.

    Returns:
        [n] int32; a tie goes to the lowest label.

    Raises:
        TypeError: an argument is not floating.
        ValueError: an argument is not a non-empty matrix, or the widths differ.

    Numerics:
        Distances in float32 about the mean of the centroids. The label of a NaN row is arbitrary.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> jg.assign(np.array([[0.0], [9.0]]), np.array([[1.0], [8.0]])).tolist()
        [0, 1]
    """
    x, centroids = as_matrix("x", x), as_matrix("centroids", centroids, "c d")
    _checks.same_width("centroids", centroids, "x", x)
    return _assign(x, centroids, chunk_size=_checks.chunk_size(chunk_size))


def _typed_key(key: Any) -> Array:
    """Return `key` where it is a typed key; else raise."""
    _checks.key_given(key)
    came = getattr(key, "dtype", type(key).__name__)
    if isinstance(came, str) or not jnp.issubdtype(came, jax.dtypes.prng_key):
        raise TypeError(f"key must be a typed key, jax.random.key(seed), got {came}")
    return key


class _Lloyd(NamedTuple):
    """One restart under way; centroids are relative to the origin of the rows."""

    centroids: Float[Array, "c d"]
    previous: Float[Array, "c d"]  # of the iteration before
    n_iter: Int[Array, ""]


class _Sums(NamedTuple):
    """What one pass over the rows leaves: each cluster's total, count and the squared distances."""

    total: Float[Array, "c d"]
    counts: Int[Array, " c"]
    inertia: Float[Array, ""]


@partial(jax.jit, static_argnames="chunk_size")
def _kmeans(
    x: Float[Array, "n d"],
    start: Float[Array, "r c d"],
    max_iter: Int[Array, ""],
    tol: Float[Array, ""],
    *,
    chunk_size: int | None = None,
) -> KMeans:
    """Run every restart, one after the other, and keep the one of least inertia."""
    x, start = lax.stop_gradient((x, start))
    origin, variance = _origin_and_variance(x, chunk_size)
    least_step = tol * variance
    # on a GPU a whole pass costs less than finding out what could be left out of it
    rows = _bounds.rows_of(x, origin, chunk_size) if jax.default_backend() == "cpu" else None

    def restart(centroids: Float[Array, "c d"]) -> tuple[_Lloyd, _Sums]:
        if rows is None:
            run = _lloyd(x, centroids, origin, max_iter, least_step, chunk_size)
        else:
            run = _bounded_lloyd(rows, centroids, max_iter, least_step)
        return run, _pass(x, run.centroids, origin, chunk_size, with_inertia=True)

    runs, sums = lax.map(restart, start - origin[None, None, :])
    best = jnp.argmin(sums.inertia)
    run, last = jax.tree.map(lambda a: a[best], (runs, sums))
    labels = _labels(x, run.centroids, origin, chunk_size)
    return KMeans(
        run.centroids + origin[None, :],
        labels,
        last.counts,
        last.inertia,
        run.n_iter,
        _has_converged(run, least_step),
    )


def _lloyd(
    x: Float[Array, "n d"],
    start: Float[Array, "c d"],
    origin: Float[Array, " d"],
    max_iter: Int[Array, ""],
    least_step: Float[Array, ""],
    chunk_size: int | None,
) -> _Lloyd:
    """Move each centroid to the mean of its rows until the step is small.

    The step is taken between two carried values: inside one fused expression a centroid may be
    rounded differently from the one that was stored, and no step would ever be 0.
    """

    def move(state: _Lloyd) -> _Lloyd:
        sums = _pass(x, state.centroids, origin, chunk_size)
        counts = sums.counts[:, None]
        moved = jnp.where(counts > 0, sums.total / jnp.maximum(counts, 1), state.centroids)
        return _Lloyd(moved, state.centroids, state.n_iter + 1)

    return lax.while_loop(
        lambda s: ~_has_converged(s, least_step) & (s.n_iter < max_iter),
        move,
        _Lloyd(start, start, jnp.zeros((), jnp.int32)),
    )


def _bounded_lloyd(
    rows: _bounds.Rows,
    start: Float[Array, "c d"],
    max_iter: Int[Array, ""],
    least_step: Float[Array, ""],
) -> _Lloyd:
    """Make the same iterations, leaving out distances that cannot matter."""
    run = lax.while_loop(
        lambda s: ~_has_converged(s, least_step) & (s.n_iter < max_iter),
        partial(_bounds.move, rows),
        _bounds.start(rows, start),
    )
    return _Lloyd(run.centroids, run.previous, run.n_iter)


def _has_converged(
    state: _Lloyd | _bounds.Bounded, least_step: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether the last iteration moved the centroids by no more than `least_step`, squared."""
    step = jnp.square(state.centroids - state.previous).sum()
    return (state.n_iter > 0) & (step <= least_step)


def _pass(
    x: Float[Array, "n d"],
    centroids: Float[Array, "c d"],
    origin: Float[Array, " d"],
    chunk_size: int | None,
    *,
    with_inertia: bool = False,
) -> _Sums:
    """Assign every row and sum the rows of each cluster, by products with a one-hot matrix."""

    def update(sums: _Sums, part: Float[Array, "b d"]) -> _Sums:
        part = part.astype(centroids.dtype) - origin[None, :]
        member = jax.nn.one_hot(_nearest(part, centroids), centroids.shape[0], dtype=part.dtype)
        inertia = sums.inertia
        if with_inertia:  # from the differences themselves: nothing cancels
            inertia = inertia + jnp.square(part - matmul(member, centroids)).sum()
        count = sums.counts + member.sum(0).astype(jnp.int32)
        return _Sums(sums.total + matmul(member.T, part), count, inertia)

    start = _Sums(
        jnp.zeros_like(centroids),
        jnp.zeros(centroids.shape[0], jnp.int32),
        jnp.zeros((), centroids.dtype),
    )
    return fold_rows(update, start, x, chunk_size=chunk_size)


def _nearest(rows: Float[Array, "b d"], centroids: Float[Array, "c d"]) -> Int[Array, " b"]:
    """Return the nearest centroid of each row; |row|^2 is common to all and left out."""
    half_square = jnp.square(centroids).sum(1) / 2
    return jnp.argmax(matmul(rows, centroids.T) - half_square[None, :], axis=1).astype(jnp.int32)


def _labels(
    x: Float[Array, "n d"],
    centroids: Float[Array, "c d"],
    origin: Float[Array, " d"],
    chunk_size: int | None,
) -> Int[Array, " n"]:
    """Return every row's nearest centroid."""

    def nearest(part: Float[Array, "b d"]) -> Int[Array, " b"]:
        return _nearest(part.astype(centroids.dtype) - origin[None, :], centroids)

    return map_rows(nearest, x, chunk_size=chunk_size)


@partial(jax.jit, static_argnames="chunk_size")
def _assign(
    x: Float[Array, "n d"], centroids: Float[Array, "c d"], *, chunk_size: int | None = None
) -> Int[Array, " n"]:
    """Assign about the centroids' own mean."""
    centroids = centroids.astype(compute_dtype(x, centroids))
    origin = centroids.mean(0)
    return _labels(x, centroids - origin[None, :], origin, chunk_size)


def _origin_and_variance(
    x: Float[Array, "n d"], chunk_size: int | None
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """Return the mean of the rows and the mean over the features of their variance."""
    origin = mean_of_rows(x, chunk_size)

    def update(total: Float[Array, ""], part: Float[Array, "b d"]) -> Float[Array, ""]:
        return total + jnp.square(part.astype(origin.dtype) - origin[None, :]).sum()

    total = fold_rows(update, jnp.zeros((), origin.dtype), x, chunk_size=chunk_size)
    return origin, total / x.size
