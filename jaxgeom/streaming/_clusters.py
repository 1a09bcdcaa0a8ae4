"""k-means, moments and removals of rows that are read from disk; labels are never stored."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from jaxgeom import _checks, distributed
from jaxgeom.kernels._kmeans import ClusterSums, ClusterSumsAccumulator, moved_centroids
from jaxgeom.kernels._kmeans import kmeans as kmeans_in_memory
from jaxgeom.kernels._moments import ClusterMomentsAccumulator
from jaxgeom.kernels._removal import WHICH, removal_of_moments
from jaxgeom.results import KMeans, Moments, Removal
from jaxgeom.streaming._driver import Job, Options, fold_source
from jaxgeom.streaming._sample import Sample
from jaxgeom.streaming._sources import AnySource, SourceLike, open_source
from jaxgeom.streaming._statistics import moments, on_device

FIT = ("sample", "all")
SAMPLE_SIZE = 1 << 16  # rows


def kmeans(
    x: SourceLike,
    n_clusters: int,
    *,
    key: Array,
    init: str | ArrayLike = "k-means++",
    n_init: int = 10,
    max_iter: int = 300,
    tol: float = 0.0,
    sample_size: int = SAMPLE_SIZE,
    fit: str = "sample",
    chunk_rows: int | None = None,
    progress: bool = True,
) -> KMeans:
    """Return a k-means clustering: fitted on a sample of the rows, then counted over all of them.

    Two passes: one draws the sample, one assigns every row. `fit="all"` goes on from there with
    Lloyd's iterations over all rows, one pass each.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        n_clusters: c, at most the rows of the sample.
        key: a typed key; it decides the sample and the first centroids. The sample is the same
            whatever the chunks and the number of processes.
        init: "k-means++", "random", or centroids [c d] (then one run is made).
        n_init: restarts on the sample.
        max_iter: most Lloyd iterations, on the sample and over all rows.
        tol: see `jaxgeom.kmeans`.
        sample_size: rows that are kept in memory; with as many as there are, it is exact.
        fit: "sample" or "all".
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        `KMeans(centroids [c d], labels None, counts [c], inertia, n_iter, converged)`; counts and
        inertia are of one assignment of all rows to the returned centroids, `n_iter` and
        `converged` of the sample's run or, with "all", of the iterations over all rows.
        `assign(rows, centroids)` gives labels; rounding decides a tie there as well.

    Raises:
        As `moments`, and as `jaxgeom.kmeans`.

    Numerics:
        Sums in float64 beyond 2^20 rows. NaN or infinity in a row: see `jaxgeom.kmeans`.

    Example:
        >>> import jax, numpy as np
        >>> blocks = [np.array([[0.0], [1.0]]), np.array([[10.0], [11.0]])]
        >>> sorted(kmeans(blocks, 2, key=jax.random.key(0)).centroids.ravel().tolist())
        [0.5, 10.5]
    """
    _checks.option("fit", fit, FIT)
    _checks.integer("sample_size", sample_size, n_clusters, None)
    source, options = open_source(x), Options(chunk_rows, progress)
    sample_key, fit_key = jax.random.split(key)
    sample = Sample(source, sample_size, sample_key)
    fold_source(source, [], name="sample (1/2)", options=options, watch=sample.see)
    fitted, rows = fit_sample(
        sample, n_clusters, key=fit_key, init=init, n_init=n_init, max_iter=max_iter, tol=tol
    )
    origin = rows.mean(0, dtype=np.float64)
    least_step = tol * rows.var(0, dtype=np.float64).mean()
    if fit == "all":
        fitted = _lloyd(source, fitted, origin, max_iter, least_step, options)
    sums = _assigned(source, fitted.centroids, origin, "assign (2/2)", options)
    return fitted._replace(labels=None, counts=sums.counts, inertia=sums.inertia)


def fit_sample(
    sample: Sample,
    n_clusters: int,
    *,
    key: Array,
    init: str | ArrayLike = "k-means++",
    n_init: int = 10,
    max_iter: int = 300,
    tol: float = 0.0,
) -> tuple[KMeans, np.ndarray]:
    """Cluster a sample; return process 0's clustering, on every process, and the sample's rows."""
    rows = sample.of_all_processes()

    def fit() -> KMeans:
        found = kmeans_in_memory(
            rows, n_clusters, key=key, init=init, n_init=n_init, max_iter=max_iter, tol=tol
        )
        return jax.tree.map(np.asarray, found)

    found = distributed.together(fit)
    return distributed.gather(found)[0], rows


def _lloyd(
    source: AnySource,
    fitted: KMeans,
    origin: np.ndarray,
    max_iter: int,
    least_step: float,
    options: Options,
) -> KMeans:
    """Go on with iterations over all rows, in float64 between the passes."""
    centroids = np.asarray(fitted.centroids, np.float64)
    n_iter, converged = 0, False
    while n_iter < max_iter and not converged:
        n_iter += 1
        sums = _assigned(source, centroids, origin, f"iteration {n_iter}", options)
        moved = moved_centroids(sums, centroids - origin[None, :]) + origin[None, :]
        moved = np.asarray(moved, fitted.centroids.dtype).astype(np.float64)  # as devices see it
        converged = bool(np.square(moved - centroids).sum() <= least_step)
        centroids = moved
    return fitted._replace(
        centroids=centroids.astype(fitted.centroids.dtype),
        n_iter=np.int32(n_iter),
        converged=np.bool_(converged),
    )


def _assigned(
    source: AnySource, centroids: np.ndarray, origin: np.ndarray, name: str, options: Options
) -> ClusterSums:
    """Return the sums of one assignment of every row."""
    relative = np.asarray(centroids, np.float64) - origin[None, :]
    accumulator = ClusterSumsAccumulator(jnp.asarray(relative), jnp.asarray(origin))
    (sums,) = fold_source(source, [Job(accumulator)], name=name, options=options)
    return sums


def cluster_moments(
    x: SourceLike,
    centroids: ArrayLike,
    *,
    chunk_rows: int | None = None,
    progress: bool = True,
) -> Moments:
    """Return count, mean and scatter of each cluster, in one pass.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        centroids: [c d]; a row is of the cluster of its nearest one.
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        `Moments(count [c], mean [c d], scatter [c d d])` in NumPy's int64 and float64.

    Raises:
        As `moments`; `ValueError` where the centroids are not as wide as the rows.

    Numerics:
        As `moments`. A row with NaN or infinity reaches one cluster alone, an arbitrary one.

    Example:
        >>> import numpy as np
        >>> x = [np.array([[0.0], [2.0], [7.0]])]
        >>> cluster_moments(x, np.array([[1.0], [9.0]])).mean.tolist()
        [[1.0], [7.0]]
    """
    source, centroids = open_source(x), np.asarray(centroids)
    _checks.directions("centroids", centroids, source.n_features)
    job = Job(ClusterMomentsAccumulator(jnp.asarray(centroids)))
    options = Options(chunk_rows, progress)
    (fitted,) = fold_source(source, [job], name="cluster moments", options=options)
    return fitted


def fit_removal(
    x: SourceLike,
    centroids: ArrayLike | None = None,
    *,
    n_directions: int = 0,
    which: str = "top",
    chunk_rows: int | None = None,
    progress: bool = True,
) -> Removal:
    """Return what to take from the rows: of each cluster its mean and directions, in one pass.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        centroids: [c d]; a row is of the cluster of its nearest one. All are one by default.
        n_directions: k in 0..d - 1: how many principal directions of each cluster.
        which: "top" or "least".
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        `Removal(means [c d], components [c k d], counts [c], vanishes [c])`; see
        `jaxgeom.fit_removal`.

    Raises:
        As `moments`; `ValueError` for a shape that does not fit or an option out of range.

    Example:
        >>> import numpy as np
        >>> fit = fit_removal([np.array([[3.0, 1.0], [5.0, 1.0], [7.0, 1.0]])], n_directions=1)
        >>> fit.means.tolist(), fit.components.tolist()
        ([[5.0, 1.0]], [[[1.0, 0.0]]])
    """
    source = open_source(x)
    _checks.integer("n_directions", n_directions, 0, source.n_features - 1, "d - 1")
    _checks.option("which", which, WHICH)
    if centroids is None:
        whole = moments(source, chunk_rows=chunk_rows, progress=progress)
        fitted = as_one_cluster(whole)
    else:
        fitted = cluster_moments(source, centroids, chunk_rows=chunk_rows, progress=progress)
    return removal_of(fitted, n_directions, which)


def as_one_cluster(whole: Moments) -> Moments:
    """Return the moments of all rows as those of one cluster."""
    return Moments(whole.count[None], whole.mean[None], whole.scatter[None])


def removal_of(fitted: Moments, n_directions: int, which: str = "top") -> Removal:
    """Return the removal that the host's moments of clusters call for."""
    removal = removal_of_moments(on_device(fitted), n_directions=n_directions, which=which)
    return removal._replace(counts=fitted.count)
