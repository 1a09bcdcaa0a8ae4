"""k-means by Lloyd's iteration, from k-means++, random rows or given centroids."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, Int32
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from jaxgeom import _checks
from jaxgeom.reference._arrays import as_matrix, as_shape, mean_of_rows
from jaxgeom.results import KMeans


def kmeans(
    x: ArrayLike,
    n_clusters: int,
    *,
    key: int | np.random.Generator | None = None,
    init: ArrayLike = "k-means++",
    n_init: int = 10,
    max_iter: int = 300,
    tol: float = 0.0,
) -> KMeans:
    """Return the clustering of least inertia among `n_init` restarts of Lloyd's iteration.

    Args:
        x: [n d], any floating dtype.
        n_clusters: c in 1..n.
        key: seed or generator of the starts; None only where `init` is an array.
        init: "k-means++", "random" (distinct rows), or the starting centroids [c d].
        n_init: restarts; given centroids are one start.
        max_iter: updates of the centroids in a restart, at the most.
        tol: a restart has converged where its centroids' squared shift, summed, is at most `tol`
            times the mean variance of the columns; 0 means that they have stopped.

    Returns:
        `KMeans`: centroids [c d], labels [n] int32, counts [c] int32, inertia [], n_iter [] int32
        (updates of the best restart), converged [] bool. The labels are those of the returned
        centroids, also where the run ended before it converged; the counts are those of the labels,
        the inertia is the sum of the rows' squared distances to the centroids of their labels.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: a shape or range is wrong, `init` unknown, or `key` missing.

    Numerics:
        Ties go to the lowest index. An empty cluster keeps its centroid; its count is 0. With fewer
        distinct rows than clusters, k-means++ repeats rows. NaN gives NaN inertia and never
        converges.

    Source:
        Lloyd (1982). k-means++: Arthur and Vassilvitskii (2007), one uniform draw a centroid
        through the inverse of the cumulated squared distances (scikit-learn draws several).

    Example:
        >>> import numpy as np
        >>> fit = kmeans(np.array([[0.0], [1.0], [9.0]]), 2, init=np.array([[0.0], [1.0]]))
        >>> fit.centroids.tolist(), fit.labels.tolist(), float(fit.inertia), int(fit.n_iter)
        ([[0.5], [9.0]], [0, 0, 1], 0.5, 3)
    """
    x = as_matrix("x", x)
    n_clusters = _checks.integer("n_clusters", n_clusters, 1, len(x), "n")
    n_init = _checks.integer("n_init", n_init, 1)
    max_iter = _checks.integer("max_iter", max_iter, 1)
    _checks.non_negative("tol", tol)
    threshold = tol * x.var(axis=0).mean()
    starts = _starts(x, n_clusters, key, init, n_init)
    fits = (_lloyd(x, start, max_iter, threshold) for start in starts)
    return min(fits, key=lambda fit: fit.inertia)


def assign(x: ArrayLike, centroids: ArrayLike) -> Int32[np.ndarray, " n"]:
    """Return for every row the index of its nearest centroid.

    Args:
        x: [n d], any floating dtype.
        centroids: [c d].

    Returns:
        [n] int32 labels.

    Raises:
        TypeError: an argument is not floating.
        ValueError: an argument is no matrix or empty, or their numbers of columns differ.

    Numerics:
        Ties go to the lowest index; a row with NaN is given the label 0.

    Example:
        >>> import numpy as np
        >>> assign(np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [2.0]])).tolist()
        [0, 0, 1]
    """
    x, centroids = as_matrix("x", x), as_matrix("centroids", centroids, "c d")
    _checks.same_width("centroids", centroids, "x", x)
    return _nearest(x, centroids)


def _starts(
    x: Float64[np.ndarray, "n d"],
    n_clusters: int,
    key: int | np.random.Generator | None,
    init: ArrayLike,
    n_init: int,
) -> Iterator[Float64[np.ndarray, "c d"]]:
    """Check `init` and `key`; return an iterator over the starting centroids of all restarts."""
    if not isinstance(init, str):
        return iter([as_shape("init", init, (n_clusters, x.shape[1]), "c d")])
    _checks.option("init", init, ("k-means++", "random"))
    _checks.key_given(key)
    if isinstance(key, bool) or not isinstance(key, int | np.integer | np.random.Generator):
        raise TypeError(f"key must be an int or a numpy Generator, got {type(key).__name__}")
    draw = _plus_plus if init == "k-means++" else _random_rows
    rng = np.random.default_rng(key)
    return (draw(x, n_clusters, rng) for _ in range(n_init))


def _random_rows(
    x: Float64[np.ndarray, "n d"], n_clusters: int, rng: np.random.Generator
) -> Float64[np.ndarray, "c d"]:
    """Return distinct rows of `x`, drawn uniformly."""
    return x[rng.choice(len(x), n_clusters, replace=False)]


def _plus_plus(
    x: Float64[np.ndarray, "n d"], n_clusters: int, rng: np.random.Generator
) -> Float64[np.ndarray, "c d"]:
    """Return rows of `x`, each drawn by its squared distance to the nearest one drawn before."""
    weights = np.ones(len(x))
    rows: list[int] = []
    for _ in range(n_clusters):
        cumulated = np.cumsum(weights)
        row = np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")
        rows.append(min(int(row), len(x) - 1))  # beyond the last where all the weights are 0
        weights = cdist(x, x[rows], "sqeuclidean").min(axis=1)
    return x[rows]


def _lloyd(
    x: Float64[np.ndarray, "n d"],
    centroids: Float64[np.ndarray, "c d"],
    max_iter: int,
    threshold: float,
) -> KMeans:
    """Return the clustering that Lloyd's iteration reaches from `centroids`."""
    converged, n_iter = False, 0
    while n_iter < max_iter and not converged:
        moved = _means(x, _nearest(x, centroids), centroids)
        converged = bool(((moved - centroids) ** 2).sum() <= threshold)
        centroids, n_iter = moved, n_iter + 1
    labels = _nearest(x, centroids)
    return KMeans(
        centroids=centroids,
        labels=labels,
        counts=np.bincount(labels, minlength=len(centroids)).astype(np.int32),
        inertia=((x - centroids[labels]) ** 2).sum(),
        n_iter=np.asarray(n_iter, np.int32),
        converged=np.asarray(converged),
    )


def _nearest(
    x: Float64[np.ndarray, "n d"], centroids: Float64[np.ndarray, "c d"]
) -> Int32[np.ndarray, " n"]:
    """Return the index of each row's nearest centroid, the lowest one of a tie."""
    return cdist(x, centroids, "sqeuclidean").argmin(axis=1).astype(np.int32)


def _means(
    x: Float64[np.ndarray, "n d"],
    labels: Int32[np.ndarray, " n"],
    centroids: Float64[np.ndarray, "c d"],
) -> Float64[np.ndarray, "c d"]:
    """Return each cluster's mean; an empty one keeps its centroid."""
    moved = centroids.copy()
    for c in range(len(centroids)):
        if (labels == c).any():
            moved[c] = mean_of_rows(x[labels == c])
    return moved
