"""Count, mean and scatter of rows, of all of them or group by group."""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from jaxgeom import _checks
from jaxgeom.reference._arrays import as_array, as_labels, as_matrix, mean_of_rows
from jaxgeom.results import Moments


def moments(x: ArrayLike, *, mask: ArrayLike | None = None) -> Moments:
    """Return count, mean and scatter about the mean of the rows of `x`.

    Args:
        x: [n d], any floating dtype.
        mask: [n] bool, the rows that count; all of them where None.

    Returns:
        `Moments`: count [] int64, mean [d], scatter [d d]; all zero where no row counts.

    Raises:
        TypeError: `x` is not floating, or `mask` not boolean.
        ValueError: `x` is no matrix or empty, or `mask` has another length.

    Numerics:
        NaN in a row that counts gives NaN, in one that does not it is never read.

    Example:
        >>> import numpy as np
        >>> moments(np.array([[0.0, 1.0], [2.0, 1.0]])).scatter.tolist()
        [[2.0, 0.0], [0.0, 0.0]]
    """
    x = as_matrix("x", x)
    if mask is None:
        return _moments(x)
    mask = as_array("mask", mask)
    _checks.vector("mask", mask, len(x), "bool")
    return _moments(x[mask])


def cluster_moments(x: ArrayLike, labels: ArrayLike, *, n_clusters: int) -> Moments:
    """Return count, mean and scatter of every cluster of rows.

    Args:
        x: [n d], any floating dtype.
        labels: [n] integers in 0..n_clusters - 1.
        n_clusters: how many clusters c there are; some may be empty.

    Returns:
        `Moments`: count [c] int64, mean [c d], scatter [c d d]; all zero for an empty cluster.

    Raises:
        TypeError: `x` is not floating, `labels` not integer, or `n_clusters` no int.
        ValueError: `x` is no matrix or empty, `labels` has another length or is out of range.

    Numerics:
        NaN in a row gives NaN in its cluster alone.

    Example:
        >>> import numpy as np
        >>> x = np.array([[0.0], [2.0], [7.0]])
        >>> cluster_moments(x, np.array([0, 0, 1]), n_clusters=2).mean.tolist()
        [[1.0], [7.0]]
    """
    x = as_matrix("x", x)
    n_clusters = _checks.integer("n_clusters", n_clusters, 1)
    labels = as_labels("labels", labels, len(x), n_clusters)
    clusters = [_moments(x[labels == c]) for c in range(n_clusters)]
    return Moments(*(np.stack(field) for field in zip(*clusters, strict=True)))


def segment_mean(
    x: ArrayLike, segment_ids: ArrayLike, *, num_segments: int
) -> Float64[np.ndarray, "s d"]:
    """Return the mean of the rows of every segment: sentences out of tokens.

    Args:
        x: [n d], any floating dtype.
        segment_ids: [n] integers in 0..num_segments - 1, in any order.
        num_segments: how many segments s there are.

    Returns:
        [s d] float64; zero for a segment without rows.

    Raises:
        TypeError: `x` is not floating, `segment_ids` not integer, or `num_segments` no int.
        ValueError: `x` is no matrix or empty, `segment_ids` of another length or out of range.

    Numerics:
        NaN in a row gives NaN in its segment alone.

    Example:
        >>> import numpy as np
        >>> x = np.array([[1.0], [3.0], [5.0]])
        >>> segment_mean(x, np.array([0, 0, 2]), num_segments=3).tolist()
        [[2.0], [0.0], [5.0]]
    """
    x = as_matrix("x", x)
    num_segments = _checks.integer("num_segments", num_segments, 1)
    segment_ids = as_labels("segment_ids", segment_ids, len(x), num_segments)
    out = np.zeros((num_segments, x.shape[1]))
    for row, segment in zip(x, segment_ids, strict=True):
        out[segment] += row
    counts = np.bincount(segment_ids, minlength=num_segments)
    return out / np.maximum(counts, 1)[:, None]


def _moments(x: Float64[np.ndarray, "n d"]) -> Moments:
    """Return the moments of all rows of `x`, of which there may be none."""
    mean = mean_of_rows(x)
    centred = x - mean[None, :]
    return Moments(np.asarray(len(x)), mean, centred.T @ centred)
