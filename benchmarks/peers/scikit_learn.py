"""scikit-learn with its fastest solvers for tall matrices: `covariance_eigh`, Lloyd's k-means."""

from typing import Any

import numpy as np
from sklearn import cluster, decomposition

from benchmarks.peers import numpy_careful
from jaxgeom.results import PCA, KMeans, Removal

apply_removal = numpy_careful.apply_removal


def pca(x: Any, n_components: int) -> PCA:
    """Return the leading principal components."""
    fit = decomposition.PCA(n_components, svd_solver="covariance_eigh").fit(x)
    return PCA(fit.mean_, fit.components_, fit.explained_variance_, fit.explained_variance_ratio_)


def kmeans(x: Any, n_clusters: int, *, init: Any, max_iter: int = 300) -> KMeans:
    """Return Lloyd's iterations from given centroids."""
    fit = cluster.KMeans(
        n_clusters, init=init, n_init=1, max_iter=max_iter, tol=0, algorithm="lloyd"
    ).fit(x)
    counts = np.bincount(fit.labels_, minlength=n_clusters)
    converged = fit.n_iter_ < max_iter
    return KMeans(fit.cluster_centers_, fit.labels_, counts, fit.inertia_, fit.n_iter_, converged)


def fit_removal(
    x: Any, labels: Any = None, *, n_clusters: int = 1, n_directions: int = 0, which: str = "top"
) -> Removal:
    """Return each cluster's principal directions by a PCA of its rows less their mean.

    `covariance_eigh` takes the mean off the Gram matrix; far from the origin float32 loses the
    directions by that.
    """
    if not n_directions or which != "top":
        raise NotImplementedError("a PCA of the top directions only")
    parts = [x] if labels is None else [x[labels == c] for c in range(n_clusters)]
    means = [part.mean(0) for part in parts]
    fits = [pca(part - mean, n_directions) for part, mean in zip(parts, means, strict=True)]
    return Removal(
        np.stack(means),
        np.stack([fit.components for fit in fits]),
        np.array([len(part) for part in parts]),
        np.zeros(len(parts), bool),
    )
