"""Taking away means and principal directions, of all rows together or cluster by cluster."""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from jaxgeom import _checks
from jaxgeom.reference._arrays import (
    as_floating,
    as_labels,
    as_labels_or_zero,
    as_matrix,
    mean_of_rows,
)
from jaxgeom.reference._pca import eigenvectors
from jaxgeom.results import Moments, Removal

WHICH = ("top", "least")


def fit_removal(
    x: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    n_clusters: int = 1,
    n_directions: int = 0,
    which: str = "top",
    clusters: Moments | None = None,
) -> Removal:
    """Return each cluster's mean and the directions to take away from its rows.

    Args:
        x: [n d], any floating dtype.
        labels: [n] integers in 0..n_clusters - 1; None where there is one cluster.
        n_clusters: how many clusters c there are; some may be empty.
        n_directions: k in 0..d - 1, how many eigenvectors of a cluster's scatter to remove.
        which: "top" for the heaviest k, "least" for the lightest k of all d.
        clusters: what `cluster_moments` returned for these rows; it is not read: directions of the
            rows themselves have more digits.

    Returns:
        `Removal`: means [c d], components [c k d] (eigenvalues descending), counts [c] int64,
        vanishes [c] bool: with "top" and k >= 1, the clusters of 1..k + 1 rows: nothing stays.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: a shape or range is wrong, `which` unknown, or `labels` missing.

    Numerics:
        Each component's largest |entry| is positive. An empty cluster has mean 0 and the first k
        (or last k) unit vectors. NaN in a row gives NaN in its cluster alone.

    Source:
        Mu and Viswanath (2018) for one cluster; Rajaee and Pilehvar (2021) cluster by cluster.

    Example:
        >>> import numpy as np
        >>> fit = fit_removal(np.array([[0.0, 1.0], [4.0, 1.0], [2.0, 2.0]]), n_directions=1)
        >>> fit.components.round(6).tolist()
        [[[1.0, 0.0]]]
    """
    x = as_matrix("x", x)
    d = x.shape[1]
    n_clusters = _checks.integer("n_clusters", n_clusters, 1)
    k = _checks.integer("n_directions", n_directions, 0, d - 1, "d - 1")
    _checks.option("which", which, WHICH)
    labels = as_labels_or_zero("labels", labels, len(x), n_clusters)
    if clusters is not None:
        _checks.cluster_moments("clusters", clusters, n_clusters, d)
    parts = [x[labels == c] for c in range(n_clusters)]
    counts = np.array([len(rows) for rows in parts])
    means = np.stack([mean_of_rows(rows) for rows in parts])
    pairs = zip(parts, means, strict=True)
    components = np.stack([_directions(rows, mean, k, which) for rows, mean in pairs])
    vanishes = (which == "top") & (k >= 1) & (counts >= 1) & (counts <= k + 1)
    return Removal(means, components, counts, vanishes)


def apply_removal(
    x: ArrayLike, removal: Removal, labels: ArrayLike | None = None
) -> Float64[np.ndarray, "n d"]:
    """Return the rows without the mean and the directions of their clusters.

    Args:
        x: [n d], any floating dtype: the rows `removal` was fitted on, or others.
        removal: what `fit_removal` returned, with d features.
        labels: [n] integers, the cluster of each row; None where there is one cluster.

    Returns:
        [n d] float64; rows of a cluster that vanishes are zero exactly.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: a shape is wrong, or `labels` missing or out of range.

    Numerics:
        NaN in a row, or in its cluster's mean or directions, gives a row with NaN.

    Example:
        >>> import numpy as np
        >>> x = np.array([[0.0, 1.0], [4.0, 1.0]])
        >>> apply_removal(x, fit_removal(x)).tolist()
        [[-2.0, 0.0], [2.0, 0.0]]
    """
    x = as_matrix("x", x)
    means = as_floating("removal.means", removal.means)
    components = as_floating("removal.components", removal.components)
    n_clusters, _, _ = _checks.removal(removal, x.shape[1])
    labels = as_labels_or_zero("labels", labels, len(x), n_clusters)
    out = x - means[labels]
    for c in range(n_clusters):
        rows = labels == c
        out[rows] = _project_out(out[rows], components[c])
        if removal.vanishes[c]:
            out[rows] *= 0.0  # a product, so that NaN is not hidden
    return out


def changed_scatter(clusters: Moments, components: ArrayLike) -> Float64[np.ndarray, "d d"]:
    """Return the scatter of data from which a removal was taken, without touching the data.

    The sum over clusters of (I - V^T V) S (I - V^T V), V the removed directions as rows, S the
    cluster's scatter about its own mean.

    Args:
        clusters: what `cluster_moments` returned; scatter [c d d] is read.
        components: [c k d], orthonormal rows, as in `Removal`.

    Returns:
        [d d] float64.

    Raises:
        TypeError: an argument is not floating.
        ValueError: a shape is wrong.

    Numerics:
        NaN in any cluster gives NaN.

    Example:
        >>> import numpy as np
        >>> scatter = np.array([[[8.0, 0.0], [0.0, 2.0]]])
        >>> clusters = Moments(np.array([2]), np.zeros((1, 2)), scatter)
        >>> changed_scatter(clusters, np.array([[[1.0, 0.0]]])).tolist()
        [[0.0, 0.0], [0.0, 2.0]]
    """
    scatter = as_floating("clusters.scatter", clusters.scatter)
    components = as_floating("components", components)
    _checks.scatter_and_components(scatter, components)
    total = np.zeros(scatter.shape[1:])
    for s, v in zip(scatter, components, strict=True):
        keep = np.eye(len(s)) - v.T @ v
        total += keep @ s @ keep
    return total


def zero_mean(x: ArrayLike) -> Float64[np.ndarray, "n d"]:
    """Return the rows of `x` [n d] less their mean; raises as `fit_removal` does.

    Example:
        >>> import numpy as np
        >>> zero_mean(np.array([[0.0], [4.0]])).tolist()
        [[-2.0], [2.0]]
    """
    return apply_removal(x, fit_removal(x))


def cluster_zero_mean(
    x: ArrayLike, labels: ArrayLike, *, n_clusters: int
) -> Float64[np.ndarray, "n d"]:
    """Return the rows of `x` [n d] less the means of their clusters; raises as `fit_removal` does.

    Example:
        >>> import numpy as np
        >>> x = np.array([[0.0], [4.0], [7.0]])
        >>> cluster_zero_mean(x, np.array([0, 0, 1]), n_clusters=2).tolist()
        [[-2.0], [2.0], [0.0]]
    """
    x = as_matrix("x", x)
    n_clusters = _checks.integer("n_clusters", n_clusters, 1)
    labels = as_labels("labels", labels, len(x), n_clusters)
    return apply_removal(x, fit_removal(x, labels, n_clusters=n_clusters), labels)


def remove_directions(x: ArrayLike, components: ArrayLike) -> Float64[np.ndarray, "n d"]:
    """Return the rows of `x` less their projections onto orthonormal directions; nothing centred.

    Args:
        x: [n d], any floating dtype.
        components: [k d], orthonormal rows; k = 0 changes nothing.

    Returns:
        [n d] float64.

    Raises:
        TypeError: an argument is not floating.
        ValueError: a shape is wrong.

    Example:
        >>> import numpy as np
        >>> remove_directions(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]])).tolist()
        [[0.0, 4.0]]
    """
    x, components = as_matrix("x", x), as_floating("components", components)
    _checks.directions("components", components, x.shape[1])
    return _project_out(x, components)


def _directions(
    rows: Float64[np.ndarray, "n d"], mean: Float64[np.ndarray, " d"], k: int, which: str
) -> Float64[np.ndarray, "k d"]:
    """Return the first ("top") or last ("least") k eigenvectors of the scatter about `mean`."""
    d = len(mean)
    if k == 0:
        return np.zeros((0, d))
    basis = eigenvectors(rows - mean[None, :])[1] if len(rows) else np.eye(d)
    return basis[:k] if which == "top" else basis[d - k :]


def _project_out(
    x: Float64[np.ndarray, "n d"], components: Float64[np.ndarray, "k d"]
) -> Float64[np.ndarray, "n d"]:
    """Return x (I - V^T V) for orthonormal rows V."""
    return x - (x @ components.T) @ components
