"""NumPy and SciPy as a careful user writes them: one triangle of a Gram, chunks, float32, no loops.

The Gram is BLAS's `syrk` (half the work of `x.T @ x`), eigenvectors are LAPACK's `evd`, and the
exponentials are taken of one slice of rows at a time, both signs from one `exp`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import blas, eigh

from jaxgeom import reference
from jaxgeom.results import PCA, Isotropy, KMeans, Moments, Removal

_ROWS = 1024  # a slice and its projection stay in the cache


def slices(n: int) -> Iterator[slice]:
    """Yield the slices of `n` rows."""
    return (slice(start, start + _ROWS) for start in range(0, n, _ROWS))


def gram(x: Any) -> Any:
    """Return xᵀx from one triangle."""
    upper = blas.ssyrk(1.0, x.T) if x.flags.c_contiguous else blas.ssyrk(1.0, x, trans=1)
    return np.triu(upper) + np.triu(upper, 1).T


def moments(x: Any) -> Moments:
    """Return count, mean and scatter about the mean."""
    mean = x.mean(axis=0)
    return Moments(len(x), mean, gram(x - mean))


def cluster_moments(x: Any, labels: Any, *, n_clusters: int) -> Moments:
    """Return the moments of each cluster, its rows taken out by a mask."""
    parts = [moments(x[labels == c]) for c in range(n_clusters)]
    return Moments(*(np.stack(field) for field in zip(*parts, strict=True)))


def leading(scatter: Any, k: int) -> tuple[Any, Any]:
    """Return the `k` largest eigenvalues, descending, and their eigenvectors as rows."""
    values, vectors = eigh(scatter, driver="evd", check_finite=False, overwrite_a=True)
    return values[: -k - 1 : -1], vectors[:, : -k - 1 : -1].T


def pca(x: Any, n_components: int) -> PCA:
    """Return the leading principal components."""
    m = moments(x)
    total = np.trace(m.scatter)
    values, components = leading(m.scatter, n_components)
    return PCA(m.mean, components, values / (len(x) - 1), values / total)


def log_partition(x: Any, components: Any) -> Any:
    """Return ln F(+u) and ln F(-u); one exponential serves both signs where none overflows."""
    total = np.zeros((2, len(components)))
    for rows in slices(len(x)):
        projected = x[rows] @ components.T
        if max(projected.max(), -projected.min()) > 80:
            return _shifted_log_partition(x, components)
        e = np.exp(projected, out=projected)
        total[0] += e.sum(axis=0)
        total[1] += np.reciprocal(e, out=e).sum(axis=0)
    return np.log(total)


def _shifted_log_partition(x: Any, components: Any) -> Any:
    """Return the same by a running maximum."""
    shift = np.full((2, len(components)), -np.inf, np.float32)
    total = np.zeros((2, len(components)))
    for rows in slices(len(x)):
        projected = x[rows] @ components.T
        for sign, part in enumerate((projected, -projected)):
            higher = np.maximum(shift[sign], part.max(axis=0))
            total[sign] *= np.exp(shift[sign] - higher)
            total[sign] += np.exp(part - higher).sum(axis=0)
            shift[sign] = higher
    return shift + np.log(total)


def isotropy(x: Any) -> Isotropy:
    """Return the isotropy of the rows as they are: Gram, eigenvectors, ln F of both signs."""
    values, components = leading(gram(x), x.shape[1])
    log_f = log_partition(x, components)
    heavier, low, high, symmetric = map(np.exp, reference.log_isotropy(log_f))
    return Isotropy(heavier, low, high, symmetric, len(x), log_f, values, components)


def kmeans(x: Any, n_clusters: int, *, init: Any, max_iter: int = 300) -> KMeans:
    """Return Lloyd's iterations from given centroids."""
    centroids, labels = np.array(init), None
    for n_iter in range(1, max_iter + 1):  # noqa: B007  # reported
        before, labels = labels, assign(x, centroids)
        counts = np.bincount(labels, minlength=n_clusters)
        member = np.zeros((n_clusters, len(x)), np.float32)
        member[labels, np.arange(len(x))] = 1
        centroids = np.where(
            counts[:, None] > 0, member @ x / np.maximum(counts, 1)[:, None], centroids
        ).astype(np.float32)
        if before is not None and np.array_equal(before, labels):
            break
    labels = assign(x, centroids)
    inertia = np.square(x - centroids[labels]).sum(dtype=np.float64)
    counts = np.bincount(labels, minlength=n_clusters)
    return KMeans(centroids, labels, counts, inertia, n_iter, n_iter < max_iter)


def assign(x: Any, centroids: Any) -> Any:
    """Return each row's nearest centroid."""
    origin = centroids.mean(axis=0)
    near = centroids - origin
    return np.argmax((x - origin) @ near.T - np.square(near).sum(axis=1) / 2, axis=1)


def fit_removal(
    x: Any,
    labels: Any = None,
    *,
    n_clusters: int = 1,
    n_directions: int = 0,
    which: str = "top",
) -> Removal:
    """Return means, and the top directions by LAPACK's eigenvectors of the largest eigenvalues."""
    labels = np.zeros(len(x), np.int32) if labels is None else labels
    means, components, counts = [], [], []
    for c in range(n_clusters):
        part = x[labels == c] if n_clusters > 1 else x
        means.append(part.mean(axis=0))
        counts.append(len(part))
        if n_directions:
            components.append(_directions(gram(part - means[-1]), n_directions, which))
    shape = (n_clusters, n_directions, x.shape[1])
    directions = np.reshape(np.array(components, np.float32), shape)
    return Removal(np.stack(means), directions, np.array(counts), np.zeros(n_clusters, bool))


def _directions(scatter: Any, k: int, which: str) -> Any:
    """Return the first or the last `k` principal directions as rows, heaviest first."""
    d = len(scatter)
    chosen = [d - k, d - 1] if which == "top" else [0, k - 1]
    vectors = eigh(scatter, subset_by_index=chosen, check_finite=False, overwrite_a=True)[1]
    return vectors[:, ::-1].T


def apply_removal(x: Any, removal: Removal, labels: Any = None) -> Any:
    """Return the rows less their cluster's mean and directions."""
    if labels is None:
        return remove_directions(x - removal.means[0], removal.components[0])
    changed = np.empty_like(x)
    for c, (mean, components) in enumerate(zip(removal.means, removal.components, strict=True)):
        rows = labels == c
        changed[rows] = remove_directions(x[rows] - mean, components)
    return changed


def remove_directions(x: Any, components: Any) -> Any:
    """Return the rows less their share along the directions."""
    return x - (x @ components.T) @ components if len(components) else x


def zero_mean(x: Any) -> Any:
    """Return the rows less their mean."""
    return x - x.mean(axis=0)


def segment_mean(x: Any, segment_ids: Any, *, num_segments: int) -> Any:
    """Return the mean of each segment of rows that are sorted by segment."""
    counts = np.bincount(segment_ids, minlength=num_segments)
    present = counts > 0
    starts = (np.cumsum(counts) - counts)[present]
    means = np.zeros((num_segments, x.shape[1]), x.dtype)
    means[present] = np.add.reduceat(x, starts, axis=0) / counts[present, None]
    return means
