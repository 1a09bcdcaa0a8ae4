"""k-means: Lloyd's iterations from k-means++, random or given centroids, best of several restarts.

Rows are read relative to their common mean, so that a space far from the origin loses no digits to
|x|^2 - 2 x.c + |c|^2. All restarts draw their centroids together, in one pass over the rows a draw.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Int

from jaxgeom import _checks
from jaxgeom.kernels import _bounds
from jaxgeom.kernels._accumulate import fold_rows, map_rows, namespace, sum_over_devices
from jaxgeom.kernels._arrays import as_array, as_matrix, compute_dtype
from jaxgeom.kernels._linalg import matmul
from jaxgeom.kernels._moments import count_rows, mean_of_rows
from jaxgeom.kernels._nearest import nearest, nearest_labels
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
        `KMeans(centroids [c d], labels [n], counts [c], inertia, n_iter, converged)`. The labels
        are those of the returned centroids, also where the run ended before it converged; the
        counts are those of the labels, the inertia is the sum of the rows' squared distances to the
        centroids of their labels.

    Raises:
        TypeError: `x` is not floating, `key` not a typed key, or an option of the wrong kind.
        ValueError: a shape does not fit, an option is out of range, or the key is missing.

    Numerics:
        Distances in float32 about the mean of the rows: what is closer together than about 3e-4 of
        its distance to that mean cannot be told apart. A tie goes to the lowest label. An empty
        cluster keeps its centroid and has count 0. With fewer distinct rows than clusters,
        k-means++ repeats rows. A row with NaN or infinity is nearest to no centroid, and not kept
        apart: it reaches every centroid, the inertia is NaN, and no run converges. No gradient.

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


class ClusterSums(NamedTuple):
    """What one pass over the rows leaves: each cluster's total, count and the squared distances."""

    total: Float[Array, "c d"]
    counts: Int[Array, " c"]
    inertia: Float[Array, ""]


class ClusterSumsAccumulator(NamedTuple):
    """One assignment of rows to centroids and their sums, as a commutative monoid."""

    centroids: Float[Array, "c d"]  # relative to `origin`, as are the totals
    origin: Float[Array, " d"]

    @property
    def sliced(self) -> bool:
        """See `Accumulator`."""
        return True

    def init(self, n_features: int, dtype: DTypeLike) -> ClusterSums:
        """Return the sums over no rows."""
        c = self.centroids.shape[0]
        return ClusterSums(
            jnp.zeros((c, n_features), dtype), jnp.zeros(c, jnp.int32), jnp.zeros((), dtype)
        )

    def update(
        self,
        state: ClusterSums,
        x: Float[Array, "b d"],
        mask: Bool[Array, " b"] | None = None,
        *,
        with_inertia: bool = True,
    ) -> ClusterSums:
        """Return the sums with the rows of `x` added, by products with a one-hot matrix."""
        x = x.astype(self.centroids.dtype) - self.origin[None, :]
        x = x if mask is None else jnp.where(mask[:, None], x, 0)
        labels = nearest(x, self.centroids)
        labels = labels if mask is None else jnp.where(mask, labels, -1)
        member = jax.nn.one_hot(labels, self.centroids.shape[0], dtype=x.dtype)
        inertia = state.inertia
        if with_inertia:  # from the differences themselves: nothing cancels
            inertia = inertia + jnp.square(x - matmul(member, self.centroids)).sum()
        counts = state.counts + member.sum(0).astype(jnp.int32)
        return ClusterSums(state.total + matmul(member.T, x), counts, inertia)

    def merge(self, a: ClusterSums, b: ClusterSums) -> ClusterSums:
        """Return the sums over the rows of both."""
        return ClusterSums(a.total + b.total, a.counts + b.counts, a.inertia + b.inertia)

    def all_reduce(self, state: ClusterSums, axis: str) -> ClusterSums:
        """Return the sums over the rows of all devices."""
        return lax.psum(state, axis)


def moved_centroids(
    sums: ClusterSums, centroids: Float[Array | np.ndarray, "c d"]
) -> Float[Array | np.ndarray, "c d"]:
    """Return each cluster's mean, about the origin; an empty one keeps its centroid."""
    counts = sums.counts[:, None]
    xp = namespace(sums.total)
    return xp.where(counts > 0, sums.total / xp.maximum(counts, 1), centroids)


class _Rows(NamedTuple):
    """The rows of a run, and how they are read; with an axis, those of one of its devices."""

    x: Float[Array, "n d"]
    mask: Bool[Array, " n"] | None
    origin: Float[Array, " d"]
    chunk_size: int | None
    axis: str | None

    def sums(self, centroids: Float[Array, "c d"]) -> ClusterSums:
        """Assign every row once and sum, over all devices; the inertia stays 0."""
        accumulator = ClusterSumsAccumulator(centroids, self.origin)
        update = partial(accumulator.update, with_inertia=False)
        start = accumulator.init(self.x.shape[1], centroids.dtype)
        sums = fold_rows(update, start, self.x, self.mask, chunk_size=self.chunk_size)
        return sum_over_devices(sums, self.axis)

    def labelled(self, centroids: Float[Array, "c d"]) -> tuple[Int[Array, " n"], Float[Array, ""]]:
        """Return every row's nearest centroid, and the inertia of these labels on all devices."""

        def label(part: Float[Array, "b d"]) -> tuple[Int[Array, " b"], Float[Array, " b"]]:
            part = part.astype(centroids.dtype) - self.origin[None, :]
            labels = nearest(part, centroids)
            member = jax.nn.one_hot(labels, centroids.shape[0], dtype=part.dtype)
            return labels, jnp.square(part - matmul(member, centroids)).sum(1)

        labels, squares = map_rows(label, self.x, chunk_size=self.chunk_size)
        squares = squares if self.mask is None else jnp.where(self.mask, squares, 0)
        return labels, sum_over_devices(squares.sum(), self.axis)

    def counts(self, labels: Int[Array, " n"], n_clusters: int) -> Int[Array, " c"]:
        """Return how many rows have each label, on all devices."""
        member = labels[:, None] == lax.iota(jnp.int32, n_clusters)[None, :]
        member = member if self.mask is None else member & self.mask[:, None]
        return sum_over_devices(member.sum(0, dtype=jnp.int32), self.axis)


@partial(jax.jit, static_argnames=("chunk_size", "axis"))
def _kmeans(
    x: Float[Array, "n d"],
    start: Float[Array, "r c d"],
    max_iter: Int[Array, ""],
    tol: Float[Array, ""],
    mask: Bool[Array, " n"] | None = None,
    *,
    chunk_size: int | None = None,
    axis: str | None = None,
) -> KMeans:
    """Run every restart, one after the other, and keep the one of least inertia.

    Within `shard_map`, `axis` names the mesh axis that the rows lie along, and `mask` says which of
    a device's rows are real. Labels are the device's own, everything else is common to all.
    """
    x, start = lax.stop_gradient((x, start))
    origin, variance = _origin_and_variance(x, mask, chunk_size, axis)
    rows = _Rows(x, mask, origin, chunk_size, axis)
    least_step = tol * variance
    # on a GPU a whole pass costs less than finding out what could be left out of it
    alone = mask is None and axis is None and jax.default_backend() == "cpu"
    bounded = _bounds.rows_of(x, origin, chunk_size) if alone else None

    def restart(centroids: Float[Array, "c d"]) -> tuple[_Lloyd, Array, Array]:
        if bounded is None:
            run = _lloyd(rows, centroids, max_iter, least_step)
        else:
            run = _bounded_lloyd(bounded, centroids, max_iter, least_step)
        return run, *rows.labelled(run.centroids)

    runs = lax.map(restart, start - origin[None, None, :])
    run, labels, inertia = jax.tree.map(lambda a: a[jnp.argmin(runs[2])], runs)
    return KMeans(
        run.centroids + origin[None, :],
        labels,
        rows.counts(labels, start.shape[1]),
        inertia,
        run.n_iter,
        _has_converged(run, least_step),
    )


def _lloyd(
    rows: _Rows,
    start: Float[Array, "c d"],
    max_iter: Int[Array, ""],
    least_step: Float[Array, ""],
) -> _Lloyd:
    """Move each centroid to the mean of its rows until the step is small.

    The step is taken between two carried values: inside one fused expression a centroid may be
    rounded differently from the one that was stored, and no step would ever be 0.
    """

    def move(state: _Lloyd) -> _Lloyd:
        sums = rows.sums(state.centroids)
        moved = jnp.asarray(moved_centroids(sums, state.centroids))
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


@partial(jax.jit, static_argnames="chunk_size")
def _assign(
    x: Float[Array, "n d"], centroids: Float[Array, "c d"], *, chunk_size: int | None = None
) -> Int[Array, " n"]:
    """Assign about the centroids' own mean."""
    return nearest_labels(x, centroids, chunk_size)


def _origin_and_variance(
    x: Float[Array, "n d"],
    mask: Bool[Array, " n"] | None,
    chunk_size: int | None,
    axis: str | None,
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """Return the mean of the rows and the mean over the features of their variance."""
    origin = mean_of_rows(x, chunk_size, mask, axis)

    def update(
        total: Float[Array, ""], part: Float[Array, "b d"], kept: Bool[Array, " b"] | None
    ) -> Float[Array, ""]:
        squares = jnp.square(part.astype(origin.dtype) - origin[None, :])
        return total + (squares if kept is None else jnp.where(kept[:, None], squares, 0)).sum()

    total = fold_rows(update, jnp.zeros((), origin.dtype), x, mask, chunk_size=chunk_size)
    return origin, sum_over_devices(total, axis) / (count_rows(x, mask, axis) * x.shape[1])
