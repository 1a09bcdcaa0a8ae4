"""faiss: k-means with all rows (by default it trains on a sample), and nearest centroids."""

from typing import Any

import faiss
import numpy as np

from jaxgeom.results import KMeans


def kmeans(x: Any, n_clusters: int, *, init: Any, max_iter: int = 300) -> KMeans:
    """Return `max_iter` iterations from given centroids: faiss does not stop where none moves."""
    fit = faiss.Kmeans(
        x.shape[1], n_clusters, niter=max_iter, min_points_per_centroid=1,
        max_points_per_centroid=len(x),
    )  # fmt: skip
    fit.train(x, init_centroids=init)
    distance, labels = fit.index.search(x, 1)
    labels = labels[:, 0].astype(np.int32)
    counts = np.bincount(labels, minlength=n_clusters)
    inertia = distance.sum(dtype=np.float64)
    return KMeans(fit.centroids, labels, counts, inertia, max_iter, False)


def assign(x: Any, centroids: Any) -> Any:
    """Return each row's nearest centroid."""
    index = faiss.IndexFlatL2(x.shape[1])
    index.add(centroids)
    return index.search(x, 1)[1][:, 0]
